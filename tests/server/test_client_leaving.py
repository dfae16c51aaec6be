"""A client that leaves, or stops reading, ends what runs for it: over a real socket.

The tests named after P2 and P3 stand for defects of the stock worker: each fails when hypercorn's
own ``serve`` is put in place of ours.
"""

import logging

import pytest
import trio
from quart import request

from edge.runs.reply import ClientGone, Reply
from edge.server.connection import Carry, GatewayRequest, RunResponse, read_body
from edge.server.limits import ServerLimits
from tests.fakes.raw_client import connect
from tests.fakes.served import (
    Watched,
    flood,
    fresh_app,
    head_and_silence,
    running,
    silence,
    wait_for,
)

# P2: a client that leaves is noticed, whatever it sent before


SURPLUS = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "a request": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "two requests": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2,
    "garbage": b"\x00\x01\x02",
}


@pytest.mark.parametrize("carry", [silence, head_and_silence])
@pytest.mark.parametrize("surplus", SURPLUS.values(), ids=SURPLUS.keys())
async def test_p2_leaving_is_noticed_behind_surplus_bytes(surplus: bytes, carry: Carry) -> None:
    run = Watched(carry)
    app = fresh_app()
    app.add_url_rule("/", view_func=run.view, methods=["POST"])
    async with running(app) as url, connect(url) as client:
        await client.request(method="POST", body=b"{}")
        await client.send(surplus)
        await wait_for(run.begun)
        await client.hang_up()
        await wait_for(run.cancelled)


@pytest.mark.parametrize("upgrade", ["h2c", "something/1"])
async def test_p2_leaving_is_noticed_behind_an_upgrade_header(upgrade: str) -> None:
    run = Watched(silence)
    app = fresh_app()
    app.add_url_rule("/", view_func=run.view, methods=["POST"])
    async with running(app) as url, connect(url) as client:
        headers = [("Connection", "Upgrade"), ("Upgrade", upgrade)]
        await client.request(method="POST", headers=headers, body=b"{}")
        await wait_for(run.begun)
        await client.hang_up()
        await wait_for(run.cancelled)


@pytest.mark.parametrize("leave", ["hang_up", "reset", "half_close"])
@pytest.mark.parametrize("carry", [silence, head_and_silence, flood])
async def test_leaving_cancels_the_run_however_it_is_done(leave: str, carry: Carry) -> None:
    run = Watched(carry)
    async with running(direct={("GET", "/"): run.handle}) as url, connect(url) as client:
        await client.request()
        await wait_for(run.begun)
        if leave == "half_close":
            client.half_close()
        else:
            await getattr(client, leave)()
        await wait_for(run.cancelled)


async def test_leaving_cancels_what_waits_for_the_body() -> None:
    waiting, gone = trio.Event(), trio.Event()

    async def handle(request: GatewayRequest) -> Carry:
        waiting.set()
        try:
            await request.body()
        finally:
            gone.set()
        raise AssertionError("there is no body")

    async with running(direct={("POST", "/"): handle}) as url, connect(url) as client:
        await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
        await wait_for(waiting)
        await client.hang_up()
        await wait_for(gone)


@pytest.mark.parametrize("reading", ["get_data", "iterate", "read_body", "carry"])
async def test_leaving_logs_nothing_and_raises_nothing_in_a_view(
    reading: str, caplog: pytest.LogCaptureFixture
) -> None:
    waiting, gone = trio.Event(), trio.Event()
    raised: list[BaseException] = []
    app = fresh_app()

    @app.post("/")
    async def view() -> str | RunResponse:
        waiting.set()
        try:
            if reading == "get_data":
                await request.get_data()
            elif reading == "iterate":
                async for _ in request.body:
                    pass
            elif reading == "read_body":
                await read_body(request)
            else:
                return RunResponse(silence)
        except Exception as error:
            raised.append(error)
        finally:
            gone.set()
        return "read"

    async with running(app) as url:
        async with connect(url) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab")
            await wait_for(waiting)
        await wait_for(gone)

    assert raised == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# P3: a client that does not read


async def test_p3_a_client_that_reads_nothing_has_given_up() -> None:
    failures: list[Exception] = []

    async def carry(reply: Reply) -> None:
        try:
            await flood(reply)
        except ClientGone as gone:
            failures.append(gone)
            raise

    run = Watched(carry)
    app = fresh_app()
    app.add_url_rule("/", view_func=run.view)
    limits = ServerLimits(write_timeout_s=0.2, drain_s=1)
    async with running(app, limits=limits) as url, connect(url, receive_buffer=4096) as client:
        await client.request()
        await wait_for(run.cancelled)

    assert [str(failure) for failure in failures] == ["the client read nothing for 0.2 s"]


async def test_p3_a_deadline_of_the_run_ends_a_write_that_waits() -> None:
    async def carry(reply: Reply) -> None:
        with trio.move_on_after(0.2):
            await flood(reply)

    run = Watched(carry)
    app = fresh_app()
    app.add_url_rule("/", view_func=run.view)
    async with running(app) as url, connect(url, receive_buffer=4096) as client:
        await client.request()
        await wait_for(run.ended)


async def test_p3_a_client_that_reads_nothing_does_not_hold_up_the_end() -> None:
    run = Watched(flood)
    app = fresh_app()
    app.add_url_rule("/", view_func=run.view)
    limits = ServerLimits(write_timeout_s=60, drain_s=0.1)
    stop = trio.Event()
    async with (
        running(app, limits=limits, shutdown=stop) as url,
        connect(url, receive_buffer=4096) as client,
    ):
        await client.request()
        await wait_for(run.begun)
        stop.set()
        await wait_for(run.cancelled)


async def test_a_slow_reader_gets_every_byte_in_order() -> None:
    pieces = [b"%06d," % number * 2000 for number in range(100)]

    async def carry(reply: Reply) -> None:
        await reply.start(200, [])
        for piece in pieces:
            await reply.write(piece)

    async with (
        running(direct={("GET", "/"): Watched(carry).handle}) as url,
        connect(url, receive_buffer=4096) as client,
    ):
        answer = await client.get()

    assert answer.body == b"".join(pieces)
