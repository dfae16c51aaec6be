"""Heals malformed tool calls in the messages of a request, or says which message is at fault.

Agents replay what models wrote. One malformed call in the history makes some model servers answer
with an error for the rest of the conversation, so it is mended on the way up where nothing is lost
by it, and refused with the message's path where it cannot be:

    arguments          an object as text; nothing becomes ``{}``; lossless JSON repairs
    call_id            a call without an id gets one
    duplicate_id       a second call of the same id gets another, and so does its result
    call_type          a call without a type is a function's
    empty_tool_calls   an empty list of calls is taken out
    missing_result     a call that was never answered gets a result that says so
    late_result        a result that stands further down moves up behind its call
    orphan_result      a result without its call gets an assistant message that calls for it
    null_content       null becomes the empty text (beside calls null is sound and stays)

Refused: arguments that are no JSON object and have no lossless reading, and calls without a name.
What users wrote is never touched. A history in which nothing is wrong comes back as the same list,
and sound messages as the same objects.
"""

from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

import orjson

from edge.core.json_path import child
from edge.core.repair import parse_json, to_json
from edge.errors import InvalidRequest

NO_RESULT = "(no result was recorded for this call)"
UNKNOWN_TOOL = "earlier_tool"


def heal(
    messages: list[dict[str, Any]], *, place: str = "messages"
) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The messages, healed.

    Args:
        messages: in today's words (``tool_calls``, role ``tool``); neither the list nor a message
            is changed.
        place: their place in the request.

    Returns:
        The very list where nothing was wrong, else a new one; and the names of what was healed,
        each once.

    Raises:
        InvalidRequest: what cannot be healed without loss; ``param`` is its place.
    """
    healer = _Healer(place)
    for index, message in enumerate(messages):
        healer.take(index, message)
    healer.close_turn()
    if not healer.healed:
        return messages, ()
    return healer.finish(), tuple(healer.healed)


class _Call(NamedTuple):
    """A call whose result has not come yet; ``number`` says which came first."""

    number: int
    original_id: str
    result_id: str


class _Pending:
    """The calls whose results have not come yet, in order, found by either of their ids.

    A request may hold as many as it has room for, so that none of this may look through them all.
    """

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}  # by the id the result will bear, which is its own
        self._same: dict[str, deque[_Call]] = {}  # by the id it came with, which others may share
        self._numbers = count()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, original_id: str, result_id: str) -> None:
        call = _Call(next(self._numbers), original_id, result_id)
        self._calls[result_id] = call
        self._same.setdefault(original_id, deque()).append(call)

    def take_first(self) -> _Call:
        return self._taken(next(iter(self._calls.values())))

    def take(self, told: object) -> _Call | None:
        """The first call that has this id, given or got."""
        if not isinstance(told, str):
            return None
        same = self._same.get(told, deque())
        while same and same[0].result_id not in self._calls:
            same.popleft()
        found = [call for call in (self._calls.get(told), same[0] if same else None) if call]
        return self._taken(min(found)) if found else None

    def clear(self) -> list[_Call]:
        calls = list(self._calls.values())
        self._calls.clear()
        self._same.clear()
        return calls

    def _taken(self, call: _Call) -> _Call:
        del self._calls[call.result_id]
        return call


class _Healer:
    """Goes through the messages once, writing the healed ones."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._out: list[dict[str, Any]] = []
        self._ids: dict[str, int] = {}  # those that are taken, and how far each was counted on
        self._pending = _Pending()
        # Calls closed without a result: where theirs would stand, by the id it would bear.
        self._unanswered: dict[str, dict[str, Any]] = {}
        self.healed: dict[str, None] = {}

    def take(self, index: int, message: dict[str, Any]) -> None:
        role = message.get("role")
        if role == "tool":
            self._take_result(index, message)
            return
        self.close_turn()
        if role == "assistant" and message.get("tool_calls") is not None:
            message = self._with_sound_calls(index, message)
        self._out.append(self._with_content(message))

    def close_turn(self) -> None:
        """Answer the calls that no result came for, before anything else is said."""
        for call in self._pending.clear():
            self._note("missing_result")
            result = {"role": "tool", "tool_call_id": call.result_id, "content": NO_RESULT}
            self._unanswered[call.original_id] = result
            self._out.append(result)

    def finish(self) -> list[dict[str, Any]]:
        return self._out

    # Results.

    def _take_result(self, index: int, message: dict[str, Any]) -> None:
        told = message.get("tool_call_id")
        call = self._take_pending(told)
        if call is not None:
            if told != call.result_id:
                message = {**message, "tool_call_id": call.result_id}
            self._out.append(self._with_content(message))
            return
        stand_in = self._unanswered.pop(told, None) if isinstance(told, str) else None
        if stand_in is not None:
            self._note("late_result")
            content = message.get("content")
            stand_in["content"] = "" if content is None else content
            return
        self._adopt(index, message)

    def _take_pending(self, told: object) -> _Call | None:
        """The pending call that a result speaks of; without an id it is the first."""
        if not self._pending:
            return None
        if not told:
            self._note("call_id")
            return self._pending.take_first()
        return self._pending.take(told)

    def _adopt(self, index: int, message: dict[str, Any]) -> None:
        """Put a call before a result that has none."""
        self.close_turn()
        self._note("orphan_result")
        told = message.get("tool_call_id")
        identity = self._fresh_id(told if isinstance(told, str) and told else f"call_{index}")
        name = message.get("name")
        function = {
            "name": name if isinstance(name, str) and name else UNKNOWN_TOOL,
            "arguments": "{}",
        }
        call = {"id": identity, "type": "function", "function": function}
        self._out.append({"role": "assistant", "content": None, "tool_calls": [call]})
        self._out.append(self._with_content({**message, "tool_call_id": identity}))

    # Calls.

    def _with_sound_calls(self, index: int, message: dict[str, Any]) -> dict[str, Any]:
        calls: Sequence[Any] = message["tool_calls"]
        if not calls:
            self._note("empty_tool_calls")
            return {key: value for key, value in message.items() if key != "tool_calls"}
        place = child(child(self._place, index), "tool_calls")
        sound = [
            self._sound_call(call, index, at, child(place, at)) for at, call in enumerate(calls)
        ]
        if all(new is old for new, old in zip(sound, calls, strict=True)):
            return message
        return {**message, "tool_calls": sound}

    def _sound_call(self, call: Any, index: int, at: int, place: str) -> Any:
        if not isinstance(call, dict):
            raise InvalidRequest("a tool call must be an object", param=place)
        changes: dict[str, Any] = {}
        told = call.get("id")
        identity = self._identity(told, f"call_{index}_{at}")
        if identity != told:
            changes["id"] = identity
        self._pending.add(told if isinstance(told, str) else "", identity)
        kind = call.get("type")
        if kind not in (None, "function"):
            return {**call, **changes} if changes else call  # a kind that only the provider knows
        if kind is None:
            self._note("call_type")
            changes["type"] = "function"
        function = self._sound_function(call.get("function"), f"{place}.function")
        if function is not call.get("function"):
            changes["function"] = function
        return {**call, **changes} if changes else call

    def _identity(self, told: Any, otherwise: str) -> str:
        if not isinstance(told, str) or not told:
            self._note("call_id")
            return self._fresh_id(otherwise)
        if told in self._ids:
            self._note("duplicate_id")
        return self._fresh_id(told)

    def _fresh_id(self, wanted: str) -> str:
        identity, number = wanted, self._ids.get(wanted, 1)
        while identity in self._ids:
            number += 1
            identity = f"{wanted}_{number}"
        self._ids[wanted] = number
        self._ids.setdefault(identity, 1)
        return identity

    def _sound_function(self, function: Any, place: str) -> dict[str, Any]:
        if not isinstance(function, dict):
            raise InvalidRequest("a tool call's function must be an object", param=place)
        name = function.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidRequest("a tool call needs a name", param=f"{place}.name")
        told = function.get("arguments")
        if isinstance(told, str) and _is_object(told):
            return function
        arguments = _sound_arguments(told, f"{place}.arguments")
        self._note("arguments")
        return {**function, "arguments": arguments}

    # Both.

    def _with_content(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("content") is not None or message.get("tool_calls"):
            return message
        if message.get("audio") or message.get("refusal"):
            return message  # an answer of another kind, which stands in the content's place
        self._note("null_content")
        return {**message, "content": ""}

    def _note(self, name: str) -> None:
        self.healed[name] = None


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def _sound_arguments(told: Any, place: str) -> str:
    """Arguments as the text of one JSON object."""
    if told is None or (isinstance(told, str) and not told.strip()):
        return "{}"
    if isinstance(told, dict):
        return to_json(told)
    if not isinstance(told, str):
        raise InvalidRequest("a tool call's arguments must be one JSON object", param=place)
    parsed = parse_json(told, outer_closer=True)
    if not parsed.fault and isinstance(parsed.value, str):
        parsed = parse_json(parsed.value)
    if parsed.fault:
        raise InvalidRequest(
            f"a tool call's arguments cannot be read: {parsed.fault[:300]}", param=place
        )
    if parsed.value is None:
        return "{}"
    if not isinstance(parsed.value, dict):
        raise InvalidRequest("a tool call's arguments must be one JSON object", param=place)
    return parsed.text
