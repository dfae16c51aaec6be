"""OpenAI's chat completions, upwards: a client's body to values, values to a provider's body.

The whole tree of the body travels (``ChatRequest.raw``); only what the gateway decides on is
structured, strictly and with the path of every complaint. Unknown keys pass. Null stands for
absent wherever a key is optional, as many agents send it.

Legacy ``functions`` and ``function_call`` become tools on the way up, and an ``allowed_tools``
choice becomes the allowed tools with its mode, since few model servers know either.

Source of the rules: the request schema of ``POST /v1/chat/completions`` in OpenAI's published
OpenAPI description.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NewType

from cattrs import Converter

from edge.wire import strict_json
from edge.wire.openai_demands import (
    AUTO,
    Format,
    FunctionSpec,
    LegacyChoice,
    Name,
    ResponseFormatSpec,
    ToolChoiceSpec,
    ToolSpec,
    add_hooks,
    check_tools,
)
from edge.wire.openai_messages import checked_messages, in_current_words
from edge.wire.strict_structure import (
    Complaint,
    Complaints,
    mismatch,
    refusal,
    strict_converter,
    structure,
)

MAX_CHOICES = 128
EDGE_METADATA = "edge."
"""Prefix of the metadata keys that speak to the gateway and do not travel."""

ChoiceCount = NewType("ChoiceCount", int)
Messages = NewType("Messages", list[dict[str, Any]])
Metadata = NewType("Metadata", dict[str, Any])
NO_METADATA: Mapping[str, str] = MappingProxyType({})


class _Absent:
    """See ``ABSENT``."""


ABSENT = _Absent()
"""In ``provider_body``'s changes: the key is taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A client's chat request.

    Attributes:
        raw: the whole body as it was parsed; never changed.
        messages: in today's words; the very list of ``raw`` where nothing was legacy.
        include_usage: whether the client asked for a usage chunk in its stream.
        n: number of choices.
        tools: offered functions in order, also those of a legacy ``functions``.
        legacy_functions: the client offered ``functions`` and expects ``function_call``.
        response_format: None for text, and for kinds that only the provider knows.
        metadata: the pairs whose values are strings.
    """

    raw: dict[str, Any]
    model: str
    messages: list[dict[str, Any]]
    stream: bool = False
    include_usage: bool = False
    n: int = 1
    tools: tuple[FunctionSpec, ...] = ()
    tool_choice: ToolChoiceSpec = AUTO
    parallel_tool_calls: bool = True
    legacy_functions: bool = False
    response_format: ResponseFormatSpec | None = None
    metadata: Mapping[str, str] = field(default_factory=lambda: NO_METADATA)
    user: str | None = None


def decode_chat_request(body: bytes) -> ChatRequest:
    """The chat request in ``body``.

    Raises:
        InvalidRequest: it is no JSON, or no chat request; ``param`` names the first place, the
            message every one.
    """
    return chat_request(strict_json.decode(body, what="The body"))


def chat_request(raw: object) -> ChatRequest:
    """The chat request in a parsed body; raises as :func:`decode_chat_request`."""
    if not isinstance(raw, dict):
        raise refusal([mismatch("an object", raw)])
    body = structure(_converter, raw, ChatBody)
    tools = tuple(body.functions or [tool.function for tool in body.tools or ()])
    choice = body.tool_choice or body.function_call or AUTO
    if body.tools and body.functions:
        raise refusal([Complaint("cannot be given beside tools", "functions")])
    check_tools(tools, choice, legacy=bool(body.functions))
    options = body.stream_options
    pairs: dict[str, Any] = body.metadata or {}
    return ChatRequest(
        raw=raw,
        model=body.model,
        messages=in_current_words(body.messages),
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        n=body.n or 1,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        legacy_functions=bool(body.functions),
        response_format=body.response_format.spec if body.response_format else None,
        metadata={key: value for key, value in pairs.items() if isinstance(value, str)},
        user=body.user,
    )


def provider_body(
    request: ChatRequest,
    *,
    model: str,
    messages: Sequence[Mapping[str, Any]] | None = None,
    metadata: Mapping[str, str] = NO_METADATA,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """The body of one attempt: always streamed and with usage. ``request`` is left as it is.

    Args:
        request: the client's request.
        model: the provider's name for the model.
        messages: stand in for the request's (healed, or with feedback).
        metadata: pairs to send beside the client's own.
        changes: top-level keys to set at last; ``ABSENT`` takes a key out.
    """
    body = dict(request.raw)
    body["model"] = model
    body["messages"] = request.messages if messages is None else messages
    body["stream"] = True
    body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    _say_tools(body, request)
    _say_metadata(body, metadata)
    for key, value in changes.items():
        if value is ABSENT:
            body.pop(key, None)
        else:
            body[key] = value
    return body


def _say_tools(body: dict[str, Any], request: ChatRequest) -> None:
    body.pop("functions", None)
    body.pop("function_call", None)
    if not request.tools:  # many servers refuse an empty list, or a choice without one
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            body.pop(key, None)
        return
    choice = request.tool_choice
    tools = _raw_tools(request)
    if choice.names and choice.mode != "named":
        tools = [tool for tool in tools if tool["function"]["name"] in choice.names]
        body["tool_choice"] = choice.mode
    body["tools"] = tools
    if "function_call" in request.raw:
        body["tool_choice"] = _said_choice(choice)


def _raw_tools(request: ChatRequest) -> list[dict[str, Any]]:
    if request.legacy_functions:
        return [{"type": "function", "function": f} for f in request.raw["functions"]]
    tools: list[dict[str, Any]] = request.raw["tools"]
    return tools


def _said_choice(choice: ToolChoiceSpec) -> Any:
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.names[0]}}
    return choice.mode


def _say_metadata(body: dict[str, Any], more: Mapping[str, str]) -> None:
    pairs = body.get("metadata") or {}
    kept = {key: value for key, value in pairs.items() if not key.startswith(EDGE_METADATA)}
    kept.update(more)
    if kept:
        body["metadata"] = kept
    else:
        body.pop("metadata", None)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What a stream is to tell beside the answer."""

    include_usage: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatBody:
    """A chat request, as far as the gateway reads it; other keys travel to the provider."""

    model: Name
    messages: Messages
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: ChoiceCount | None = None
    tools: list[ToolSpec] | None = None
    functions: list[FunctionSpec] | None = None
    tool_choice: ToolChoiceSpec | None = None
    function_call: LegacyChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: Format | None = None
    metadata: Metadata | None = None
    user: str | None = None


def _choice_count(value: object, _: object) -> ChoiceCount:
    if type(value) is not int:
        raise mismatch("an integer", value)
    if not 1 <= value <= MAX_CHOICES:
        raise Complaint(f"must be from 1 to {MAX_CHOICES}")
    return ChoiceCount(value)


def _metadata(value: object, _: object) -> Metadata:
    if not isinstance(value, dict):
        raise mismatch("an object", value)
    wrong = [
        mismatch("a string", item, key)
        for key, item in value.items()
        if key.startswith(EDGE_METADATA) and not isinstance(item, str)
    ]
    if wrong:
        raise Complaints(wrong)
    return Metadata(value)


def _chat_converter() -> Converter:
    converter = strict_converter()
    add_hooks(converter)
    converter.register_structure_hook(ChoiceCount, _choice_count)
    converter.register_structure_hook(Messages, lambda value, _: checked_messages(value))
    converter.register_structure_hook(Metadata, _metadata)
    return converter


_converter = _chat_converter()
