"""Schemas of chat requests and their answers.

The request is :class:`~edge.wire.openai_chat.ChatBody`, which is what a body is structured into;
what a hook reads there has its schema here. ``tests/server/test_openapi_chat.py`` holds the two
against each other. The answer is what ``core.emit`` writes.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from edge.core.output_keys import OUTPUT_KEYS, Choice, Flag, OutputKey
from edge.core.overrides import PREFIX
from edge.core.stream_events import FinishReason
from edge.server.openapi_shapes import Schema, Shapes
from edge.wire.openai_chat import MAX_CHOICES, ChatBody, ChoiceCount, Messages, Metadata
from edge.wire.openai_demands import Format, LegacyChoice, Name, ToolChoiceSpec
from edge.wire.openai_messages import ROLES
from edge.wire.strict_structure import MAX_ITEMS

NAME: Schema = {"type": "string", "minLength": 1}
OPTIONAL_TEXT: Schema = {"type": ["string", "null"]}
OPTIONAL_OBJECT: Schema = {"type": ["object", "null"]}
CHAT_EXAMPLES: Mapping[str, Any] = MappingProxyType(
    {
        "ask": {"model": "coder", "messages": [{"role": "user", "content": "Say hello."}]},
        "have a tool called": {
            "model": "coder",
            "messages": [{"role": "user", "content": "How is the weather in Bern?"}],
            "stream": True,
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "weather",
                        "parameters": {
                            "type": "object",
                            "properties": {"city": {"type": "string"}},
                            "required": ["city"],
                        },
                    },
                }
            ],
        },
    }
)
_SPECIAL_ROLES = ("assistant", "tool", "function")


class FunctionCall(TypedDict):
    """What is called, and with what."""

    name: str
    arguments: Annotated[str, "The JSON text of one object."]


class ToolCall(TypedDict):
    """A whole tool call that keeps its tool's schema."""

    index: NotRequired[Annotated[int, "In chunks: its place among the calls."]]
    id: str
    type: Literal["function"]
    function: FunctionCall


class Message(TypedDict):
    """What the model answered, with whatever else the provider told of it."""

    role: Literal["assistant"]
    content: Annotated[str | None, "Null where tools are called and nothing is said."]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class AnswerChoice(TypedDict):
    """One choice of an answer."""

    index: int
    message: Message
    finish_reason: FinishReason


class ChatCompletion(TypedDict):
    """An answer that is not streamed; fields that the provider adds travel."""

    id: Annotated[str, "`chatcmpl-` and the run's id."]
    object: Literal["chat.completion"]
    created: Annotated[int, "Seconds since 1970."]
    model: Annotated[str, "As the client named it."]
    choices: list[AnswerChoice]
    usage: NotRequired[dict[str, Any]]


class Delta(TypedDict):
    """What a chunk adds to a choice."""

    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[Annotated[list[ToolCall], "Each whole, and never in parts."]]


class ChunkChoice(TypedDict):
    """A piece of one choice."""

    index: int
    delta: Delta
    finish_reason: FinishReason | None


class ChatCompletionChunk(TypedDict):
    """A piece of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: Annotated[list[ChunkChoice], "Empty in the chunk that tells the usage."]
    usage: NotRequired[dict[str, Any] | None]


def chat_request() -> Shapes:
    """The schema of a chat request, named ``ChatBody``, with those it refers to."""
    shapes = Shapes()
    shapes.read_as(Name, NAME)
    shapes.read_as(ChoiceCount, {"type": "integer", "minimum": 1, "maximum": MAX_CHOICES})
    shapes.read_as(Metadata, shapes.name("Metadata", metadata()))
    shapes.read_as(ToolChoiceSpec, shapes.name("ToolChoice", _tool_choice()))
    shapes.read_as(LegacyChoice, {"anyOf": [{"enum": ["auto", "none"]}, _named()]})
    shapes.read_as(Format, shapes.name("ResponseFormat", _response_format()))
    kinds = [
        shapes.name("PlainMessage", _message(sorted(ROLES.difference(_SPECIAL_ROLES)))),
        shapes.name("AssistantMessage", _assistant_message()),
        shapes.name("ToolMessage", _message(["tool"], tool_call_id=NAME)),
        shapes.name("FunctionMessage", _message(["function"], name=NAME)),
    ]
    shapes.read_as(Messages, {"type": "array", "minItems": 1, "items": {"anyOf": kinds}})
    shapes.bound_lists(MAX_ITEMS)
    shapes.of(ChatBody)
    return shapes


def metadata() -> Schema:
    """``metadata``: the client's own, and what speaks to the gateway."""
    ours = {f"{PREFIX}{name}": _override(key) for name, key in OUTPUT_KEYS.items()}
    return {
        "type": "object",
        "description": f"Keys that begin with `{PREFIX}` speak to the gateway: they change the "
        "route's output policy for this run, within its bounds. Others travel to the provider.",
        "properties": ours,
        "patternProperties": {f"^{PREFIX.replace('.', '[.]')}": {"type": "string"}},
    }


def _override(key: OutputKey) -> Schema:
    match key:
        case Choice(words):
            return {"type": "string", "enum": list(words)}
        case Flag():
            return {"type": "string", "enum": ["true", "false"]}
        case _:
            return {"type": "string"}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    return {**schema, "required": list(required)} if required else schema


def _named() -> Schema:
    return _object(("name",), name=NAME)


def _named_function() -> Schema:
    return _object(("function",), function=_named())


def _tool_choice() -> Schema:
    allowed = _object(
        ("tools",),
        mode={"enum": ["auto", "required"]},
        tools={"type": "array", "minItems": 1, "items": _named_function()},
    )
    one = _object(("type", "function"), type={"const": "function"}, function=_named())
    some = _object(
        ("type", "allowed_tools"), type={"const": "allowed_tools"}, allowed_tools=allowed
    )
    return {"anyOf": [{"enum": ["auto", "none", "required"]}, one, some]}


def _response_format() -> Schema:
    described = _object(name=OPTIONAL_TEXT, schema=OPTIONAL_OBJECT)
    return {
        "anyOf": [
            _object(("type",), type={"const": "json_object"}, schema=OPTIONAL_OBJECT),
            _object(("type", "json_schema"), type={"const": "json_schema"}, json_schema=described),
            _object(
                ("type",), type={"type": "string", "not": {"enum": ["json_object", "json_schema"]}}
            ),
        ]
    }


def _message(roles: list[str], **required: Schema) -> Schema:
    part = _object(("type",), type={"type": "string"})
    content = {"anyOf": [OPTIONAL_TEXT, {"type": "array", "items": part}]}
    return _object(("role", *required), role={"enum": roles}, content=content, **required)


def _assistant_message() -> Schema:
    ours = _object(
        ("function",), id=OPTIONAL_TEXT, type={"enum": ["function", None]}, function=_named()
    )
    other = _object(("type",), id=OPTIONAL_TEXT, type={"not": {"enum": ["function", None]}})
    calls = {"type": ["array", "null"], "items": {"anyOf": [ours, other]}}
    message = _message(["assistant"])
    message["properties"]["tool_calls"] = calls
    message["properties"]["function_call"] = {"anyOf": [_named(), {"type": "null"}]}
    return message
