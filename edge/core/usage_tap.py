r"""Reads usage off an answer that passes by, and takes out the one event nobody but us asked for.

Both taps are feed/finish machines: ``feed`` returns what is to be passed on now, ``finish`` the
rest. A :class:`StreamTap` sees an event stream, a :class:`BodyTap` a JSON body; the latter passes
everything on as it is.

Theory of operation of the stream's tap. Nearly every read holds whole events, none of which speaks
of usage: that is found out by two searches at C speed, and the read is passed on as the very
object that came. Only a read with ``"usage": {`` in it, or one that ends inside an event, is looked
at more closely. No event is decoded but the ones that report usage.

With ``cut`` the tap takes out the *usage event*: the one that a server adds on
``stream_options.include_usage``, with ``usage`` and no choices. An event that a read has left
unfinished is held back only while it may still become that one, which it cannot any more once its
list of choices has begun with a choice; and nothing that a client could act on is ever held, since
an event counts from its blank line on. What comes out is the same for every cut of the input.

An event ends at a blank line, lines at LF or CRLF; a stream that ends its lines in CR alone (nobody
does) is passed on and not read. :mod:`edge.wire.sse` decodes every event it is given, so it is
of use here only for the few that matter, and those are one line each.
"""

import re
from collections import deque
from typing import Any, Protocol

import orjson

MAX_HELD = 16 * 1024
"""A longer event is not the usage event. Real ones have some 300 bytes."""

MAX_JSON = 256 * 1024
"""A body up to this size is read whole; of a longer one only its end."""

