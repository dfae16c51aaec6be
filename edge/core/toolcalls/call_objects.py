"""Calls out of decoded JSON, whatever names the model's template gives to name and arguments.

Read are ``name`` or ``tool_name`` with ``arguments``, ``parameters`` or ``args``; ``function`` as
the name, or as an object that holds both; ``{"NAME": {…}}``; OpenAI's ``{"tool_calls": […]}``; a
list of any of these. Arguments may be a JSON string of the object. Missing arguments mean ``{}``.
"""

from collections.abc import Mapping
from typing import Any

from edge.core.contract import Tool
from edge.core.repair import parse_json, to_json
from edge.core.toolcalls.found import FoundCall, offered, sound

NAME_KEYS = ("name", "tool_name", "function")
ARGUMENT_KEYS = ("arguments", "parameters", "args")
FIRST_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, "type", "id", "tool_call_id", "tool_calls"})
"""Keys that a call object may start with."""


def calls_in(
    value: Any, tools: Mapping[str, Tool], *, repair: bool = True
) -> tuple[FoundCall, ...]:
    """The calls that a decoded payload holds; what is no call becomes one with a fault."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    if isinstance(value, list):
        return tuple(_call(entry, tools, repair) for entry in value)
    return (_call(value, tools, repair),)


def are_calls(value: Any, tools: Mapping[str, Tool]) -> bool:
    """Whether unmarked JSON is meant as calls: offered names, and arguments given."""
    if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
        value = value["tool_calls"]
    entries = value if isinstance(value, list) else [value]
    return bool(entries) and all(_is_call(entry, tools) for entry in entries)


def with_arguments(
    name: str, value: Any, repairs: tuple[str, ...] = (), *, repair: bool = True
) -> FoundCall:
    """A call whose arguments were decoded: an object, nothing, or a string that holds one."""
    if value is None or value == "":
        return sound(name, {}, repairs)
    if isinstance(value, dict):
        return sound(name, value, repairs)
    if isinstance(value, str):
        parsed = parse_json(value, repair=repair)
        if isinstance(parsed.value, dict):
            return sound(name, parsed.value, (*repairs, *parsed.repairs))
        why = parsed.fault or "that holds no JSON object"
        return FoundCall(name, value, (), f"the arguments of {name} are a string; {why}")
    kind = "an array" if isinstance(value, list) else "no object"
    fault = f"the arguments of {name} are {kind}, where a JSON object is due"
    return FoundCall(name, to_json(value), (), fault)


def _is_call(entry: Any, tools: Mapping[str, Tool]) -> bool:
    if not isinstance(entry, dict):
        return False
    if isinstance(entry.get("function"), dict):
        entry = entry["function"]
    name = _name(entry)
    if offered(name, tools) not in tools:
        return False
    return any(key in entry for key in ARGUMENT_KEYS)


def _call(entry: Any, tools: Mapping[str, Tool], repair: bool) -> FoundCall:
    if not isinstance(entry, dict):
        return FoundCall("", to_json(entry), (), "not a call: JSON, but no object with a name")
    if isinstance(entry.get("function"), dict):
        entry = entry["function"]
    name = _name(entry)
    if not name:
        return _by_key(entry, tools)
    arguments = next((entry[key] for key in ARGUMENT_KEYS if key in entry), None)
    return with_arguments(offered(name, tools), arguments, repair=repair)


def _by_key(entry: dict[str, Any], tools: Mapping[str, Tool]) -> FoundCall:
    """``{"NAME": {…}}``, or a call that does not say whom it calls."""
    if len(entry) == 1:
        (key, value), *_ = entry.items()
        if isinstance(value, dict) and (key in tools or key not in ARGUMENT_KEYS):
            return with_arguments(offered(key, tools), value)
    return FoundCall("", to_json(entry), (), "a call without a name: its JSON object names no tool")


def _name(entry: dict[str, Any]) -> str:
    for key in NAME_KEYS:
        name = entry.get(key)
        if isinstance(name, str) and name:
            return name.strip()
    return ""
