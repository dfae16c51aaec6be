"""The request parser: what it hands over and what it refuses, however the bytes are cut."""

from dataclasses import dataclass, field

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import GatewayFault, RequestTimeout, RequestTooLarge
from edge.server.protocol import IncomingRequest, ProtocolFault, RequestParser


@dataclass
class Sink:
    """Keeps what the parser hands over."""

    requests: list[IncomingRequest] = field(default_factory=list)
    websocket: bytes = b""

    def request_begun(self, request: IncomingRequest) -> None:
        self.requests.append(request)

    def websocket_asked(self, opening: bytes) -> None:
        self.websocket += opening


def parser_of(sink: Sink) -> RequestParser:
    return RequestParser(sink, max_head_bytes=2000, max_body_bytes=1000)


async def outcome(*pieces: bytes) -> list[object]:
    """Everything that can be seen of some bytes, fed in pieces."""
    sink = Sink()
    parser = parser_of(sink)
    seen: list[object] = []
    try:
        for position, piece in enumerate(pieces):
            if sink.websocket:
                sink.websocket += b"".join(pieces[position:])
                break
            parser.feed(piece)
    except ProtocolFault as fault:
        seen.append(fault.status)
    for request in sink.requests:
        seen.append((request.method, request.target, request.http_version, request.keep_alive))
        seen.append((request.headers, request.complete))
        if request.complete:
            seen.append(await body_or_error(request))
    return [*seen, sink.websocket, parser.between_requests if not seen[:1] else None]


async def body_or_error(request: IncomingRequest) -> object:
    try:
        return await request.body(1)
    except RequestTooLarge as error:
        return error.status


HOST = b"Host: a\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
STREAMS = {
    "get": b"GET /a?b=%20 HTTP/1.1\r\n" + HOST + b"X-One:  1 \r\nx-one: 2\r\n\r\n",
    "post": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc",
    "chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n",
    "several": b"\r\n\r\nPOST /1 HTTP/1.1\r\n"
    + HOST
    + b"Content-Length: 1\r\n\r\na\r\nGET /2 HTTP/1.1\r\n"
    + HOST
    + b"Connection: close\r\n\r\n",
    "1.0": b"GET / HTTP/1.0\r\n\r\n",
    "half a head": b"GET / HTTP/1.1\r\nHo",
    "half a body": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 30\r\n\r\nabc",
    "h2c": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\n"
    + HOST
    + b"\r\n",
    "websocket": b"GET /m HTTP/1.1\r\n"
    + HOST
    + b"Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n\r\n\x81\x00",
    "long body": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001,
    "long chunks": b"POST / HTTP/1.1\r\n"
    + HOST
    + b"Transfer-Encoding: chunked\r\n\r\n"
    + (b"64\r\n" + b"x" * 100 + b"\r\n") * 11
    + b"0\r\n\r\n",
    "long header": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"x" * 2500 + b"\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + HOST + b"a:b\r\n" * 100 + b"\r\n",
    "good then bad": b"GET / HTTP/1.1\r\n" + HOST + b"\r\n\x00\x00\x00\x00",
    "preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@given(data=st.data(), name=st.sampled_from(sorted(STREAMS)))
def test_the_cut_of_the_bytes_changes_nothing(data: st.DataObject, name: str) -> None:
    stream = STREAMS[name]
    cuts = data.draw(st.lists(st.integers(1, len(stream) - 1), max_size=8).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]

    assert trio.run(outcome, *pieces) == trio.run(outcome, stream)


@pytest.mark.parametrize("name", sorted(STREAMS))
async def test_a_byte_at_a_time_is_no_different(name: str) -> None:
    stream = STREAMS[name]
    pieces = [stream[at : at + 1] for at in range(len(stream))]

    assert await outcome(*pieces) == await outcome(stream)


async def test_requests_come_with_what_their_heads_say() -> None:
    sink = Sink()
    parser_of(sink).feed(STREAMS["get"] + STREAMS["chunks"] + STREAMS["1.0"])
    get, post, old = sink.requests

    assert (get.method, get.target, get.http_version) == ("GET", b"/a?b=%20", "1.1")
    assert get.headers == [(b"host", b"a"), (b"x-one", b"1"), (b"x-one", b"2")]
    assert [request.keep_alive for request in sink.requests] == [True, True, False]
    assert await post.body(1) == b"abcde"
    assert post.headers == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]
    assert await old.body(1) == b""


