"""Requests to a provider over real sockets: what is sent, what comes back, what goes wrong."""

import pytest
import trio
import trio.testing

from edge.errors import (
    GatewayFault,
)
from edge.providers.transport import Transport
from tests.fakes.raw_server import (
    Peer,
    Request,
    Script,
    answering,
    chunk,
    head,
    saying,
)
from tests.providers.serving import serving, whole


def recording(requests: list[bytes]) -> Script:
    """Keep the exact bytes of each request that arrives in one piece, and answer it."""

    async def script(peer: Peer) -> None:
        while data := await peer.receive():
            requests.append(data)
            await peer.send_answer()

    return script


async def test_a_request_leaves_in_one_piece_exactly_as_it_should_be() -> None:
    requests: list[bytes] = []
    async with serving(recording(requests)) as (server, transport):
        await whole(transport.request("POST", "/chat?a=1", [(b"X-Key", b"k")], b'{"a":1}'))
        await whole(transport.request("GET", "/models"))
        await whole(transport.request("POST", "/empty"))

    host = f"host: 127.0.0.1:{server.port}\r\naccept-encoding: identity\r\n".encode()
    assert requests == [
        b'POST /v1/chat?a=1 HTTP/1.1\r\n%bX-Key: k\r\ncontent-length: 7\r\n\r\n{"a":1}' % host,
        b"GET /v1/models HTTP/1.1\r\n%b\r\n" % host,
        b"POST /v1/empty HTTP/1.1\r\n%bcontent-length: 0\r\n\r\n" % host,
    ]


async def test_fields_of_the_connection_are_not_the_callers() -> None:
    got: list[Request] = []

    async def script(peer: Peer) -> None:
        got.append(await peer.read_request())
        await peer.send_answer()

    theirs = [
        (b"Host", b"elsewhere"),
        (b"Content-Length", b"99"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Connection", b"close, x-a"),
        (b"Accept-Encoding", b"gzip"),
        (b"Expect", b"100-continue"),
        (b"Upgrade", b"h2c"),
        (b"X-A", b"1"),
    ]
    async with serving(script) as (server, transport):
        await whole(transport.request("POST", "/x", theirs, b"abc"))

    assert got[0].headers == {
        "host": f"127.0.0.1:{server.port}",
        "accept-encoding": "identity",
        "x-a": "1",
        "content-length": "3",
    }


@pytest.mark.parametrize("field", [(b"a", b"b\r\nc: d"), (b"a", b"b\nc"), (b"a\r\nb", b"c")])
def test_a_line_break_in_a_header_is_never_sent(field: tuple[bytes, bytes]) -> None:
    with pytest.raises(GatewayFault):
        Transport("http://gpu1").request("GET", "/", [field])


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/a b\r\nX: y", "/v1/a%20b%0D%0AX:%20y"),
        ("/modèle", "/v1/mod%C3%A8le"),
        ("/a%20b?c=d%2F", "/v1/a%20b?c=d%2F"),
        ("", "/v1"),
    ],
)
async def test_a_path_is_escaped_where_it_must_be(path: str, sent: str) -> None:
    async with serving(answering()) as (server, transport):
        await whole(transport.request("GET", path))

        assert server.events[1].detail == f"GET {sent} HTTP/1.1".encode()


async def test_the_answer_has_status_headers_and_body() -> None:
    script = answering(404, b'{"error":1}', {"X-One": "1", "x-one": "2"})
    async with serving(script) as (_, transport), transport.request("GET", "/x") as answer:
        assert (answer.status, answer.header(b"x-one")) == (404, b"1")
        assert answer.header(b"x-two") is None
        assert (b"x-one", b"2") in answer.headers
        assert await answer.receive() == b'{"error":1}'
        assert await answer.receive() == b""
        assert await answer.receive() == b""


async def test_a_redirect_is_an_answer_like_any_other() -> None:
    script = answering(307, b"", {"location": "http://elsewhere/"})
    async with serving(script) as (server, transport):
        async with transport.request("POST", "/x", body=b"{}") as answer:
            assert (answer.status, answer.header(b"location")) == (307, b"http://elsewhere/")
        assert server.count("head") == 1


async def test_informational_answers_are_skipped() -> None:
    wire = head(100) + head(103, {"link": "</x>"}) + head(200, {"content-length": "2"}) + b"ok"
    async with (
        serving(saying(wire)) as (_, transport),
        transport.request("POST", "/x") as answer,
    ):
        assert (answer.status, answer.headers) == (200, [(b"content-length", b"2")])
        assert await answer.receive() == b"ok"


@pytest.mark.parametrize(
    "wire",
    [
        head(200, {"content-length": "5"}) + b"hello",
        head(200, {"transfer-encoding": "chunked"}) + chunk(b"hel") + chunk(b"lo") + chunk(b""),
        head(200, {"transfer-encoding": "chunked"}) + chunk(b"hello") + b"0\r\nx-sum: 1\r\n\r\n",
        head(200) + b"hello",
    ],
    ids=["length", "chunked", "trailers", "until close"],
)
async def test_each_framing_gives_the_same_body(wire: bytes) -> None:
    async with serving(saying(wire)) as (_, transport):
        assert await whole(transport.request("POST", "/x")) == b"hello"


@pytest.mark.parametrize(
    ("method", "wire"),
    [
        ("HEAD", head(200, {"content-length": "5"})),
        ("POST", head(204)),
        ("GET", head(304, {"content-length": "5"})),
    ],
)
async def test_an_answer_without_a_body_ends_with_its_head(method: str, wire: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(wire)
        await peer.wait_closed()

    async with serving(script) as (_, transport):
        assert await whole(transport.request(method, "/x")) == b""


async def test_chunks_that_arrive_together_are_received_as_one() -> None:
    pieces = [b"data: %d\n\n" % n for n in range(50)]
    wire = head(200, {"transfer-encoding": "chunked"}) + b"".join(map(chunk, pieces)) + chunk(b"")
    async with (
        serving(saying(wire)) as (_, transport),
        transport.request("POST", "/x") as answer,
    ):
        assert await answer.receive() == b"".join(pieces)


async def test_a_body_of_any_size_comes_in_pieces_of_a_bounded_size() -> None:
    size = 8_000_000
    async with serving(answering(body=b"x" * size)) as (_, transport):
        sizes = []
        async with transport.request("POST", "/x") as answer:
            while data := await answer.receive():
                sizes.append(len(data))

    assert sum(sizes) == size
    assert max(sizes) <= 65536


async def test_a_body_that_is_not_received_holds_the_provider_up() -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.start_sse()
        while True:
            await peer.send_chunk(b"x" * 65536)
            sent += 65536

    async with serving(script) as (_, transport), transport.request("POST", "/x") as answer:
        await answer.receive()
        before = -1
        while sent != before:  # until the kernel's buffers are full
            before = sent
            await trio.testing.wait_all_tasks_blocked(0.05)
        held_up_at = sent
        for _ in range(held_up_at // 65536):
            await answer.receive()
        await trio.testing.wait_all_tasks_blocked(0.05)

        assert sent > held_up_at


async def test_a_large_request_body_arrives_whole() -> None:
    body = bytes(range(256)) * 40_000
    got: list[Request] = []

    async def script(peer: Peer) -> None:
        for _ in range(2):
            got.append(await peer.read_request())
            await peer.send_answer()

    async with serving(script) as (server, transport):
        for _ in range(2):
            await whole(transport.request("POST", "/x", body=body))

        assert [request.body for request in got] == [body, body]
        assert server.count("accepted") == 1
