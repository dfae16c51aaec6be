"""What a chat request demands of its answer: ``tools``, ``tool_choice``, ``response_format``.

The hooks here read those keys strictly; :func:`check_tools` says what must hold between them.
Source of the shapes: the request schema of ``POST /v1/chat/completions`` in OpenAI's published
OpenAPI description; ``schema`` beside ``json_object`` is llama.cpp's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NewType, TypeAlias

from cattrs import Converter

from edge.wire.strict_structure import Complaint, mismatch, refusal, shown

ChoiceMode: TypeAlias = Literal["auto", "none", "required", "named"]

Name = NewType("Name", str)
"""A text that is not empty."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """An offered function as the client described it; ``parameters`` is its JSON Schema."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """An entry of ``tools``."""

    type: Literal["function"]
    function: FunctionSpec


@dataclass(frozen=True, slots=True)
class ToolChoiceSpec:
    """``tool_choice``; ``names`` are the tools that may be called, empty for all.

    ``named`` demands a call of the one tool in ``names``.
    """

    mode: ChoiceMode = "auto"
    names: tuple[str, ...] = ()


AUTO = ToolChoiceSpec()


@dataclass(frozen=True, slots=True)
class ResponseFormatSpec:
    """``response_format``; ``schema`` is None where any JSON object will do."""

    kind: Literal["json_object", "json_schema"]
    schema: dict[str, Any] | None = None
    name: str = ""


LegacyChoice = NewType("LegacyChoice", ToolChoiceSpec)
"""``function_call``, said as a tool choice."""


@dataclass(frozen=True, slots=True)
class Format:
    """``response_format``; no spec for text, and for kinds that only the provider knows."""

    spec: ResponseFormatSpec | None


def add_hooks(converter: Converter) -> None:
    """Teach ``converter`` the types of this module."""
    converter.register_structure_hook(Name, _name)
    converter.register_structure_hook(ToolChoiceSpec, _tool_choice)
    converter.register_structure_hook(LegacyChoice, _legacy_choice)
    converter.register_structure_hook(Format, _response_format)


def check_tools(tools: Sequence[FunctionSpec], choice: ToolChoiceSpec, *, legacy: bool) -> None:
    """What holds between keys: names are unique, and a demanded tool is offered.

    Raises:
        InvalidRequest: with every complaint, in the words the client used.
    """
    at = "functions[{}].name" if legacy else "tools[{}].function.name"
    key = "function_call" if legacy else "tool_choice"
    seen: set[str] = set()
    wrong = []
    for index, tool in enumerate(tools):
        if tool.name in seen:
            wrong.append(Complaint(f"{shown(tool.name)} is offered twice", at.format(index)))
        seen.add(tool.name)
    wrong += [
        Complaint(f"{shown(name)} is not among the tools", key)
        for name in choice.names
        if name not in seen
    ]
    if choice.mode == "required" and not tools:
        wrong.append(Complaint("'required' needs tools", key))
    if wrong:
        raise refusal(wrong)


def _name(value: object, _: object = None) -> Name:
    if not isinstance(value, str):
        raise mismatch("a string", value)
    if not value:
        raise Complaint("must not be empty")
    return Name(value)


def _tool_choice(value: Any, _: object) -> ToolChoiceSpec:
    match value:
        case "auto" | "none" | "required":
            return ToolChoiceSpec(value)
        case str():
            raise Complaint(f"must be 'none', 'auto', 'required' or an object, not {shown(value)}")
        case {"type": "function"}:
            return ToolChoiceSpec("named", (_function_name(value, ""),))
        case {"type": "allowed_tools"}:
            return _allowed_tools(value.get("allowed_tools"))
        case dict():
            kind = shown(value.get("type"))
            raise Complaint(f"must be 'function' or 'allowed_tools', not {kind}", "type")
        case _:
            raise mismatch("a string or an object", value)


def _allowed_tools(value: object) -> ToolChoiceSpec:
    if not isinstance(value, dict):
        raise mismatch("an object", value, "allowed_tools")
    mode = value.get("mode", "auto")
    if mode != "auto" and mode != "required":
        raise Complaint(f"must be 'auto' or 'required', not {shown(mode)}", "allowed_tools.mode")
    tools = value.get("tools")
    if not isinstance(tools, list) or not tools:
        raise Complaint("must be an array of tools, not empty", "allowed_tools.tools")
    at = "allowed_tools.tools[{}]"
    names = [_function_name(tool, at.format(index)) for index, tool in enumerate(tools)]
    return ToolChoiceSpec(mode, tuple(names))


def _function_name(value: object, path: str) -> str:
    at = f"{path}." if path else ""
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        raise mismatch("an object", function, f"{at}function")
    try:
        return _name(function.get("name"))
    except Complaint as complaint:
        raise Complaint(complaint.message, f"{at}function.name") from None


def _legacy_name(value: dict[str, Any]) -> str:
    try:
        return _name(value.get("name"))
    except Complaint as complaint:
        raise Complaint(complaint.message, "name") from None


def _legacy_choice(value: object, _: object) -> LegacyChoice:
    if value == "auto" or value == "none":
        return LegacyChoice(ToolChoiceSpec(value))
    if isinstance(value, dict):
        return LegacyChoice(ToolChoiceSpec("named", (_legacy_name(value),)))
    raise Complaint("must be 'none', 'auto' or an object with the function's name")


def _response_format(value: object, _: object) -> Format:
    if not isinstance(value, dict):
        raise mismatch("an object", value)
    match value.get("type"):
        case "json_object":  # with a schema beside it: llama.cpp's way to ask for one
            schema = _optional_object(value, "schema")
            kind: Literal["json_object", "json_schema"] = "json_schema" if schema else "json_object"
            return Format(ResponseFormatSpec(kind, schema))
        case "json_schema":
            return Format(_json_schema(value.get("json_schema")))
        case str():
            return Format(None)
        case other:
            raise mismatch("a string", other, "type")


def _json_schema(value: object) -> ResponseFormatSpec:
    if not isinstance(value, dict):
        raise mismatch("an object", value, "json_schema")
    name = value.get("name")
    if name is not None and not isinstance(name, str):
        raise mismatch("a string", name, "json_schema.name")
    schema = _optional_object(value, "schema", "json_schema.")
    return ResponseFormatSpec("json_schema", schema, name or "")


def _optional_object(holder: dict[str, Any], key: str, path: str = "") -> dict[str, Any] | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, dict):
        raise mismatch("an object", value, path + key)
    return value
