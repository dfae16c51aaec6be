"""OpenAI's chat completions, downwards: what a provider sends, to ``chat.completion.chunk`` trees.

Nothing is interpreted here but two questions: is this an error told inside a 200, and how does a
whole completion (from a server that passed over ``stream: true``) look as chunks.
"""

from typing import Any, TypeAlias

import orjson

from edge.errors import ProviderProtocolError, ProviderStreamError
from edge.wire import strict_json

Chunk: TypeAlias = dict[str, Any] | str
"""A decoded chunk. A string is a piece of text of choice 0, never empty: a chunk that told nothing
else that the chunks before it had not told (:mod:`edge.wire.same_text`)."""

_IN_MESSAGE_ONLY = frozenset({"role", "tool_calls"})
_PER_CHOICE = frozenset({"index", "message", "delta", "finish_reason", "text"})
_NOT_TOP = frozenset({"object", "choices", "usage"})


def decode_chunk(payload: bytes) -> dict[str, Any]:
    """The JSON object of one event.

    Raises:
        ProviderProtocolError: it is no JSON object.
    """
    try:
        # So short it cannot be too deep, and no integer matters but those among arguments.
        if len(payload) <= 2 * strict_json.MAX_DEPTH and b"arguments" not in payload:
            chunk = orjson.loads(payload)
        else:
            chunk = strict_json.parse(payload)
    except ValueError as error:
        raise ProviderProtocolError(
            f"The provider sent an event that is no JSON: {error}."
        ) from None
    if type(chunk) is not dict:
        raise ProviderProtocolError("The provider sent an event that is no JSON object.")
    return chunk


def chunk_error(chunk: dict[str, Any]) -> ProviderStreamError | None:
    """The error that ``chunk`` tells, if it is one.

    Seen in the wild: ``{"error": {...}}`` (OpenAI, SGLang, OpenRouter beside choices), ``{"error":
    "text"}`` (Ollama), ``{"object": "error", "message"}`` (vLLM), ``{"detail"}`` (FastAPI),
    ``{"code", "message", "type"}`` (llama.cpp), and an object whose only key is the text.
    """
    error = chunk.get("error")
    if not error:
        if "choices" in chunk:
            return None
        error = _bare_error(chunk)
    if not error:
        return None
    if not isinstance(error, dict):
        return _told(str(error), None, None)
    code = error.get("code") or error.get("status") or error.get("type")
    message = error.get("message") or error.get("detail") or strict_json.encode(error).decode()
    return _told(_text(message), code, error.get("param"))


def whole_chunk(chunk: Chunk) -> dict[str, Any]:
    """A chunk as a tree, also where only its text is at hand."""
    if isinstance(chunk, str):
        return {"choices": [{"index": 0, "delta": {"content": chunk}}]}
    return chunk


def says_something(chunk: Chunk) -> bool:
    """Whether a chunk carries content of any kind, and not a role or nothing."""
    if isinstance(chunk, str):
        return True
    choices = chunk.get("choices")
    if not isinstance(choices, list):
        return False
    deltas = [choice.get("delta") for choice in choices if isinstance(choice, dict)]
    return any(
        value and name != "role"
        for delta in deltas
        if isinstance(delta, dict)
        for name, value in delta.items()
    )


def completion_to_chunks(completion: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole ``chat.completion`` as chunks: a delta and a finish for each choice, then usage.

    Raises:
        ProviderStreamError: it is an error object.
        ProviderProtocolError: it is something else.
    """
    fault = chunk_error(completion)
    if fault is not None:
        raise fault
    choices = completion.get("choices")
    if not isinstance(choices, list):
        raise ProviderProtocolError("The provider sent JSON that is no chat completion.")
    top = {key: value for key, value in completion.items() if key not in _NOT_TOP}
    top["object"] = "chat.completion.chunk"
    chunks = []
    for position, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise ProviderProtocolError("The provider sent a choice that is no object.")
        chunks += [{**top, "choices": [part]} for part in _choice_parts(choice, position)]
    if completion.get("usage") is not None:
        chunks.append({**top, "choices": [], "usage": completion["usage"]})
    return chunks


def _bare_error(chunk: dict[str, Any]) -> Any:
    """The error in an object that is neither a chunk nor has an ``error``."""
    if chunk.get("object") == "error" or ("message" in chunk and "code" in chunk):
        return chunk
    if "detail" in chunk:
        return {"message": chunk["detail"]}
    if len(chunk) == 1:
        (key,) = chunk
        if key.lower().startswith(("error", "failed")):
            return key
    return None


def _told(message: str, code: object, param: object) -> ProviderStreamError:
    return ProviderStreamError(
        message,
        code=None if code is None else str(code),
        param=param if isinstance(param, str) else None,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else strict_json.encode(value).decode()


def _choice_parts(choice: dict[str, Any], position: int) -> list[dict[str, Any]]:
    """One choice as two: its whole message as a delta, and its finish."""
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict):
        raise ProviderProtocolError("The provider sent a message that is no object.")
    index = choice.get("index", position)
    delta = {key: value for key, value in message.items() if key not in _IN_MESSAGE_ONLY}
    delta["role"] = "assistant"
    if message.get("tool_calls"):
        delta["tool_calls"] = _indexed(message["tool_calls"])
    beside = {key: value for key, value in choice.items() if key not in _PER_CHOICE}
    finish = {"index": index, "delta": {}, "finish_reason": choice.get("finish_reason")}
    return [{"index": index, "delta": delta, "finish_reason": None, **beside}, finish]


def _indexed(calls: Any) -> Any:
    """The calls of a message as entries of a delta, which are told apart by their index."""
    if not isinstance(calls, list):
        return calls
    return [
        {**call, "index": place} if isinstance(call, dict) else call
        for place, call in enumerate(calls)
    ]
