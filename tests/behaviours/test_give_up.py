"""A client that leaves ends its run everywhere, whatever the run was doing.

Each test brings a run to one place, lets the client leave there, and waits for what the provider
sees. The order of events is asserted; how many milliseconds it takes is a benchmark's affair.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import orjson
import pytest
import trio
import trio.testing

from tests.fakes.gateway import (
    RunningGateway,
    ask_once,
    chat,
    gateway,
    send,
    until,
    upstream_config,
)
from tests.fakes.raw_client import RawClient, connect
from tests.fakes.raw_server import Peer, RawServer, raw_server

CHUNK = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def silent(peer: Peer) -> None:
    """Reads the request and says nothing."""
    await peer.read_request()
    await peer.wait_closed()


async def silent_after_head(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    await peer.wait_closed()


async def one_word_then_silent(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(event(CHUNK))
    await peer.wait_closed()


async def words_without_end(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    while True:  # the first word that cannot be sent tells that the client has gone
        await peer.send_chunk(event(CHUNK))
        await trio.sleep(0.001)


async def flood(peer: Peer) -> None:
    """Sends as fast as it is read."""
    await peer.read_request()
    await peer.start_sse()
    batch = event(CHUNK) * 200
    while True:
        await peer.send_chunk(batch)


async def refuses_for_now(peer: Peer) -> None:
    await peer.read_request()
    await peer.send_answer(503, b"{}", {"retry-after": "7"})
    await peer.wait_closed()


async def calls_no_tool_that_exists(peer: Peer) -> None:
    """The first answer is invalid, the second never comes."""
    call = {"id": "a", "function": {"name": "nothing_offered", "arguments": "{}"}}
    delta = {"tool_calls": [{"index": 0, **call}]}
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(event({"choices": [{"index": 0, "delta": delta}]}))
    await peer.send_chunk(event({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
    await peer.send_chunk(b"data: [DONE]\n\n")
    await peer.end_chunks()
    await peer.read_request()
    await peer.wait_closed()


def event(chunk: object) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


@asynccontextmanager
async def scene(
    script: Callable[[Peer], Awaitable[None]],
    caplog: pytest.LogCaptureFixture,
    *,
    scheme: str = "http",
    **tables: str,
) -> AsyncGenerator[tuple[RunningGateway, RawServer]]:
    """A provider and a gateway in front of it; nothing may be logged as an error or be left."""
    tasks = trio.lowlevel.current_statistics().tasks_living
    async with raw_server(script) as server:
        config = upstream_config(server.url.replace("http", scheme, 1), **tables)
        async with gateway(config) as edge:
            yield edge, server
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@both_ways
@pytest.mark.parametrize(
    ("script", "phase"),
    [
        (silent, "connecting"),
        (silent_after_head, "waiting"),
        (one_word_then_silent, "streaming"),
        (words_without_end, "streaming"),
    ],
    ids=["no head", "no first token", "silence in mid-answer", "streaming"],
)
@pytest.mark.parametrize("leave", ["hang_up", "reset", "half_close"])
async def test_the_provider_is_hung_up_on(
    script: Callable[[Peer], Awaitable[None]],
    phase: str,
    stream: bool,
    leave: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(script, caplog) as (edge, server), connect(edge.url) as client:
        await send(client, chat(stream=stream))
        await server.happened("body")
        await edge.phase_reached(phase)

        await leaving(client, leave)

        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()
        assert (row.status, row.category, row.phase) == ("cancelled", "give_up", phase)


@both_ways
async def test_while_connecting(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A TLS handshake that is never answered holds the run in connecting."""

    async def no_handshake(peer: Peer) -> None:
        await peer.wait_closed()

    async with (
        scene(no_handshake, caplog, scheme="https") as (edge, server),
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=stream))
        await server.happened("accepted")

        await client.hang_up()

        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()
        assert (row.status, row.phase) == ("cancelled", "connecting")


@both_ways
@pytest.mark.parametrize(
    "tables",
    [{"provider": "max_concurrent = 1"}, {"limits": "max_runs = 1"}],
    ids=["for a slot", "for admission"],
)
async def test_while_queueing(
    stream: bool, tables: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        scene(one_word_then_silent, caplog, **tables) as (edge, server),
        connect(edge.url) as first,
        connect(edge.url) as second,
    ):
        await send(first, chat(stream=True))
        await edge.phase_reached("streaming")
        await send(second, chat(stream=stream))
        await edge.phase_reached("queued")

        await second.hang_up()

        await until(lambda: len(edge.rows()) == 1)
        (row,) = edge.rows()
        assert (row.status, row.phase, row.provider) == ("cancelled", "queued", "")
        assert server.count("accepted") == 1
        await first.hang_up()
        assert [row.status for row in await edge.settled(2)] == ["cancelled"] * 2


@both_ways
async def test_while_waiting_to_retry(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(refuses_for_now, caplog) as (edge, server), connect(edge.url) as client:
        await send(client, chat(stream=stream))
        await edge.phase_reached("retrying")

        await client.hang_up()

        rows = await edge.settled(2)
        assert [row.status for row in rows] == ["upstream_error", "cancelled"]
        assert rows[1].phase == "retrying"
        assert server.count("head") == 1


@both_ways
async def test_in_a_second_attempt(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    async with (
        scene(calls_no_tool_that_exists, caplog) as (edge, server),
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=stream, tools=[some_tool()]))
        await server.happened("body", times=2)

        await client.hang_up()

        with trio.fail_after(5):
            await server.client_left()
        rows = await edge.settled(2)
        assert [row.status for row in rows] == ["validation_failed", "cancelled"]


async def test_while_sending_to_a_client_that_reads_nothing_and_then_leaves(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scene(flood, caplog) as (edge, server),
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await send(client, chat(stream=True))
        await stalled(server)

        await client.reset()

        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()
        assert (row.status, row.category) == ("cancelled", "give_up")


async def test_a_client_that_reads_nothing_for_too_long_has_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        scene(flood, caplog, server="write_timeout_s = 0.2") as (edge, server),
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await send(client, chat(stream=True))
        await stalled(server)

        with trio.fail_after(5):
            await server.client_left()

        (row,) = await edge.settled()
        assert (row.status, row.category) == ("cancelled", "give_up")


@both_ways
async def test_a_normal_end_is_no_give_up(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Not even for a client that closes its connection the moment it has all it wanted."""

    async def answer(peer: Peer) -> None:
        while True:
            await peer.read_request()
            await peer.start_sse()
            await peer.send_chunk(event(CHUNK))
            await peer.send_chunk(event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
            await peer.send_chunk(b"data: [DONE]\n\n")
            await peer.end_chunks()

    async with scene(answer, caplog) as (edge, _):
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(partial(ask_once, edge.url, chat(stream=stream)))
        assert [row.status for row in await edge.settled(20)] == ["success"] * 20


async def leaving(client: RawClient, how: str) -> None:
    if how == "half_close":
        client.half_close()
    else:
        await (client.reset() if how == "reset" else client.hang_up())


async def stalled(server: RawServer) -> None:
    """Back-pressure has reached the provider: with everybody blocked, it still has to send."""
    await server.happened("sent", 3)
    await trio.testing.wait_all_tasks_blocked(0.05)


def some_tool() -> dict[str, object]:
    return {"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}
