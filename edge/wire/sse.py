"""Server-sent events: bytes to payloads and back.

Theory of operation. An event is a block of lines that ends at a blank line; its payload is what
its ``data`` lines hold, joined by line feeds (WHATWG HTML, "Server-sent events"). Lines end at LF,
CR or CRLF and nowhere else: U+2028 and its kin are text.

Model servers send almost nothing but ``data: {...}`` and a blank line, many of them in one read.
So a read is cut into blocks by one ``bytes.split``, and a block of one ``data`` line is handed
out as a slice; only other blocks are looked at line by line. A read that is just one such event,
behind a whole one, is not even cut. Servers that end lines with CRLF
come the same way after one ``bytes.replace``. An unfinished line waits in one buffer that is joined
once, when its end comes, so the work is linear in the bytes whatever the cuts.

Two liberties are taken with the standard. An empty payload is not handed out, since it is used as
a heartbeat. And the field ``error`` counts as data: older llama.cpp servers send their error
objects in it.
"""

from edge.errors import ProviderProtocolError

HEARTBEAT = b": heartbeat\n\n"
"""A comment that keeps a waiting client's connection alive; clients ignore it."""

DONE = b"data: [DONE]\n\n"
"""The last event of a chat completion's stream."""

DONE_PAYLOAD = b"[DONE]"

_BOM = b"\xef\xbb\xbf"
_CR = 13
_LF = 10


def encode_event(data: bytes) -> bytes:
    """One event around ``data``, which must be free of line ends (as encoded JSON is)."""
    return b"data: %b\n\n" % data


class SseDecoder:
    """Bytes of an event stream in any cut, to the payloads of its events.

    Attributes:
        max_event_bytes: bound of one event's payload and of any one line.
        is_between: whether the last read ended with an event, and left nothing over; a read that
            is whole events and nothing else may then be left out.
    """

    def __init__(self, *, max_event_bytes: int = 8 * 1024 * 1024) -> None:
        self.max_event_bytes = max_event_bytes
        self._line = bytearray()  # an unfinished line
        self._data: list[bytes] = []  # data lines of an unfinished event
        self._data_bytes = 0
        self._after_cr = False  # a line feed that comes next belongs to that CR
        self._at_start = True
        self.is_between = False
        self._fault: ProviderProtocolError | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The payloads of the events that ``data`` completes.

        Raises:
            ProviderProtocolError: an event is longer than ``max_event_bytes``. Events before it
                are handed out first.
        """
        if self.is_between and self._is_one_line(data):
            return [data[6:-2]]
        self.is_between = False
        events = self._feed(data)
        self.is_between = not (
            self._line or self._data or self._after_cr or self._at_start or self._fault
        )
        return events

    def _is_one_line(self, data: bytes) -> bool:
        """Whether this is one whole event with one line, as nearly all are; not an empty one."""
        end = len(data) - 2
        return (
            8 < len(data) <= self.max_event_bytes
            and data.startswith(b"data: ")
            and data.find(b"\n") == end
            and data[-1] == _LF
            and b"\r" not in data
        )

    def _feed(self, data: bytes) -> list[bytes]:
        if self._fault is not None:
            raise self._fault
        if self._after_cr and data:
            self._after_cr = False
            if data[0] == _LF:
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data[-1] == _CR
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            self._hold(data)
            return []
        if self._line or self._at_start:
            data = self._with_held(data)
        return self._take(data)

    def finish(self) -> list[bytes]:
        """What the stream's end completes: a last event that came without its blank line.

        It may have been cut; the reader of its JSON is the judge of that.

        Raises:
            ProviderProtocolError: as ``feed``.
        """
        if self._fault is not None:
            raise self._fault
        return self._take(self._with_held(b"\n\n"))

    def _hold(self, data: bytes) -> None:
        self._line += data
        if len(self._line) > self.max_event_bytes + len(_BOM):
            raise self._too_long()

    def _with_held(self, data: bytes) -> bytes:
        if self._line:
            data = bytes(self._line) + data
            self._line.clear()
        if self._at_start:
            self._at_start = False
            data = data.removeprefix(_BOM)
        return data

    def _take(self, data: bytes) -> list[bytes]:
        blocks = data.split(b"\n\n")
        rest = blocks.pop()
        events: list[bytes] = []
        bound = self.max_event_bytes
        try:
            for block in blocks:
                if (
                    block.startswith(b"data: ")
                    and b"\n" not in block
                    and not self._data
                    and len(block) <= bound
                ):
                    if len(block) > 6:
                        events.append(block[6:])
                else:
                    self._take_lines(block, events)
                    self._dispatch(events)
            if rest:
                self._take_rest(rest, events)
        except ProviderProtocolError as fault:
            if not events:
                raise
            self._fault = fault
        return events

    def _take_rest(self, rest: bytes, events: list[bytes]) -> None:
        whole, line_end, unfinished = rest.rpartition(b"\n")
        if line_end:
            self._take_lines(whole, events)
        self._hold(unfinished)

    def _take_lines(self, lines: bytes, events: list[bytes]) -> None:
        for line in lines.split(b"\n"):
            if not line:
                self._dispatch(events)
                continue
            if len(line) > self.max_event_bytes:
                raise self._too_long()
            field, _, value = line.partition(b":")
            if field in (b"data", b"error"):
                self._add(value.removeprefix(b" "))

    def _add(self, value: bytes) -> None:
        self._data.append(value)
        self._data_bytes += len(value) + 1
        if self._data_bytes > self.max_event_bytes + 1:
            raise self._too_long()

    def _dispatch(self, events: list[bytes]) -> None:
        if not self._data:
            return
        payload = b"\n".join(self._data)
        self._data.clear()
        self._data_bytes = 0
        if payload:
            events.append(payload)

    def _too_long(self) -> ProviderProtocolError:
        self._fault = ProviderProtocolError(
            f"The provider sent an event of more than {self.max_event_bytes} bytes."
        )
        return self._fault
