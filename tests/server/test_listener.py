"""The server's beginning and end."""

import logging
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from edge.runs.reply import Reply
from edge.server.limits import ServerLimits
from edge.server.listener import serve
from tests.fakes.raw_client import connect
from tests.fakes.served import (
    Watched,
    at_root,
    fresh_app,
    hello,
    running,
    silence,
    wait_for,
)


async def test_it_tells_every_address_it_listens_on(nursery: trio.Nursery) -> None:
    binds = ["127.0.0.1:0", "127.0.0.1:0"]
    serving = partial(
        serve,
        fresh_app(),
        ServerLimits(),
        binds=binds,
        shutdown=trio.Event(),
        direct=at_root(hello),
    )
    urls = await nursery.start(serving)
    for url in urls:
        async with connect(url) as client:
            assert (await client.get()).body == b"hello"
    nursery.cancel_scope.cancel()

    assert len(set(urls)) == 2


async def test_a_local_socket_serves_too(nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "edge.sock"
    serving = partial(
        serve,
        fresh_app(),
        ServerLimits(),
        binds=[f"unix:{path}"],
        shutdown=trio.Event(),
        direct=at_root(hello),
    )
    await nursery.start(serving)
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        answer = await stream.receive_some()
    nursery.cancel_scope.cancel()

    assert answer.startswith(b"HTTP/1.1 200 OK")


async def test_an_address_in_use_is_an_error_before_anything_has_begun() -> None:
    app = fresh_app()
    begun = False

    @app.before_serving
    async def begin() -> None:
        nonlocal begun
        begun = True

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            await serve(app, ServerLimits(), binds=[bind], shutdown=trio.Event())

    assert not begun


async def test_shutdown_may_be_a_function_that_returns() -> None:
    async def soon() -> None:
        await trio.lowlevel.checkpoint()

    with trio.fail_after(5):
        await serve(fresh_app(), ServerLimits(), binds=["127.0.0.1:0"], shutdown=soon)


async def test_the_app_is_started_before_and_stopped_after_everything_else() -> None:
    order: list[str] = []
    app = fresh_app()

    @app.before_serving
    async def begin() -> None:
        order.append("started")

    @app.after_serving
    async def end() -> None:
        order.append("stopped")

    async def carry(reply: Reply) -> None:
        await hello(reply)
        order.append("answered")

    async with running(app, direct=at_root(carry)) as url, connect(url) as client:
        await client.get()

    assert order == ["started", "answered", "stopped"]


# Draining


async def test_idle_connections_do_not_hold_up_the_end() -> None:
    stop = trio.Event()
    limits = ServerLimits(keep_alive_s=3600, drain_s=3600)
    with trio.fail_after(5):
        async with (
            running(direct=at_root(hello), limits=limits, shutdown=stop) as url,
            connect(url) as fresh,
            connect(url) as used,
        ):
            await used.get()
            stop.set()
            assert await fresh.until_closed() == b""
            assert await used.until_closed() == b""


async def test_a_running_answer_is_finished_and_is_the_last() -> None:
    stop, go_on = trio.Event(), trio.Event()

    async def carry(reply: Reply) -> None:
        await go_on.wait()
        await hello(reply)

    run = Watched(carry)
    async with (
        running(
            direct={("GET", "/"): run.handle}, limits=ServerLimits(drain_s=3600), shutdown=stop
        ) as url,
        connect(url) as client,
    ):
        await client.request()
        await wait_for(run.begun)
        stop.set()
        await refused(url)
        go_on.set()
        answer = await client.response()
        rest = await client.until_closed()

    assert (answer.body, answer.headers["connection"], rest) == (b"hello", "close", b"")


async def refused(url: str) -> None:
    """Wait until nobody listens any more; what still got in is closed or reset."""
    with trio.fail_after(5), suppress(ConnectionRefusedError):
        while True:
            async with connect(url) as client:
                with suppress(trio.BrokenResourceError):
                    await client.until_closed()


async def test_what_runs_longer_than_the_drain_is_cancelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = trio.Event()
    run = Watched(silence)
    async with (
        running(
            direct={("GET", "/"): run.handle}, limits=ServerLimits(drain_s=0.05), shutdown=stop
        ) as url,
        connect(url) as client,
    ):
        await client.request()
        await wait_for(run.begun)
        stop.set()
        assert await client.until_closed() == b""

    assert run.cancelled.is_set()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
