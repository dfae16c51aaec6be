"""Streams that pass through, cut into whole events for those who follow them.

A read may end anywhere. What it completes is handed on; an unfinished event waits in one
buffer, where it is not looked at again. So the work is linear in the bytes, and a read that ends
where an event ends, as nearly all do, is handed on as it is. An event is over at a blank line, be
it of line feeds or of CRLF; one longer than ``MAX_EVENT`` is left out.
"""

from edge.core.mirror_frames import Passed

MAX_EVENT = 1024 * 1024

_ENDS = (b"\n\n", b"\n\r\n")
_SEAM = 2
"""Bytes of a blank line that may have come before the read that ends it."""


class EventCutter:
    """Bytes in any cut, to pieces of whole events."""

    __slots__ = ("_skipping", "_tail")

    def __init__(self) -> None:
        self._tail = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Passed | None:
        """The events that ``data`` completes, if any."""
        tail = self._tail
        if not tail and not self._skipping and data.endswith(b"\n\n"):
            return Passed(data)
        before = bytes(tail[-_SEAM:])
        end = _last_end(before + data) - len(before)
        if end <= 0:
            self._wait(data)
            return None
        events = bytes(tail) + data[:end]
        if self._skipping:
            self._skipping = False
            events = events[_first_end(events) :]
        tail.clear()
        self._wait(data[end:])
        return Passed(events) if events else None

    def finish(self) -> Passed | None:
        """What came behind the last blank line, which the stream's end completes."""
        return self.feed(b"\n\n") if self._tail else None

    def _wait(self, data: bytes) -> None:
        self._tail += data
        if len(self._tail) > MAX_EVENT:
            del self._tail[:-_SEAM]
            self._skipping = True


def _last_end(data: bytes) -> int:
    """Where the last event ends; 0 where none does."""
    return max(data.rfind(end) + len(end) if end in data else 0 for end in _ENDS)


def _first_end(data: bytes) -> int:
    return min(data.find(end) + len(end) for end in _ENDS if end in data)
