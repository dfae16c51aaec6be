"""Puts native ``tool_calls`` deltas back together, whatever shape the server gives them.

Servers disagree about nearly every field: the index may be missing, constant or a position within
the event; the id may come once, always, late, empty or never; the name may be repeated, cut or
late; the arguments may be fragments, an object, all so far, or everything once more at the end.
The rules that tell these apart (formats.md section 16 lists reports of each):

- an id not seen before starts a call; a known id goes to its call, whatever the index says;
- without an id the index decides, and without an index the latest call takes the fragment;
- a new name behind complete arguments, or a second offered name, starts a call;
- empty and null never overwrite anything;
- fragments are only judged at the end: joined if that reads as JSON, else as resent wholes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge.core.growing_json import GrowingJson, is_json
from edge.core.stream_events import ToolCallDelta
from edge.errors import ProviderProtocolError
from edge.wire.strict_json import encode

MAX_CALLS = 1024
"""Calls of one choice; each costs memory before it has said a word."""

MAX_NAME_CHARS = 4096
"""A name that comes in pieces is looked up at each; it may be so much longer than any offered."""


@dataclass(slots=True)
class _Call:
    """One call while its fragments come in."""

    id: str = ""
    name: str = ""
    arguments: GrowingJson = field(default_factory=GrowingJson)


class NativeCalls:
    """Assembles the native calls of one choice: ``feed`` each delta's list, then ``finish``.

    Attributes:
        held_chars: characters of names and arguments so far.

    Raises:
        ProviderProtocolError: out of ``feed``, where there are more than ``MAX_CALLS``, or a name
            has no end.
    """

    def __init__(self, offered: Iterable[str], choice: int = 0) -> None:
        self._offered = frozenset(offered)
        self._choice = choice
        self._longest_name = MAX_NAME_CHARS + max(map(len, self._offered), default=0)
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_index: dict[int, _Call] = {}
        self.held_chars = 0

    def feed(self, parts: object) -> None:
        """Take one delta's ``tool_calls`` (a list of fragments; anything else is ignored)."""
        if not isinstance(parts, list):
            return
        before = len(self._calls)
        for position, part in enumerate(parts):
            if isinstance(part, dict):
                # A second entry of one event without id and index is a call of its own if named.
                self._take(part, apart=position > 0 and len(self._calls) > before)

    def feed_legacy(self, part: object) -> None:
        """Take a ``function_call`` delta, the form before ``tool_calls``."""
        if isinstance(part, dict):
            self._take({"index": 0, "function": part}, apart=False)

    def finish(self) -> list[ToolCallDelta]:
        """The calls in the order they began; arguments joined, names cleaned of decoration."""
        return [
            ToolCallDelta(
                name=self._clean(call.name),
                arguments=_join(call.arguments.pieces),
                id=call.id,
                choice=self._choice,
            )
            for call in self._calls
        ]

    def _take(self, part: Mapping[str, Any], *, apart: bool) -> None:
        function = part.get("function")
        if not isinstance(function, dict):
            function = part  # some servers leave the wrapper out
        call_id = _text(part.get("id"))
        name = _text(function.get("name"))
        arguments = _arguments(function)
        index = part.get("index")
        index = index if type(index) is int else None
        call = self._find(call_id, name, arguments, index, apart=apart)
        if call_id and not call.id:
            call.id = call_id
            self._by_id[call_id] = call
        if index is not None:
            self._by_index[index] = call
        if name != call.name:
            self._name(call, name)
            self.held_chars += len(name)
        if arguments:
            call.arguments.feed(arguments)
            self.held_chars += len(arguments)

    def _find(
        self, call_id: str, name: str, arguments: str, index: int | None, *, apart: bool
    ) -> _Call:
        if call_id:
            known = self._by_id.get(call_id)
            if known is not None:
                return known
            at_index = self._by_index.get(index) if index is not None else self._latest()
            if at_index is not None and not at_index.id and not self._begins(at_index, name):
                return at_index  # the id came late
            return self._new()
        if apart and name and index is None:
            return self._new()
        call = self._by_index.get(index) if index is not None else self._latest()
        if call is None and index is not None and not name:
            call = self._latest()  # a tail under another index than its head
            if call is not None and call.arguments.is_whole() and arguments.strip():
                call = None
        if call is None or self._begins(call, name, arguments):
            return self._new()
        return call

    def _begins(self, call: _Call, name: str, arguments: str = "{") -> bool:
        """Whether a fragment with this name, seen at ``call``, is the head of another call."""
        if not name or not call.name:
            return False
        if name != call.name and name in self._offered and call.name in self._offered:
            return True
        so_far = call.arguments
        if not arguments.strip() or not so_far.has_text:
            return False
        same = name == call.name and so_far.is_same(arguments)
        return not same and so_far.is_whole()

    def _name(self, call: _Call, name: str) -> None:
        if not name:
            return
        if not call.name or name.startswith(call.name):
            call.name = name
        elif not call.arguments.has_text and call.name not in self._offered:
            call.name += name  # a name cut over deltas
            if len(call.name) > self._longest_name:
                raise ProviderProtocolError("the name of a tool call has no end")

    def _new(self) -> _Call:
        if len(self._calls) >= MAX_CALLS:
            raise ProviderProtocolError(f"the answer has more than {MAX_CALLS} tool calls")
        call = _Call()
        self._calls.append(call)
        return call

    def _latest(self) -> _Call | None:
        return self._calls[-1] if self._calls else None

    def _clean(self, name: str) -> str:
        """Take control tokens off the end and ``functions.`` off the front, if a tool remains."""
        if name in self._offered:
            return name
        bare = name.split("<|", 1)[0].strip()
        for candidate in (bare, bare.removeprefix("functions.")):
            if candidate in self._offered:
                return candidate
        return name


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _arguments(function: Mapping[str, Any]) -> str:
    """The fragment as text; an object given as such is written out."""
    value = function.get("arguments")
    if value is None and isinstance(function.get("parameters"), dict | str):
        value = function["parameters"]
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return encode(value).decode()


def _join(fragments: list[str]) -> str:
    """The arguments text: joined if that is JSON, else read as resent wholes, else as joined."""
    joined = "".join(fragments)
    if not joined.strip():
        return "{}"
    if len(fragments) == 1 or is_json(joined):
        return joined
    resent = _resent(fragments)
    return resent if resent != joined and is_json(resent) else joined


def _resent(fragments: list[str]) -> str:
    """Fold where a fragment that repeats all so far, or a whole object behind one, replaces it."""
    so_far = ""
    for part in fragments:
        if not so_far.strip():
            so_far = part
        elif not part.strip():
            continue
        elif part.startswith(so_far) or (part.lstrip().startswith("{") and is_json(part)):
            so_far = part
        else:
            so_far += part
    return so_far
