"""What a client sees of one connection, over a real socket.

The tests named after P1 and P4 to P6 stand for defects of the stock worker: each fails when
hypercorn's own ``serve`` is put in place of ours.
"""

import socket

import pytest
import trio
from quart import request

from edge.errors import GatewayFault, InvalidRequest, Overloaded, ProviderUnreachable
from edge.runs.reply import ClientGone, Reply
from edge.server.client_connection import ClientConnection, failure_of
from edge.server.connection import Carry, GatewayRequest, read_body
from edge.server.exchange import Exchange
from edge.server.limits import ServerLimits
from tests.fakes.raw_client import connect
from tests.fakes.served import (
    PATIENCE_S,
    Watched,
    at_root,
    fresh_app,
    hello,
    running,
    two_chunks,
    wait_for,
)

# P1: after an answer


@pytest.mark.parametrize("way", ["direct", "view", "plain"])
async def test_p1_a_connection_serves_one_request_after_another(way: str) -> None:
    app = fresh_app()
    app.add_url_rule("/view", view_func=Watched(two_chunks).view, endpoint="view")
    app.add_url_rule("/plain", view_func=lambda: "data: 1\n\ndata: [DONE]\n\n", endpoint="plain")
    direct = {("GET", "/direct"): Watched(two_chunks).handle}
    async with running(app, direct=direct) as url, connect(url) as client:
        answers = [await client.get(f"/{way}") for _ in range(3)]

    assert [answer.status for answer in answers] == [200] * 3
    assert {answer.body for answer in answers} == {b"data: 1\n\ndata: [DONE]\n\n"}


async def test_p1_a_client_that_asks_for_close_is_closed_after_its_answer() -> None:
    app = fresh_app()
    app.add_url_rule("/", view_func=Watched(two_chunks).view)
    async with running(app) as url, connect(url) as client:
        await client.request(headers=[("Connection", "close")])
        answer = await client.response()
        rest = await client.until_closed()

    assert answer.headers["connection"] == "close"
    assert (answer.body, rest) == (b"data: 1\n\ndata: [DONE]\n\n", b"")


async def test_p1_an_idle_connection_is_closed_when_its_time_is_over() -> None:
    limits = ServerLimits(keep_alive_s=0.05)
    app = fresh_app()
    app.add_url_rule("/", view_func=Watched(two_chunks).view)
    async with running(app, limits=limits) as url, connect(url) as client:
        await client.get()
        assert await client.until_closed() == b""


async def test_p1_a_client_that_leaves_after_its_answer_has_not_given_up() -> None:
    client_left = trio.Event()

    async def carry(reply: Reply) -> None:
        await two_chunks(reply)
        await client_left.wait()
        await trio.lowlevel.checkpoint()

    run = Watched(carry)
    direct = {("GET", "/run"): run.handle, **at_root(hello)}
    async with running(direct=direct) as url:
        async with connect(url) as client:
            await client.get("/run")
        async with connect(url) as other:
            # An exchange on another connection: by then the hang-up has been read.
            await other.get()
            await other.get()
        client_left.set()
        await wait_for(run.ended)


# Pipelining


async def test_a_request_sent_ahead_is_answered_in_its_turn() -> None:
    async with running(direct=at_root(hello)) as url, connect(url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2)
        first, second = await client.response(), await client.response()
        third = await client.get()

    assert [first.body, second.body, third.body] == [b"hello"] * 3


async def test_what_is_sent_further_ahead_is_dropped_and_the_connection_closed() -> None:
    async with running(direct=at_root(hello)) as url, connect(url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 50)
        first, second = await client.response(), await client.response()
        rest = await client.until_closed()

    assert [first.headers.get("connection"), second.headers.get("connection")] == [None, "close"]
    assert rest == b""


