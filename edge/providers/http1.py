"""The receiving half of HTTP/1.1: bytes of a connection in, one answer after the other out.

A feed/finish machine around llhttp. It knows no socket and no clock:

    expect(method)      a request is about to be sent; forget the answer before
    feed(data)          bytes that were read
    finish(clean)       the peer has closed (clean), or the connection broke
    take()              body bytes that were decoded since the last call

After each step ``head_done``, ``complete`` and ``fault`` say how far the answer has come. Body
bytes that came before a fault are still handed out. A fault is final: the connection is then of no
use.

Memory is bounded by the input of one ``feed`` and ``max_head_bytes``: a head that is not complete
within so many bytes (informational answers before it included) is a fault, and so are trailers or
chunk extensions that go on for longer than that without a body byte.
"""

from typing import Final

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_NOBODY: Final = HttpResponseParser(object())


class AnswerParser:
    """Decodes the answers of one connection.

    Attributes:
        begun: whether a byte of the expected answer came.
        head_done: whether ``status`` and ``headers`` are there, those of the final answer (1xx are
            skipped).
        complete: whether the answer has ended, soundly.
        keep_alive: after the end: whether the connection may carry another request.
        fault: what is wrong with the answer, as the end of a sentence about the provider, or None.
        headers: in the order they came, names in lower case, values without surrounding blanks.
    """

    __slots__ = (
        "_informational",
        "_is_head_request",
        "_llhttp",
        "_max_head_bytes",
        "_parts",
        "_room",
        "begun",
        "complete",
        "fault",
        "head_done",
        "headers",
        "keep_alive",
        "on_body",
        "status",
    )

    def __init__(self, max_head_bytes: int) -> None:
        self._max_head_bytes = max_head_bytes
        self._parts: list[bytes] = []
        # llhttp calls this for each piece of a body: a list's own append is the fastest there is.
        self.on_body = self._parts.append
        self._llhttp = HttpResponseParser(self)
        self.expect("GET")

    def expect(self, method: str) -> None:
        """Get ready for the answer to a request."""
        self._is_head_request = method == "HEAD"
        self._informational = False
        self._room = self._max_head_bytes
        self._parts.clear()
        self.begun = False
        self.head_done = False
        self.complete = False
        self.keep_alive = False
        self.fault: str | None = None
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> None:
        """Take in what one read brought; not empty."""
        self.begun = True
        if self.head_done:
            self._parse(data)
            self._bound_framing(data)
        else:
            self._feed_head(data)

    def finish(self, *, clean: bool) -> None:
        """The peer sends no more; ``clean`` unless the connection was reset."""
        self.keep_alive = False
        if self.complete or self.fault is not None:
            return
        if not self.head_done:
            self.fault = "closed the connection before the head of its answer was complete"
        elif clean and self._ends_with_the_connection():
            self.complete = True
        else:
            self.fault = "closed the connection before the end of its answer"

    def decode(self, data: bytes) -> bytes:
        """The body bytes of what one read brought behind the head: ``feed`` and ``take`` in one."""
        self._parse(data)
        self._bound_framing(data)
        return self.take()

    def take(self) -> bytes:
        """The body bytes that are there, as one; empty if none are."""
        parts = self._parts
        if not parts:
            return b""
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        return data

    @property
    def pending(self) -> bool:
        """Whether :meth:`take` has something to give."""
        return bool(self._parts)

    @property
    def is_under_way(self) -> bool:
        """Whether more of the answer has to be read before there is anything to take or to tell."""
        return not (self._parts or self.complete or self.fault)

    def close(self) -> None:
        """Let go of llhttp, which refers back to this object."""
        self._llhttp = _NOBODY

    def _feed_head(self, data: bytes) -> None:
        room = self._room
        self._room = room - len(data)
        if len(data) <= room:
            self._parse(data)
            return
        self._parse(data[:room])
        if self.head_done:
            self._parse(data[room:])
        elif self.fault is None:
            self.fault = f"sent a head of more than {self._max_head_bytes} bytes"

    def _bound_framing(self, data: bytes) -> None:
        if self._parts:
            self._room = self._max_head_bytes
            return
        self._room -= len(data)
        if self._room < 0 and not self.complete and self.fault is None:
            self.fault = f"sent more than {self._max_head_bytes} bytes of framing and no body"

    def _parse(self, data: bytes) -> None:
        if self.fault is not None:
            return
        try:
            self._llhttp.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            # What follows a complete answer was not asked for: it only spoils the connection.
            self.keep_alive = False
            if not self.complete and self.fault is None:
                self.fault = f"sent an answer that is not HTTP/1.1: {error}"
        if self._is_head_request:
            self._parts.clear()

    def _ends_with_the_connection(self) -> bool:
        """Whether nothing frames the body, so that closing is its end (RFC 9112, 6.3, case 8)."""
        return not any(
            name in (b"content-length", b"transfer-encoding") for name, _ in self.headers
        )

    # What llhttp calls. An exception in here stops it; see _parse.

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        if self.complete:
            raise ValueError("data after the end of the answer")
        self._informational = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field of a head, or of the trailers."""
        if self.head_done:
            return  # a trailer field: nothing we carry is allowed to be one
        name = name.lower()
        if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
            self.fault = "used a transfer encoding that was not asked for"
        self.headers.append((name, value.strip()))

    def on_headers_complete(self) -> None:
        """The blank line after a head."""
        parser = self._llhttp
        status = parser.get_status_code()
        if status < 100 or status == 101 or parser.get_http_version() not in ("1.1", "1.0"):
            self.fault = f"sent an answer that is not HTTP/1.1 (status {status})"
        elif status < 200:
            self._informational = True
            self.headers.clear()
        elif self.fault is None:
            self.status = status
            self.head_done = True
            self._room = self._max_head_bytes
            # llhttp does not know of HEAD and waits for a body: complete, but not to be reused.
            self.complete = self._is_head_request

    def on_message_complete(self) -> None:
        """The end of an answer that llhttp knows the framing of."""
        if self._informational or not self.head_done:
            return
        self.complete = True
        self.keep_alive = self._llhttp.should_keep_alive()
