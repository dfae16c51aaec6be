"""WebSocket clients that flood or break the protocol: bounded, told why, and nobody notices."""

import os
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from tests.fakes.gateway import (
    CHAT,
    RunningGateway,
    ask_once,
    chat,
    gateway,
    until,
    upstream_config,
)
from tests.fakes.openai_scripts import streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import RawClient, connect
from tests.fakes.socket_bytes import (
    BINARY,
    CLOSE,
    CONTINUATION,
    HANDSHAKE,
    PING,
    PONG,
    TEXT,
    client_frame,
    close_codes,
)

MIRROR = "/v1/mirror"
KIB = 1024
MIB = 1024 * KIB

both = pytest.mark.parametrize("path", [CHAT, MIRROR])


@asynccontextmanager
async def scene(**tables: str) -> AsyncGenerator[RunningGateway]:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url, **tables)) as edge,
    ):
        yield edge


@asynccontextmanager
async def opened(edge: RunningGateway, path: str) -> AsyncGenerator[RawClient]:
    """A WebSocket whose handshake is done, to write frames on by hand."""
    async with connect(edge.url) as client:
        await client.request(path, headers=HANDSHAKE)
        assert (await client.head()).status == 101
        yield client


WRONG = {
    "a frame without a mask": (client_frame(TEXT, b"{}", masked=False), 1002),
    "a compressed frame": (client_frame(TEXT, b"\xaa\x56\x2a", reserved=4), 1002),
    "a reserved bit": (client_frame(TEXT, b"{}", reserved=1), 1002),
    "an opcode that is none": (client_frame(0x3, b"{}"), 1002),
    "a ping of 126 bytes": (client_frame(PING, b"x" * 126), 1002),
    "a ping in parts": (client_frame(PING, b"x", final=False), 1002),
    "a close of 126 bytes": (client_frame(CLOSE, b"\x03\xe8" + b"x" * 124), 1002),
    "a close of one byte": (client_frame(CLOSE, b"\x03"), 1002),
    "a close that says what nobody may": (client_frame(CLOSE, b"\x03\xed"), 1002),
    "a length in more bytes than it needs": (b"\x81\xfe\x00\x05\x01\x02\x03\x04hello", 1002),
    "a length that is negative": (b"\x81\xff" + b"\xff" * 8 + b"\x01\x02\x03\x04", 1002),
    "the middle of no message": (client_frame(CONTINUATION, b"{}"), 1002),
    "a message inside of another": (
        client_frame(TEXT, b"{", final=False) + client_frame(TEXT, b"{}"),
        1002,
    ),
    "text that is no UTF-8": (client_frame(TEXT, b"\xff\xfe"), 1007),
    "half a character": (client_frame(TEXT, b"\xe2\x82"), 1007),
}


@both
@pytest.mark.parametrize("name", WRONG)
async def test_what_breaks_the_protocol_is_told_by_its_code(path: str, name: str) -> None:
    frames, code = WRONG[name]
    async with scene() as edge, opened(edge, path) as client:
        await client.send(frames)

        assert close_codes(await client.until_closed()) == [code]
        assert (await ask_once(edge.url, chat())).status == 200


HUGE = 1 << 40
SHORT = "max_frames_per_s = 10"
LONG = "max_body_bytes = 200000"
FLOODS = {
    "pings": (SHORT, b"", client_frame(PING) * 100, 1008),
    "pongs": (SHORT, b"", client_frame(PONG, b"x" * 125) * 100, 1008),
    "messages without a byte": (SHORT, b"", client_frame(TEXT) * 100, 1008),
    "tiny messages": (SHORT, b"", client_frame(TEXT, b"{}") * 100, 1008),
    "binary messages": (SHORT, b"", client_frame(BINARY, b"\x00") * 100, 1008),
    "parts without a byte": (
        SHORT,
        client_frame(TEXT, final=False),
        client_frame(CONTINUATION, final=False) * 100,
        1008,
    ),
    "parts without end": (
        LONG,
        client_frame(TEXT, final=False),
        client_frame(CONTINUATION, b"x" * 4096, final=False),
        1009,
    ),
    "wide characters": (
        LONG,
        client_frame(TEXT, final=False),
        client_frame(CONTINUATION, "𝄞".encode() * 1024, final=False),
        1009,
    ),
    "a frame of a terabyte": (
        LONG,
        client_frame(TEXT, b"", declared=HUGE),
        b"x" * 65536,
        1009,
    ),
}