async def test_garbage_behind_a_request_does_not_spoil_its_answer() -> None:
    async with running(direct=at_root(hello)) as url, connect(url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\x00\x01 no request \r\n\r\n")
        answer = await client.response()
        rest = await client.until_closed()

    assert (answer.body, answer.headers["connection"], rest) == (b"hello", "close", b"")


class NoService:
    """A service that is never to be asked; a WebSocket meets a bug in it."""

    def __init__(self, *, draining: bool = False) -> None:
        self.limits = ServerLimits()
        self.draining = draining

    async def answer(self, _exchange: Exchange) -> None:
        raise AssertionError("no request is made")

    async def serve_websocket(self, _connection: ClientConnection, _opening: bytes) -> None:
        raise KeyError("stream 1")


# P4: nothing a client does ends another's connection


async def test_p4_what_breaks_one_connection_breaks_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        theirs.send(
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        with trio.fail_after(PATIENCE_S):
            await ClientConnection(ours, None, NoService()).run()

        assert ours.fileno() == -1
    assert [record.message for record in caplog.records] == ["a connection failed"]


H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
H2_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
H2_PRIORITY = b"\x00\x00\x05\x02\x00%b\x00\x00\x00\x00\x10"


async def test_p4_http2_frames_do_not_end_the_server() -> None:
    priorities = b"".join(H2_PRIORITY % (2 * n + 1).to_bytes(4, "big") for n in range(1500))
    app = fresh_app()
    app.add_url_rule("/", view_func=Watched(hello).view)
    async with running(app) as url:
        async with connect(url) as client:
            await client.send(H2_PREFACE + H2_SETTINGS + priorities)
            await client.until_closed()
        async with connect(url) as client:
            assert (await client.get()).body == b"hello"


async def test_garbage_from_a_client_that_has_left_is_no_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.send(b"\x00\x01\x02\x03")
    theirs.close()
    with trio.fail_after(PATIENCE_S):
        await ClientConnection(ours, None, NoService()).run()

    assert caplog.records == []


async def test_a_connection_that_comes_too_late_is_closed_at_once() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, trio.fail_after(PATIENCE_S):
        await ClientConnection(ours, None, NoService(draining=True)).run()
        assert theirs.recv(1) == b""


# P5: no HTTP/2


@pytest.mark.parametrize("opening", [H2_PREFACE, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"])
async def test_p5_http2_is_refused(opening: bytes) -> None:
    async with running() as url, connect(url) as client:
        await client.send(opening)
        answer = await client.response()
        rest = await client.until_closed()

    assert (answer.status, answer.headers["connection"], rest) == (505, "close", b"")


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_p5_an_upgrade_to_http2_is_ignored(method: str) -> None:
    async def handle(request: GatewayRequest) -> Carry:
        body = await request.body()

        async def carry(reply: Reply) -> None:
            await reply.start(200, [])
            await reply.finish(b"%s %s" % (request.method.encode(), body))

        return carry

    headers = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", ""),
    ]
    body = b"abc" if method == "POST" else None
    async with running(direct={(method, "/"): handle}) as url, connect(url) as client:
        await client.request(method=method, headers=headers, body=body)
        first = await client.response()
        await client.request(method=method, body=body)
        second = await client.response()

    assert first.body == second.body == method.encode() + b" " + (body or b"")


# P6: request bodies


async def handle_body(request: GatewayRequest) -> Carry:
    body = await request.body()

    async def carry(reply: Reply) -> None:
        await reply.start(200, [], content_length=len(body))
        await reply.finish(body)

    return carry


SMALL = ServerLimits(max_body_bytes=100_000, body_timeout_s=0.1, drain_s=1)


@pytest.mark.parametrize("way", ["direct", "read_body", "get_data"])
async def test_p6_a_chunked_body_is_refused_while_it_arrives(way: str) -> None:
    app = fresh_app()

    @app.post("/read_body")
    async def with_read_body() -> bytes:
        return await read_body(request)

    @app.post("/get_data")
    async def with_get_data() -> str | bytes:
        return await request.get_data()

    direct = {("POST", "/direct"): handle_body}
    async with running(app, direct=direct, limits=SMALL) as url, connect(url) as client:
        await client.request(f"/{way}", method="POST", headers=[("Transfer-Encoding", "chunked")])
        for _ in range(3):
            await client.send(b"c350\r\n" + b"x" * 50_000 + b"\r\n")
        answer = await client.response()

    assert answer.status == 413
    assert answer.json == {
        "error": {
            "message": "The request body is longer than the 100000 bytes accepted here.",
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        }
    }


async def test_a_declared_body_that_is_too_long_is_refused_before_it_arrives() -> None:
    async with (
        running(direct={("POST", "/"): handle_body}, limits=SMALL) as url,
        connect(url) as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n")
        answer = await client.response()
        rest = await client.until_closed()

    assert (answer.status, answer.headers["connection"], rest) == (413, "close", b"")


async def test_a_client_that_is_refused_may_go_on_sending_and_still_read_the_answer() -> None:
    async with (
        running(direct={("POST", "/"): handle_body}, limits=SMALL) as url,
        connect(url) as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n")
        for _ in range(30):
            await client.send(b"x" * 100_000)
        answer = await client.response()

    assert answer.status == 413


async def test_a_body_that_does_not_arrive_is_a_408() -> None:
    async with (
        running(direct={("POST", "/"): handle_body}, limits=SMALL) as url,
        connect(url) as client,
    ):
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
        answer = await client.response()
        await client.until_closed()

    assert answer.status == 408


async def test_a_body_with_broken_chunks_is_a_400() -> None:
    async with running(direct={("POST", "/"): handle_body}) as url, connect(url) as client:
        await client.request(method="POST", headers=[("Transfer-Encoding", "chunked")])
        await client.send(b"5\r\nabcdefgh\r\n")
        answer = await client.response()
        await client.until_closed()

    assert answer.status == 400


async def test_a_body_is_asked_for_where_the_client_waits_for_that() -> None:
    async with running(direct={("POST", "/"): handle_body}) as url, connect(url) as client:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        await client.send(head)
        go_on = await client.head()
        await client.send(b"abc")
        answer = await client.response()

    assert (go_on.status, answer.body) == (100, b"abc")


async def test_an_answer_without_the_body_ends_the_connection_and_asks_for_none() -> None:
    async def refuse(_request: GatewayRequest) -> Carry:
        raise InvalidRequest("no")

    async with running(direct={("POST", "/"): refuse}) as url, connect(url) as client:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"
        await client.send(head)
        answer = await client.response()
        rest = await client.until_closed()

    assert (answer.status, rest) == (400, b"")


async def test_a_body_is_not_kept_while_its_answer_streams() -> None:
    async def handle(request: GatewayRequest) -> Carry:
        await request.body()

        async def carry(reply: Reply) -> None:
            await reply.start(200, [])
            with pytest.raises(GatewayFault, match="before its answer begins"):
                await request.body()

        return carry

    async with running(direct={("POST", "/"): handle}) as url, connect(url) as client:
        answer = await client.post("/", b"abc")

    assert (answer.status, answer.body) == (200, b"")


# Heads


async def test_a_head_that_is_too_long_is_a_431() -> None:
    async with running(limits=ServerLimits(max_head_bytes=2000)) as url, connect(url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3000)
        await client.send(b"y" * 3000)
        answer = await client.response()

    assert answer.status == 431


async def test_a_head_that_does_not_arrive_ends_the_connection() -> None:
    limits = ServerLimits(header_timeout_s=0.05)
    async with running(limits=limits) as url, connect(url) as client:
        await client.send(b"GET / HTTP/1.1\r\nHost")
        assert await client.until_closed() == b""


# Other clients


async def test_an_http10_client_gets_a_body_that_ends_with_the_connection() -> None:
    async with running(direct=at_root(two_chunks)) as url, connect(url) as client:
        await client.request(version="1.0", headers=[("Connection", "keep-alive")])
        answer = await client.response()

    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.body == b"data: 1\n\ndata: [DONE]\n\n"


async def test_head_gets_the_head_of_get_and_no_body() -> None:
    async with running(direct=at_root(hello)) as url, connect(url) as client:
        await client.request(method="HEAD")
        answer = await client.response(bodyless=True)
        following = await client.get()

    assert (answer.status, answer.headers["content-length"]) == (200, "5")
    assert following.body == b"hello"


# Failures


async def nothing(_reply: Reply) -> None:
    pass


async def overloaded(_reply: Reply) -> None:
    raise Overloaded("full", retry_after_s=1.2)


async def bug(_reply: Reply) -> None:
    raise KeyError("secret")


async def bug_in_a_nursery(reply: Reply) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(bug, reply)


@pytest.mark.parametrize(
    ("carry", "status", "logged"),
    [(nothing, 500, 1), (overloaded, 503, 0), (bug, 500, 1), (bug_in_a_nursery, 500, 1)],
)
@pytest.mark.parametrize("way", ["direct", "view"])
async def test_a_failure_before_the_head_is_a_whole_answer(
    carry: Carry, status: int, logged: int, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = fresh_app()
    app.add_url_rule("/view", view_func=Watched(carry).view)
    direct = {("GET", "/direct"): Watched(carry).handle}
    async with running(app, direct=direct) as url, connect(url) as client:
        first = await client.get(f"/{way}")
        second = await client.get(f"/{way}")

    assert [first.status, second.status] == [status, status]
    assert b"secret" not in first.body
    assert first.headers.get("retry-after") == ("2" if carry is overloaded else None)
    assert len(caplog.records) == 2 * logged


@pytest.mark.parametrize("error", [KeyError("secret"), ProviderUnreachable("gone")])
async def test_a_failure_behind_the_head_ends_the_connection_unfinished(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def carry(reply: Reply) -> None:
        await reply.start(200, [])
        await reply.write(b"data: 1\n\n")
        raise error

    async with running(direct=at_root(carry)) as url, connect(url) as client:
        await client.request()
        await client.head()
        rest = await client.until_closed()

    assert rest == b"9\r\ndata: 1\n\n\r\n"
    assert [record.message for record in caplog.records] == ["GET / failed"]


async def test_a_body_shorter_than_declared_ends_the_connection() -> None:
    async def carry(reply: Reply) -> None:
        await reply.start(200, [], content_length=5)
        await reply.finish(b"abc")

    async with running(direct=at_root(carry)) as url, connect(url) as client:
        await client.request()
        await client.head()
        assert await client.until_closed() == b"abc"


async def test_a_reply_that_carry_left_open_is_finished() -> None:
    async def carry(reply: Reply) -> None:
        await reply.start(200, [])
        await reply.write(b"abc")

    async with running(direct=at_root(carry)) as url, connect(url) as client:
        assert [(await client.get()).body for _ in range(2)] == [b"abc", b"abc"]


def test_a_failure_is_found_in_nested_groups_bugs_first() -> None:
    known, other, bug = Overloaded("full"), GatewayFault("x"), KeyError("bug")

    def group(*inner: Exception) -> ExceptionGroup[Exception]:
        return ExceptionGroup("nursery", list(inner))

    assert failure_of(group(ClientGone(), group(ClientGone()))) is None
    assert failure_of(group(ClientGone(), group(known, other))) is known
    assert failure_of(group(known, group(ClientGone(), bug))) is bug
