"""A provider's HTTP answers: any bytes, in any cut, end in a sound answer or in a fault.

What came before a fault is handed out all the same, and nothing of a head that is longer than its
bound is kept. Answers that are written by the rules come out as they were put in.
"""

from collections.abc import Iterable, Sequence

from edge.providers.http1 import AnswerParser
from fuzz.draw import Draw, cut, finely

MAX_BYTES = 3000
WORDS = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"Content-Length: ", b"\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"0\r\n\r\n", b"1\r\nx\r\n",
    b"Upgrade: h2c\r\n", b"ffffffffffffffff", b";x=y", b" \t", b"\n", b"HTTP/1.0 ",
)  # fmt: skip

BOUNDS = (64, 300, 65536)
METHODS = ("POST", "GET", "HEAD")
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

Answer = tuple[int, list[tuple[bytes, bytes]], bytes, bool, bool, bool]


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    bound, method, clean = draw.pick(BOUNDS), draw.pick(METHODS), draw.flag()
    written, seed = draw.below(3), draw.below(65536)
    wire = draw.rest()
    if written:
        check_written(wire, seed, chunked=written == 1)
        return
    whole = read([wire] if wire else [], bound, method, clean=clean)
    _, headers, body, complete, _, is_sound = whole
    assert complete == is_sound
    assert len(body) <= len(wire)
    assert method != "HEAD" or not body
    assert sum(len(name) + len(value) for name, value in headers) <= bound
    for pieces in (cut(wire, seed), finely(wire, seed)):
        other = read(pieces, bound, method, clean=clean)
        if bound > len(wire):  # else a long read may bring the body with the head
            assert other == whole


def check_written(body: bytes, seed: int, *, chunked: bool) -> None:
    """A body that is framed by the rules comes out as it went in, with what follows left alone."""
    if chunked:
        pieces = cut(body, seed)
        wire = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
    else:
        wire = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for parts in ([wire], cut(wire, seed + 1, most=20)):
        status, _, got, *sound = read(parts, 300, "POST", clean=True)
        assert (status, got, *sound) == (200, body, True, True, True)


def read(pieces: Sequence[bytes], bound: int, method: str, *, clean: bool) -> Answer:
    """All that can be seen of an answer that comes in these pieces."""
    parser = AnswerParser(bound)
    parser.expect(method)
    body = b""
    for piece in pieces:
        parser.feed(piece)
        body += parser.take()
    keep_alive = parser.keep_alive
    parser.finish(clean=clean)
    headers = parser.headers if parser.head_done else []
    body = body if parser.head_done else b""
    # Which of several faults is told depends on how far llhttp had come with this piece.
    is_sound = parser.fault is None
    seen = (parser.status, headers, body, parser.complete, keep_alive, is_sound)
    parser.close()
    return seen


def seeds() -> Iterable[bytes]:
    """Each framing, whole and broken off."""
    wires = (
        OK + b"Content-Length: 5\r\n\r\nhello",
        CHUNKED + b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        + OK
        + b"Content-Length: 0\r\n\r\n",
        OK + b"Server: old\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nhello",
        b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
    )
    for number, wire in enumerate(wires):
        for method in range(len(METHODS)):
            yield bytes((2, method, 0, 0, 0, number)) + wire
            yield bytes((1, method, 1, 0, 0, number)) + wire[:-3]
    yield bytes((2, 0, 0, 1, 0, 7)) + b"a body"
    yield bytes((2, 0, 0, 2, 0, 7)) + b"a body"