@both
@pytest.mark.parametrize("name", FLOODS)
async def test_a_flood_of(path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flood goes on behind the close frame, until it is cut; a bystander is answered."""
    monkeypatch.setattr("edge.server.websocket_upgrade._LINGER_S", 0.2)
    bound, start, more, code = FLOODS[name]
    async with scene(server=bound) as edge:
        assert (await ask_once(edge.url, chat())).status == 200
        tracemalloc.start()
        try:
            async with opened(edge, path) as client, trio.open_nursery() as nursery:
                await client.send(start)
                nursery.start_soon(partial(flood, client, more, pause_s=0.003))
                assert (await ask_once(edge.url, chat())).status == 200
                told = await client.until_gone()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert close_codes(told) == [code]
    assert peak < 6 * MIB


async def flood(client: RawClient, data: bytes, *, pause_s: float = 0) -> None:
    """Send the same again and again, for as long as the connection holds."""
    try:
        while True:
            await client.send(data)
            await trio.sleep(pause_s)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


@both
async def test_pings_whose_pongs_nobody_reads_end_the_socket(path: str) -> None:
    bounds = "write_timeout_s = 0.2\nmax_frames_per_s = 1000000"
    async with scene(server=bounds) as edge, connect(edge.url, receive_buffer=4096) as client:
        await client.request(path, headers=HANDSHAKE)
        with trio.fail_after(30):
            await flood(client, client_frame(PING, b"x" * 125) * 100)
        assert (await ask_once(edge.url, chat())).status == 200


@both
async def test_compression_is_not_agreed_to(path: str) -> None:
    offers = [*HANDSHAKE, ("Sec-WebSocket-Extensions", "permessage-deflate")]
    async with scene() as edge, connect(edge.url) as client:
        await client.request(path, headers=offers)
        answer = await client.head()

    assert answer.status == 101
    assert "sec-websocket-extensions" not in answer.headers


REFUSED = {
    "another version": [*HANDSHAKE[:2], ("Sec-WebSocket-Version", "8"), HANDSHAKE[3]],
    "no key": HANDSHAKE[:3],
    "two minds about the connection": [*HANDSHAKE, ("Connection", "keep-alive")],
}


@both
@pytest.mark.parametrize("name", REFUSED)
async def test_a_handshake_that_is_none_is_refused_and_its_connection_ended(
    path: str, name: str
) -> None:
    async with scene() as edge, connect(edge.url) as client:
        await client.request(path, headers=REFUSED[name])
        answer = await client.response()

        assert answer.status == 400
        assert await client.until_closed() == b""


@both
async def test_a_handshake_that_is_never_finished_ends_its_connection(path: str) -> None:
    async with scene(server="header_timeout_s = 0.2") as edge, connect(edge.url) as client:
        await client.send(
            f"GET {path} HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\n".encode()
        )

        assert await client.until_closed() == b""


@both
async def test_frames_ahead_of_the_answer_leave_nothing_behind(path: str) -> None:
    lines = "".join(f"{name}: {value}\r\n" for name, value in HANDSHAKE)
    opening = f"GET {path} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n".encode()
    async with scene() as edge:
        assert (await ask_once(edge.url, chat())).status == 200
        await trio.testing.wait_all_tasks_blocked()
        before = tasks()
        async with connect(edge.url) as client:
            await client.send(opening + client_frame(TEXT, b"{}"))
            answer = await client.response()
            assert await client.until_closed() == b""
        await until(lambda: tasks() <= before)

    assert answer.status == 400


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


OPEN = 150


async def test_hundreds_of_open_sockets_cost_little_and_nobody_notices() -> None:
    async with scene() as edge, AsyncExitStack() as stack:
        assert (await ask_once(edge.url, chat())).status == 200
        before, tasks_before = descriptors(), tasks()
        tracemalloc.start()
        try:
            clients = [
                await stack.enter_async_context(opened(edge, path))
                for path in (CHAT, MIRROR) * (OPEN // 2)
            ]
            assert (await ask_once(edge.url, chat())).status == 200
            cost = tracemalloc.get_traced_memory()[0] / OPEN
        finally:
            tracemalloc.stop()
        assert descriptors() - before >= 2 * OPEN
        await clients[0].send(client_frame(PING, b"still here"))
        assert await clients[0].exactly(12) == b"\x8a\x0astill here"
        await stack.aclose()
        await until(lambda: descriptors() <= before + 2 and tasks() <= tasks_before + 1)

    assert cost < 64 * KIB, "memory of both ends of a socket"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
