"""A provider in process, so that everything can be tried with no model at all.

``sim-echo``   says the last user message, a word a chunk
``sim-tools``  calls the first tool it may call, with arguments made from the tool's schema; a run's
               first attempt breaks off in the middle of a value, its second is sound. It has
               nothing to call without tools, or behind a tool's result, and says so
``sim-slow``   as ``sim-echo``, a word a second

Names that merely begin like one of these behave like it (``sim-slow-2``). The same request has the
same answer: its id comes from the run and the attempt, its time is fixed, its tokens are words. A
request for a JSON Schema is answered with a value of that schema.
"""

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from edge.core.schema_example import schema_example
from edge.errors import ProviderRefused
from edge.providers.port import ByteStream, ChunkStream, Provider, ProviderRequest, TunnelRequest
from edge.wire.openai_chunks import Chunk
from edge.wire.strict_json import encode

MODELS = ("sim-echo", "sim-tools", "sim-slow")
SECONDS_A_WORD = 1.0
CREATED = 1_735_689_600  # the start of 2025

_WORD = re.compile(r"\S+\s*|\s+")


class SimulatedProvider:
    """Answers out of what it is asked."""

    def __init__(self, name: str = "simulated") -> None:
        self._name = name

    @property
    def name(self) -> str:
        """See :class:`Provider`."""
        return self._name

    @property
    def can_tunnel(self) -> bool:
        """It has no bytes to pass through."""
        return False

    @asynccontextmanager
    async def open(self, request: ProviderRequest) -> AsyncIterator[ChunkStream]:
        """Answer a chat request.

        Raises:
            ProviderRefused: with status 404, for a model that is none of the three.
        """
        await trio.lowlevel.checkpoint()
        kind = next((model for model in MODELS if request.model.startswith(model)), None)
        if kind is None:
            raise self._refusal(404, f"The model {request.model!r} is not simulated.")
        pause_s = SECONDS_A_WORD if kind == "sim-slow" else 0.0
        yield _SimulatedStream(_chunks(request, kind), pause_s)

    def open_tunnel(self, request: TunnelRequest) -> "_NoTunnel":
        """Refuse on entering, with status 404: there is nothing at the other end."""
        return _NoTunnel(self._refusal(404, f"Nothing is simulated at {request.path}."))

    async def list_models(self) -> list[dict[str, Any]]:
        """The three models."""
        await trio.lowlevel.checkpoint()
        return [
            {"id": model, "object": "model", "created": CREATED, "owned_by": self._name}
            for model in MODELS
        ]

    async def aclose(self) -> None:
        """Nothing is open."""
        await trio.lowlevel.checkpoint()

    def _refusal(self, status: int, message: str) -> ProviderRefused:
        error = {"message": message, "type": "not_found_error", "param": None, "code": None}
        return ProviderRefused(
            message,
            provider=self._name,
            upstream_status=status,
            upstream_body=encode({"error": error}),
            upstream_type="application/json",
        )


class _NoTunnel:
    """Raises a refusal where a tunnel would open."""

    def __init__(self, refusal: ProviderRefused) -> None:
        self._refusal = refusal

    async def __aenter__(self) -> ByteStream:
        await trio.lowlevel.checkpoint()
        raise self._refusal

    async def __aexit__(self, *_: object) -> None:
        """Entering has raised, so this is never left."""


class _SimulatedStream:
    """Chunks one at a time; before each that says something there is a pause."""

    def __init__(self, chunks: Iterator[dict[str, Any]], pause_s: float) -> None:
        self._chunks = chunks
        self._pause_s = pause_s
        self._complete = False

    @property
    def complete(self) -> bool:
        return self._complete

    async def receive(self) -> list[Chunk]:
        chunk = next(self._chunks, None)
        if chunk is None:
            self._complete = True
            await trio.lowlevel.checkpoint()
            return []
        await trio.sleep(self._pause_s if _says_something(chunk) else 0.0)
        return [chunk]

    async def receive_each(self, take: Callable[[Sequence[Chunk]], bool]) -> None:
        """Nothing is quicker here: chunks are made one at a time."""


