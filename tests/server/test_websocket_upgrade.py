"""WebSocket on the port that serves HTTP: hypercorn's protocol on one of our connections."""

from contextlib import AsyncExitStack

import pytest
import trio
from quart import abort, websocket
from quart_trio import QuartTrio
from trio_websocket import open_websocket_url

from edge.server.limits import ServerLimits
from tests.fakes.raw_client import connect
from tests.fakes.served import fresh_app, running, wait_for


def app_with_sockets(gone: trio.Event) -> QuartTrio:
    app = fresh_app()

    @app.websocket("/echo")
    async def echo() -> None:
        try:
            while True:
                await websocket.send(await websocket.receive())
        finally:
            gone.set()

    @app.websocket("/once")
    async def once() -> None:
        await websocket.accept()
        await websocket.send("only this")

    @app.websocket("/closed")
    async def closed() -> None:
        abort(401)

    @app.websocket("/flood")
    async def flood() -> None:
        try:
            while True:
                await websocket.send("x" * 65536)
        finally:
            gone.set()

    @app.get("/plain")
    async def plain() -> str:
        return "plain"

    return app


async def test_messages_go_both_ways() -> None:
    async with (
        running(app_with_sockets(trio.Event())) as url,
        open_websocket_url(url.replace("http", "ws") + "/echo") as socket,
    ):
        for message in ("one", "two", b"three"):
            await socket.send_message(message)
            assert await socket.get_message() == message


CLOSED = b"\x88\x02\x03\xe8"
"""A close frame with code 1000."""

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


async def test_the_server_may_close() -> None:
    async with running(app_with_sockets(trio.Event())) as url, connect(url) as client:
        await client.request("/once", headers=HANDSHAKE)
        await client.head()
        frames = await client.until_closed()

    assert frames == b"\x81\x09only this" + CLOSED


async def test_a_client_that_does_not_close_its_side_is_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edge.server.websocket_upgrade._LINGER_S", 0.05)
    stop = trio.Event()
    async with AsyncExitStack() as outlives:
        with trio.fail_after(5):
            limits = ServerLimits(drain_s=3600)
            app = app_with_sockets(trio.Event())
            async with running(app, limits=limits, shutdown=stop) as url:
                client = await outlives.enter_async_context(connect(url))
                await client.request("/once", headers=HANDSHAKE)
                await client.until_closed()
                stop.set()


async def test_the_server_may_refuse() -> None:
    async with running(app_with_sockets(trio.Event())) as url, connect(url) as client:
        await client.request("/closed", headers=HANDSHAKE)
        answer = await client.response()

    assert answer.status == 401


async def test_a_client_that_leaves_ends_its_view() -> None:
    gone = trio.Event()
    async with running(app_with_sockets(gone)) as url, connect(url) as client:
        await client.request("/echo", headers=HANDSHAKE)
        await client.head()
        await client.hang_up()
        await wait_for(gone)


async def test_a_client_that_reads_nothing_is_dropped() -> None:
    gone = trio.Event()
    limits = ServerLimits(write_timeout_s=0.1, drain_s=1)
    async with (
        running(app_with_sockets(gone), limits=limits) as url,
        connect(url, receive_buffer=4096) as client,
    ):
        await client.request("/flood", headers=HANDSHAKE)
        await wait_for(gone)


async def test_the_handshake_may_come_on_a_used_connection() -> None:
    async with running(app_with_sockets(trio.Event())) as url, connect(url) as client:
        assert (await client.get("/plain")).body == b"plain"
        await client.request("/echo", headers=HANDSHAKE)
        answer = await client.head()

    assert answer.status == 101
    assert answer.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
