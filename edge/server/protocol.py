"""Bytes of one client connection in, HTTP/1.1 requests out.

The grammar is llhttp's (``httptools``), in its strict mode: it refuses what request smuggling
lives on (two lengths, a length beside chunks, bare line feeds, folded headers). This module adds
what a server must know beyond the grammar:

* a head may not be longer than ``max_head_bytes`` (431), a body not longer than
  ``max_body_bytes`` (413, told while it arrives, not after);
* HTTP/2, asked for by its preface or by a version, is refused with 505; ``Upgrade: h2c`` is
  ignored, as RFC 9110 section 7.8 allows: the request is answered over HTTP/1.1, body and all;
* a transfer coding other than ``chunked`` alone is refused with 501;
* ``Upgrade: websocket`` ends HTTP on this connection: the sink gets the head, written anew, and
  every byte behind it.

A request is handed over as soon as its head is complete; its body follows into the same object.
Nothing here waits, except whoever awaits :meth:`IncomingRequest.body`.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import httptools
import trio

from edge.errors import EdgeError, GatewayFault, InvalidRequest, RequestTimeout, RequestTooLarge

HeaderList = list[tuple[bytes, bytes]]

_NOBODYS: Final = httptools.HttpRequestParser(object())

_H2_PREFACE = b"PRI * HTTP/2.0"
_HEADER_OVERHEAD = 32
"""What each header counts for beside its bytes, so that many tiny ones are bounded too."""

_REQUEST_LINE_REST = 64
"""Method, version and spaces, which the exact count of a complete head leaves out."""


class ProtocolFault(InvalidRequest):
    """The client broke HTTP, or asks for what is not served; it ends the connection."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class IncomingRequest:
    """One request while it arrives.

    Attributes:
        target: the request target as sent, query included.
        headers: in order, names in lower case.
        fields: the same as a mapping; of a repeated header the last one.
        keep_alive: whether the client can use the connection again.
        complete: whether the whole body has arrived.
    """

    __slots__ = (
        "_fault",
        "_limit",
        "_parts",
        "_released",
        "_settled",
        "_size",
        "complete",
        "fields",
        "headers",
        "http_version",
        "keep_alive",
        "method",
        "target",
    )

    def __init__(
        self,
        method: str,
        target: bytes,
        http_version: str,
        headers: HeaderList,
        *,
        keep_alive: bool,
        max_body_bytes: int,
    ) -> None:
        self.method = method
        self.target = target
        self.http_version = http_version
        self.headers = headers
        self.fields = dict(headers)
        self.keep_alive = keep_alive
        self.complete = False
        self._parts: list[bytes] = []
        self._size = 0
        self._limit = max_body_bytes
        self._settled: trio.Event | None = None
        self._fault: EdgeError | None = None
        self._released = False
        if int(self.fields.get(b"content-length", b"0")) > max_body_bytes:
            self._overflow()

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for ``100 Continue`` before it sends the body."""
        return self.fields.get(b"expect", b"").lower() == b"100-continue" and not self.complete

    async def body(self, timeout_s: float) -> bytes:
        """The whole body.

        Args:
            timeout_s: how long the rest of it may take to arrive.

        Raises:
            RequestTooLarge: it is longer than allowed; raised as soon as that is known.
            RequestTimeout: the client did not finish sending it in time.
            GatewayFault: its answer has begun, and it has been let go.
        """
        if not self.complete and self._is_wanted():
            await self._arrival(timeout_s)
        if self._fault is not None:
            raise self._fault
        if self._released:
            raise GatewayFault("A request's body is to be read before its answer begins.")
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    async def _arrival(self, timeout_s: float) -> None:
        if self._settled is None:
            self._settled = trio.Event()
        with trio.move_on_after(timeout_s) as deadline:
            await self._settled.wait()
        if deadline.cancelled_caught:
            raise RequestTimeout("The request body did not arrive in time.")

    def receive(self, part: bytes) -> None:
        """Take a piece of the body."""
        if self._is_wanted():
            self._size += len(part)
            if self._size > self._limit:
                self._overflow()
            else:
                self._parts.append(part)

    def end(self) -> None:
        """The body is complete."""
        self.complete = True
        self._settle()

    def fail(self, error: EdgeError) -> None:
        """The body will never be whole; whoever wants it gets ``error``."""
        self._parts.clear()
        self._fault = error
        self._settle()

    def release(self) -> None:
        """Let the body go: nobody will want it any more, and an answer may take minutes."""
        if self._is_wanted():
            self._released = True
            self._parts.clear()
            self._settle()

    def _is_wanted(self) -> bool:
        return self._fault is None and not self._released

    def _overflow(self) -> None:
        limit = self._limit
        self.fail(
            RequestTooLarge(f"The request body is longer than the {limit} bytes accepted here.")
        )

    def _settle(self) -> None:
        if self._settled is not None:
            self._settled.set()


class RequestSink(Protocol):
    """Where the requests of a connection go."""

    def request_begun(self, request: IncomingRequest) -> None:
        """A head is complete."""

    def websocket_asked(self, opening: bytes) -> None:
        """No HTTP from here on: ``opening`` is a WebSocket handshake and what came behind it."""


class RequestParser:
    """A feed machine: the same requests for every cut of the bytes."""

    def __init__(self, sink: RequestSink, *, max_head_bytes: int, max_body_bytes: int) -> None:
        self._sink = sink
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._fault: ProtocolFault | None = None
        self._request: IncomingRequest | None = None
        self._upgrade = False
        self._ended = 0
        self._begin_head()

    def _begin_head(self) -> None:
        self._begun = False
        self._in_head = True
        self._fed = 0
        self._head_size = 0
        self._target = b""
        self._headers: HeaderList = []

    @property
    def between_requests(self) -> bool:
        """Whether no byte of an unfinished request has arrived."""
        return not self._begun

    def close(self) -> None:
        """Let go of the sink and of llhttp, which know this parser; nothing may be fed any more."""
        self._parser = _NOBODYS
        self._fault = None
        del self._sink

    def feed(self, data: bytes) -> None:
        """Take what one read brought.

        Raises:
            ProtocolFault: at the first byte that is no HTTP; requests before it were handed over.
        """
        ended = self._ended
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            raise self._fault or self._refusal(error, data) from None
        if self._begun and self._in_head and self._ended == ended:
            self._fed += len(data)
            if self._fed > self._max_head_bytes + _REQUEST_LINE_REST:
                self._too_long()
        if self._fault is not None:
            raise self._fault

    def _refusal(self, error: Exception, data: bytes) -> ProtocolFault:
        if data.startswith(_H2_PREFACE) or "PRI" in str(error):
            return ProtocolFault(505, "HTTP/2 is not served here; use HTTP/1.1.")
        return ProtocolFault(400, f"This is no HTTP/1.1 request: {error}.")

    def _too_long(self) -> None:
        self._fault = ProtocolFault(431, "The request head is too long.")

    def _upgraded(self, rest: bytes) -> None:
        """Write the head anew, for whoever speaks what follows: llhttp stops at an upgrade."""
        fields = dict(self._headers)
        method = self._parser.get_method()
        if method == b"CONNECT":
            raise ProtocolFault(405, "This server is no proxy.")
        websocket = method == b"GET" and fields.get(b"upgrade", b"").lower() == b"websocket"
        headers = [pair for pair in self._headers if websocket or pair[0] != b"upgrade"]
        opening = _head(method, self._target, headers) + rest
        if websocket:
            self._sink.websocket_asked(opening)
            return
        self._upgrade = False
        self._parser = httptools.HttpRequestParser(self)
        self._begin_head()
        self.feed(opening)

    # What llhttp calls. An exception here would lose its way, so faults are kept and raised above.

    def on_message_begin(self) -> None:
        """The first byte of a request; empty lines before it do not count."""
        self._begun = True

    def on_url(self, part: bytes) -> None:
        """Take a piece of the target."""
        self._target += part
        self._head_size += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; those behind the body (trailers) are dropped."""
        if not self._in_head:
            return
        self._head_size += len(name) + len(value) + _HEADER_OVERHEAD
        if self._head_size > self._max_head_bytes:
            self._too_long()
            return
        self._headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Hand the request over."""
        parser = self._parser
        self._in_head = False
        self._upgrade = parser.should_upgrade()
        if self._upgrade or self._fault is not None:
            return
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._fault = ProtocolFault(505, "Only HTTP/1.1 and HTTP/1.0 are served here.")
            return
        if version == "1.1" and sum(name == b"host" for name, _ in self._headers) != 1:
            self._fault = ProtocolFault(400, "A request needs exactly one Host header.")
            return
        codings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            # llhttp looks at the last coding only; whoever stands before us may look at another.
            self._fault = ProtocolFault(501, "No transfer coding but chunked is served here.")
            return
        self._request = IncomingRequest(
            parser.get_method().decode("ascii"),
            self._target,
            version,
            self._headers,
            keep_alive=version == "1.1" and parser.should_keep_alive(),
            max_body_bytes=self._max_body_bytes,
        )
        self._sink.request_begun(self._request)

    def on_body(self, part: bytes) -> None:
        """Take a piece of the body."""
        if self._request is not None:
            self._request.receive(part)

    def on_message_complete(self) -> None:
        """The request is whole; the next byte begins another."""
        if self._upgrade or self._fault is not None:
            return
        if self._request is not None:
            self._request.end()
            self._request = None
        self._ended += 1
        self._begin_head()


def _head(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines = [b"%b: %b\r\n" % pair for pair in headers]
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, b"".join(lines))