_DONE = (b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n")
_BLANK_LINES = (b"\n\n", b"\n\r\n")

_KEY = b'"usage"'
_USAGE = re.compile(rb'"usage"\s{0,8}:\s{0,8}\{')
_CHOICE = re.compile(rb'"choices"\s{0,8}:\s{0,8}\[\s{0,8}[^\]\s]')
"""A choice: what has one is no usage event. Within a string the quotes would be escaped."""
_CHOICE_SPAN = 64
"""More than a match of ``_CHOICE`` can be long."""

_OPENINGS = (b"data: {", b"data:{")
_FINISH = re.compile(rb'"finish_reason"\s*:\s*"[^"]|^data: ?\[DONE\]', re.MULTILINE)
_LAST_EVENTS = 4
"""How far from the end of a stream its finish reason is looked for: usage comes behind it."""

_EVENT_END = re.compile(rb"\n(?:\r?\n)+")
_CR = 13
_LF = 10
_LINE_END = (_CR, _LF)
_LINE_ENDS = re.compile(rb"(?:\r?\n)*")


class Tap(Protocol):
    """What reads along.

    Attributes:
        usage: the usage object, once one has passed.
        done: the client has everything: what follows is of no use to it.
    """

    usage: dict[str, Any] | None
    done: bool

    def feed(self, data: bytes) -> bytes:
        """What of the bytes so far is to be passed on now."""
        ...

    def finish(self) -> bytes:
        """The input has ended; the rest."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the answer itself says, as far as it can, that it has come to its end.

        Of a JSON body, that it is an object; it is known once ``finish`` was called.
        """
        ...

    @property
    def at_boundary(self) -> bool:
        """Whether an event may follow what has been passed on."""
        ...


class NoTap:
    """For bodies that nobody here can read."""

    usage: dict[str, Any] | None = None
    done = False
    complete = True
    at_boundary = False

    def feed(self, data: bytes) -> bytes:
        """See :class:`Tap`."""
        return data

    def finish(self) -> bytes:
        """See :class:`Tap`."""
        return b""


class StreamTap:
    """The tap of an event stream; with ``cut`` it takes the usage event out."""

    __slots__ = ("_cut", "_open", "_recent", "_sent", "done", "usage")

    def __init__(self, *, cut: bool) -> None:
        self._cut = cut
        self._open = bytearray()  # the unfinished event, or its end if it is a long one
        self._sent = 0  # how much of it has been passed on
        self._recent: deque[bytes] = deque(maxlen=_LAST_EVENTS)  # each at least one whole event
        self.usage: dict[str, Any] | None = None
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """See :class:`Tap`."""
        if not self._open and data.endswith(_BLANK_LINES):
            return self._whole(data, 0)
        return self._with_unfinished(data)

    def finish(self) -> bytes:
        """See :class:`Tap`; usage is read from an event without its blank line, too.

        Clients pass over such an event, so a finish reason in it is none.
        """
        rest = bytes(self._open)
        self._open.clear()
        if not rest:
            return b""
        whole_events = self._recent.copy()
        passed = self._whole(rest, self._sent)
        if rest.rpartition(b"data:")[2].strip() != b"[DONE]":
            self._recent = whole_events
        return passed

    @property
    def complete(self) -> bool:
        """See :class:`Tap`: a finish reason or ``[DONE]`` was in one of the last few events."""
        if self.done:
            return True
        tail = b"".join(self._recent)
        ends = [match.end() for match in _EVENT_END.finditer(tail) if match.end() < len(tail)]
        start = ends[-_LAST_EVENTS] if len(ends) >= _LAST_EVENTS else 0
        return _FINISH.search(tail, start) is not None

    @property
    def at_boundary(self) -> bool:
        """See :class:`Tap`."""
        return self._sent == 0

    def _whole(self, events: bytes, sent: int) -> bytes:
        """Take in whole events, of which ``sent`` bytes have been passed on."""
        if events[0] in _LINE_END and not events.strip(b"\r\n"):
            return events[sent:]  # more blank lines, which are no event
        self._recent.append(events)
        self.done = events.endswith(_DONE) and _begins_line(events, events.rfind(b"data:"))
        if _KEY in events and _USAGE.search(events):
            return self._reporting(events, sent)
        return events[sent:] if sent else events

    def _with_unfinished(self, data: bytes) -> bytes:
        unfinished = self._open
        searched = max(0, len(unfinished) - 2)
        unfinished += data
        end = _end_of_events(unfinished, searched)
        if not end:
            return self._may_leave(searched)
        events = bytes(unfinished[:end])
        del unfinished[:end]
        sent, self._sent = self._sent, 0
        passed = self._whole(events, sent)
        return passed + self._may_leave(0) if unfinished else passed

    def _may_leave(self, searched: int) -> bytes:
        """What of the unfinished event leaves now: all that is new, or nothing yet."""
        unfinished = self._open
        blank = b""
        if not self._sent:  # more blank lines behind the last event belong to no event
            blank = bytes(unfinished[: _line_ends(unfinished, 0)])
            del unfinished[: len(blank)]
            if self._cut and _may_be_usage(unfinished, searched):
                return blank
        new = bytes(unfinished[self._sent :])
        if len(unfinished) > MAX_HELD:
            del unfinished[:-2]  # as much as the search for its end needs
        self._sent = len(unfinished)
        return blank + new

    def _reporting(self, events: bytes, sent: int) -> bytes:
        """Read the usage, and take out what is to be taken out."""
        kept: list[bytes] = []
        start = 0
        for event, begin, end in _reporting_events(events):
            chunk = _decoded(event)
            if chunk is None or not isinstance(chunk.get("usage"), dict):
                continue
            self.usage = chunk["usage"]
            if self._cut and begin >= sent and chunk.get("choices") == []:
                kept.append(events[max(start, sent) : begin])
                start = end
        rest = events[max(start, sent) :]
        return b"".join((*kept, rest)) if kept else rest


class BodyTap:
    """The tap of a JSON body."""

    __slots__ = ("_parts", "_size", "complete", "usage")

    done = False
    at_boundary = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.complete = False
        self.usage: dict[str, Any] | None = None

    def feed(self, data: bytes) -> bytes:
        """See :class:`Tap`."""
        self._parts.append(data)
        self._size += len(data)
        if self._size > 2 * MAX_JSON:
            self._parts = [b"".join(self._parts)[-MAX_JSON:]]
            self._size = MAX_JSON + 1  # it is no whole body any more
        return data

    def finish(self) -> bytes:
        """See :class:`Tap`."""
        body = b"".join(self._parts)
        self._parts.clear()
        # Where nothing frames a body, this is all that tells a whole one from one that was cut.
        self.complete = body.rstrip().endswith((b"}", b"]"))
        if self._size > MAX_JSON:
            self.usage = _last_usage(body[-MAX_JSON:])
        elif tree := _decoded(body):
            usage = tree.get("usage")
            self.usage = usage if isinstance(usage, dict) else None
        else:
            self.complete = False
        return b""


def tap_for(content_type: bytes, *, encoded: bool, cut: bool) -> Tap:
    """The tap for an answer.

    Args:
        content_type: the answer's, in any case.
        encoded: whether the body is compressed.
        cut: whether usage was asked for that the client does not want.
    """
    media = content_type.partition(b";")[0].strip().lower()
    if encoded:
        return NoTap()
    if media == b"text/event-stream":
        return StreamTap(cut=cut)
    if media == b"application/json" or media.endswith(b"+json"):
        return BodyTap()
    return NoTap()


def _begins_line(events: bytes, at: int) -> bool:
    return at == 0 or events[at - 1] == _LF


def _end_of_events(text: bytearray, start: int) -> int:
    """Where the last blank line ends; 0 without one. Blank lines before ``start`` are not seen."""
    return max(_blank_line_before(text, start, len(text)))


def _may_be_usage(unfinished: bytearray, searched: int) -> bool:
    """Whether the beginning of an event can become the usage event.

    It must not say no to what :func:`_reporting_events` would find in the whole event.
    """
    if len(unfinished) < len(_OPENINGS[0]):
        head = bytes(unfinished)
        begins = any(line.startswith(head) for line in _OPENINGS)
        return begins or head == b"\r" or head.startswith(_OPENINGS)
    if len(unfinished) > MAX_HELD or not unfinished.startswith(_OPENINGS):
        return False
    line_end = unfinished.find(b"\n", searched)
    if line_end >= 0 and bytes(unfinished[line_end + 1 : line_end + 3]) not in (b"", b"\r"):
        return False
    return not _CHOICE.search(unfinished, max(0, searched - _CHOICE_SPAN))


def _line_ends(text: bytes | bytearray, start: int) -> int:
    """Where the line ends at ``start`` are over."""
    match = _LINE_ENDS.match(text, start)
    return match.end() if match else start


def _reporting_events(events: bytes) -> list[tuple[bytes, int, int]]:
    """The one-line events that may report usage: their JSON, and where they begin and end.

    One with choices reports usage, too; of those (some servers count along in every chunk) only
    the last is given.
    """
    found: list[tuple[bytes, int, int]] = []
    with_choices: tuple[bytes, int, int] | None = None
    end = 0
    for match in _USAGE.finditer(events):
        at = match.start()
        if at < end:
            continue  # in the event before
        begin = _line_ends(events, max(end, *_blank_line_before(events, end, at)))
        blank = _EVENT_END.search(events, match.end())
        # Blank lines beyond the one that ends it are not the event's.
        end = blank.start() + 2 + (events[blank.start() + 1] == _CR) if blank else len(events)
        line = events[begin:end].rstrip(b"\r\n")
        if line.startswith(_OPENINGS) and b"\n" not in line and end - begin <= MAX_HELD:
            if _CHOICE.search(line):
                with_choices = (line[5:], begin, end)
            else:
                found.append((line[5:], begin, end))
    if with_choices is not None:
        found.append(with_choices)
        found.sort(key=lambda event: event[1])
    return found


def _blank_line_before(events: bytes | bytearray, start: int, stop: int) -> tuple[int, int]:
    """Where the last blank lines between the two places end, of either kind; 0 without one."""
    plain = events.rfind(b"\n\n", start, stop)
    crlf = events.rfind(b"\n\r\n", start, stop)
    return plain + 2 if plain >= 0 else 0, crlf + 3 if crlf >= 0 else 0


def _decoded(text: bytes) -> dict[str, Any] | None:
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return tree if isinstance(tree, dict) else None


def _last_usage(text: bytes) -> dict[str, Any] | None:
    """The last usage object in a text that is not whole JSON."""
    matches = list(_USAGE.finditer(text))
    if not matches:
        return None
    begin = matches[-1].end() - 1
    depth = 0
    for brace in re.finditer(rb"[{}]", text[begin : begin + MAX_HELD]):
        depth += 1 if brace.group() == b"{" else -1
        if not depth:
            return _decoded(text[begin : begin + brace.end()])
    return None
