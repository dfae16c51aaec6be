"""A client's HTTP requests: any bytes, in any cut, are the same requests, or the same refusal.

Only a fault of the protocol is raised. No request has more than one length or more than one host,
and no body is longer than its bound.
"""

from collections.abc import Iterable, Sequence

from edge.errors import RequestTooLarge
from edge.server.protocol import IncomingRequest, ProtocolFault, RequestParser
from fuzz.draw import Draw, cut, finely

MAX_BYTES = 2000
WORDS = (
    b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"Host: a\r\n", b"Content-Length: ",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Upgrade: websocket\r\n",
    b"Connection: upgrade\r\n", b"Upgrade: h2c\r\n", b"0\r\n\r\n", b"\r\n\r\n", b"HTTP/1.0",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"CONNECT ", b"Expect: 100-continue\r\n",
)  # fmt: skip

MAX_HEAD, MAX_BODY = 400, 100
HOST = b"Host: a\r\n"


class Sink:
    """Keeps what the parser hands over."""

    def __init__(self) -> None:
        self.requests: list[IncomingRequest] = []
        self.websocket = b""

    def request_begun(self, request: IncomingRequest) -> None:
        """See RequestSink."""
        self.requests.append(request)

    def websocket_asked(self, opening: bytes) -> None:
        """See RequestSink."""
        self.websocket += opening


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    seed = draw.below(65536)
    stream = draw.rest()
    whole = read([stream] if stream else [])
    assert read(cut(stream, seed)) == whole
    assert read(finely(stream, seed)) == whole


def read(pieces: Sequence[bytes]) -> list[object]:
    """All that can be seen of a connection's bytes in these pieces."""
    sink = Sink()
    parser = RequestParser(sink, max_head_bytes=MAX_HEAD, max_body_bytes=MAX_BODY)
    seen: list[object] = []
    try:
        for place, piece in enumerate(pieces):
            if sink.websocket:
                sink.websocket += b"".join(pieces[place:])
                break
            parser.feed(piece)
    except ProtocolFault as fault:
        assert fault.status in (400, 405, 431, 501, 505)
        # Which of several faults is told depends on how far llhttp had come with this piece.
        seen.append("refused")
    for request in sink.requests:
        names = [name for name, _ in request.headers]
        assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
        assert names.count(b"host") == 1 or request.http_version == "1.0"
        assert sum(len(part) for part in request._parts) <= MAX_BODY
        assert isinstance(request._fault, RequestTooLarge | None)
        seen.append((request.method, request.target, request.http_version, request.keep_alive))
        seen.append((request.headers, request.complete, request.expects_continue))
        if request.complete:
            seen.append((request._fault is None, b"".join(request._parts)))
    seen.append(sink.websocket)
    return seen


def seeds() -> Iterable[bytes]:
    """Requests of every kind, alone and one behind the other."""
    get = b"GET /a?b=%20 HTTP/1.1\r\n" + HOST + b"X-One:  1 \r\nx-one: 2\r\n\r\n"
    post = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc"
    chunks = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    upgrade = b"Connection: upgrade\r\nUpgrade: "
    streams = (
        get,
        post + b"\r\n" + get,
        chunks + b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
        chunks + b"64\r\n" + b"x" * 100 + b"\r\n1\r\nx\r\n0\r\n\r\n",
        b"GET / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHo",
        post.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"h2c\r\n\r\n") + get,
        get.replace(b"\r\n\r\n", b"\r\n" + upgrade + b"WebSocket\r\n\r\n") + b"\x81\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
        post.replace(b"Content", b"Expect: 100-continue\r\nContent"),
        get + b"\x00\x00",
    )
    for number, stream in enumerate(streams):
        yield bytes((0, number)) + stream