@pytest.mark.parametrize(
    ("stream", "status"),
    [
        (STREAMS["preface"], 505),
        (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 505),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST * 2 + b"\r\n", 400),
        (b"GET / HTTP/1.1\nHost: a\n\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a : b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n c\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (
            b"POST / HTTP/1.1\r\n"
            + HOST
            + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: x\r\n" + CHUNKED, 501),
        (b"POST / HTTP/1.1\r\n" + HOST + CHUNKED[:-2] * 2 + b"\r\n", 400),
        (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n", 405),
        (STREAMS["long header"], 431),
        (STREAMS["many headers"], 431),
    ],
)
def test_what_is_no_request_for_us_is_refused(stream: bytes, status: int) -> None:
    sink = Sink()
    with pytest.raises(ProtocolFault) as caught:
        parser_of(sink).feed(stream)

    assert caught.value.status == status
    assert sink.requests == []


def test_bodies_before_a_head_do_not_count_for_its_length() -> None:
    sink = Sink()
    parser = parser_of(sink)
    post = b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000
    parser.feed(post * 3 + b"GET / HTTP/1.1\r\n")
    parser.feed(HOST)
    parser.feed(b"\r\n")

    assert [request.method for request in sink.requests] == ["POST"] * 3 + ["GET"]


def test_a_websocket_handshake_ends_http() -> None:
    sink = Sink()
    parser_of(sink).feed(STREAMS["websocket"])

    assert sink.requests == []
    assert sink.websocket == (
        b"GET /m HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: WebSocket\r\n"
        b"sec-websocket-version: 13\r\n\r\n\x81\x00"
    )


async def test_any_other_upgrade_is_ignored_body_and_all() -> None:
    sink = Sink()
    parser_of(sink).feed(STREAMS["h2c"])

    assert [request.target for request in sink.requests] == [b"/", b"/2"]
    assert await sink.requests[0].body(1) == b"abc"


# Bodies


def begun(head: bytes) -> tuple[RequestParser, IncomingRequest]:
    sink = Sink()
    parser = parser_of(sink)
    parser.feed(b"POST / HTTP/1.1\r\n" + HOST + head + b"\r\n")
    return parser, sink.requests[0]


async def test_a_body_is_awaited_until_it_is_whole(nursery: trio.Nursery) -> None:
    parser, request = begun(b"Content-Length: 5\r\n")
    bodies: list[bytes] = []

    async def read() -> None:
        bodies.append(await request.body(1))

    nursery.start_soon(read)
    await trio.testing.wait_all_tasks_blocked()
    parser.feed(b"ab")
    await trio.testing.wait_all_tasks_blocked()
    assert bodies == []
    parser.feed(b"cde")
    await trio.testing.wait_all_tasks_blocked()

    assert bodies == [b"abcde"]
    assert await request.body(1) == b"abcde"


async def test_a_body_has_its_time(autojump_clock: trio.testing.MockClock) -> None:
    _, request = begun(b"Content-Length: 5\r\n")
    with pytest.raises(RequestTimeout):
        await request.body(60)

    assert trio.current_time() == pytest.approx(60)


async def test_a_body_that_is_too_long_is_told_before_it_ends() -> None:
    parser, request = begun(b"Transfer-Encoding: chunked\r\n")
    parser.feed(b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\n")
    assert not request.complete
    parser.feed(b"x")

    with pytest.raises(RequestTooLarge):
        await request.body(1)
    assert not request.complete


async def test_a_declared_length_is_judged_at_once() -> None:
    _, request = begun(b"Content-Length: 1001\r\n")
    with pytest.raises(RequestTooLarge):
        await request.body(1)


async def test_a_body_of_the_allowed_length_is_no_error() -> None:
    parser, request = begun(b"Content-Length: 1000\r\n")
    parser.feed(b"x" * 1000)

    assert await request.body(1) == b"x" * 1000


async def test_a_released_body_is_gone() -> None:
    parser, request = begun(b"Content-Length: 5\r\n")
    parser.feed(b"ab")
    request.release()
    parser.feed(b"cde")

    assert request.complete
    with pytest.raises(GatewayFault):
        await request.body(1)


@given(
    st.lists(
        st.sampled_from(
            [
                *(b"GET / HTTP/1.1\r\n", b"POST /a HTTP/1.0\r\n", HOST, CHUNKED, CHUNKED[:-2]),
                *(b"Content-Length: 3\r\n", b"\r\n", b"abc", b"3\r\nabc\r\n", b"0\r\n\r\n", b"\0"),
                *(b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"Upgrade: h2c\r\n"),
                *(b"Expect: 100-continue\r\n", b"Transfer-Encoding: gzip\r\n", b" ", b"\n", b"x:"),
            ]
        )
        | st.binary(max_size=6),
        max_size=12,
    ).map(b"".join),
    st.data(),
)
def test_any_bytes_are_requests_or_a_fault_the_same_in_every_cut(
    stream: bytes, data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5).map(sorted))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]

    assert trio.run(outcome, *pieces) == trio.run(outcome, *([stream] if stream else []))