def _chunks(request: ProviderRequest, kind: str) -> Iterator[dict[str, Any]]:
    body = request.body
    top = {
        "id": f"chatcmpl-sim-{request.run_id or 'run'}.{request.attempt}",
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": request.model,
    }
    deltas, finish = _answer(request, kind)
    numbers = range(body.get("n") or 1)
    for index in numbers:
        for delta in ({"role": "assistant", "content": ""}, *deltas):
            yield {**top, "choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        yield {**top, "choices": [{"index": index, "delta": {}, "finish_reason": finish}]}
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**top, "choices": [], "usage": _usage(body, len(deltas) * len(numbers))}


def _answer(request: ProviderRequest, kind: str) -> tuple[list[dict[str, Any]], str]:
    """The deltas of one choice and its finish reason."""
    body = request.body
    schema = _asked_schema(body)
    if schema is not None:
        return [{"content": encode(schema_example(schema)).decode()}], "stop"
    if kind != "sim-tools":
        return _words(_last_said(body, "user")), "stop"
    if _role(body) == "tool":
        return _words(f"The tool said: {_last_said(body, 'tool')}"), "stop"
    function = _function_to_call(body)
    if function is None:
        return _words("There is no tool for me to call."), "stop"
    return _call_deltas(function, request), "tool_calls"


def _call_deltas(function: Mapping[str, Any], request: ProviderRequest) -> list[dict[str, Any]]:
    arguments = schema_example(function.get("parameters") or {"type": "object"})
    text = encode(arguments if isinstance(arguments, dict) else {}).decode()
    if request.attempt == 1:
        text = text.partition(":")[0] + ":" if ":" in text else '{"'
    called = {"name": function["name"], "arguments": ""}
    identity = f"call_sim_{request.attempt}"
    head = {"index": 0, "id": identity, "type": "function", "function": called}
    tail = {"index": 0, "function": {"arguments": text}}
    return [{"tool_calls": [head]}, {"tool_calls": [tail]}]


def _function_to_call(body: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choice = body.get("tool_choice")
    functions = [tool["function"] for tool in body.get("tools") or ()]
    if choice == "none":
        return None
    if isinstance(choice, Mapping):
        demanded = choice["function"]["name"]
        functions = [function for function in functions if function["name"] == demanded]
    return functions[0] if functions else None


def _asked_schema(body: Mapping[str, Any]) -> Any:
    """The schema in ``response_format``; any object where only JSON is asked for; else None."""
    asked = body.get("response_format") or {}
    match asked.get("type"):
        case "json_schema":
            return (asked.get("json_schema") or {}).get("schema") or {"type": "object"}
        case "json_object":
            return asked.get("schema") or {"type": "object"}
        case _:
            return None


def _words(text: str) -> list[dict[str, Any]]:
    """A delta for each word with the white space behind it; joined they are ``text``."""
    return [{"content": word} for word in _WORD.findall(text)]


def _role(body: Mapping[str, Any]) -> str:
    return str(body["messages"][-1].get("role"))


def _last_said(body: Mapping[str, Any], role: str) -> str:
    for message in reversed(body["messages"]):
        if message.get("role") == role:
            return _text(message.get("content"))
    return ""


def _text(content: Any) -> str:
    """The text of a message; of parts, those that are text."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content)
    return content if isinstance(content, str) else ""


def _usage(body: Mapping[str, Any], completion: int) -> dict[str, int]:
    prompt = sum(len(_text(message.get("content")).split()) for message in body["messages"])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _says_something(chunk: Mapping[str, Any]) -> bool:
    return any(
        choice["delta"].get("content") or choice["delta"].get("tool_calls")
        for choice in chunk["choices"]
    )


if TYPE_CHECKING:
    _conforms: type[Provider] = SimulatedProvider
