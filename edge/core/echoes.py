"""Calls that a server hands out natively and leaves in the text as well, told once."""

from typing import Any

from edge.core.stream_events import ToolCallDelta
from edge.wire.strict_json import MalformedJson, parse


def drop_echoes(calls: tuple[ToolCallDelta, ...]) -> tuple[ToolCallDelta, ...]:
    """Leave out calls read from text that the answer also holds natively.

    Some servers hand a call out natively and leave its markup in the content as well.
    """
    native = {(call.name, call.arguments.strip()) for call in calls if call.origin == "native"}
    if not native:
        return calls
    return tuple(call for call in calls if call.origin == "native" or not _echoes(call, native))


def _echoes(call: ToolCallDelta, native: set[tuple[str, str]]) -> bool:
    if (call.name, call.arguments.strip()) in native:
        return True
    return any(name == call.name and _same_json(text, call.arguments) for name, text in native)


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(_value(one) == _value(other))
    except MalformedJson:
        return False


def _value(text: str) -> Any:
    return parse(text.encode("utf-8", "surrogatepass"))
