"""A client may do what it likes: it gets a clean answer or a clean close, and nobody else notices.

Every bound is a setting of ``[server]``. (``test_give_up`` has the clients that leave or stop
reading, ``tests/server`` the rules of one connection.)
"""

import gc
import os
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from tests.fakes.gateway import (
    CHAT,
    RunningGateway,
    ask,
    ask_once,
    chat,
    gateway,
    message,
    send,
    until,
    upstream_config,
)
from tests.fakes.openai_scripts import streams
from tests.fakes.openai_server import OpenAIServer, Script, openai_server
from tests.fakes.raw_client import RawClient, RawResponse, connect

KIB, MIB = 1024, 1024 * 1024
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: gateway\r\n".encode()


@asynccontextmanager
async def scene(
    *scripts: Script, **tables: str
) -> AsyncGenerator[tuple[RunningGateway, OpenAIServer]]:
    """A gateway, and at the end of the test a well-behaved client that is served as ever."""
    async with (
        openai_server(*scripts) as upstream,
        gateway(upstream_config(upstream.base_url, **tables)) as edge,
    ):
        yield edge, upstream
        assert message(await ask_once(edge.url, chat()))["content"]
        await edge.settled()


async def refused(client: RawClient) -> RawResponse:
    """An answer that says what was wrong, after which the connection is closed."""
    answer = await client.response()
    assert await client.until_gone() == b""
    return answer


async def trickle(client: RawClient, data: bytes) -> None:
    """Send ``data`` again and again, until the gateway has had enough."""
    try:
        while True:
            await client.send(data)
            await trio.sleep(0.01)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def test_a_head_that_trickles_ends_its_connection() -> None:
    async with (
        scene(server="header_timeout_s = 0.3") as (edge, _),
        connect(edge.url) as client,
        trio.open_nursery() as nursery,
    ):
        await client.send(HEAD)
        nursery.start_soon(trickle, client, b"X-More: more\r\n")

        assert await client.until_gone() == b""
        nursery.cancel_scope.cancel()


ENDLESS_BODIES = {
    "a body": b"Content-Length: 1000000\r\n\r\n" + b"{" + b" " * 10,
    "a chunk": b"Transfer-Encoding: chunked\r\n\r\nffff\r\n{",
    "a chunk's extension": b"Transfer-Encoding: chunked\r\n\r\n5;x=",
    "trailers": b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
}


@pytest.mark.parametrize("start", ENDLESS_BODIES.values(), ids=ENDLESS_BODIES.keys())
async def test_a_body_that_trickles_is_a_408(start: bytes) -> None:
    more = b"x: y\r\n" if start.endswith(b"0\r\n") else b" " * 10
    async with (
        scene(server="body_timeout_s = 0.3") as (edge, upstream),
        connect(edge.url) as client,
        trio.open_nursery() as nursery,
    ):
        await client.send(HEAD + start)
        nursery.start_soon(trickle, client, more)

        answer = await client.response()
        assert await client.until_gone() == b""
        nursery.cancel_scope.cancel()

        assert answer.status in (408, 400)
        assert upstream.asked == []


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (b"X-Long: " + b"x" * 70_000, 431),
        (b"X-More: y\r\n" * 3000, 431),
        (b"X-" + b"y" * 70_000 + b": z", 431),
        (b"Content-Length: 2000000\r\n\r\n", 413),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n", 413),
    ],
    ids=["a header", "headers", "a header's name", "a body", "chunks without end"],
)
async def test_too_much_of(more: bytes, status: int) -> None:
    async with (
        scene(server="max_body_bytes = 1000000\nmax_head_bytes = 65536") as (edge, upstream),
        connect(edge.url) as client,
        trio.open_nursery() as nursery,
    ):
        await client.send(HEAD)
        if b"chunked" in more:
            start, _, chunk = more.partition(b"\r\n\r\n")
            await client.send(start + b"\r\n\r\n")
            nursery.start_soon(trickle, client, chunk)
        else:
            await client.send(more + b"\r\n\r\n")

        answer = await refused(client)
        nursery.cancel_scope.cancel()

        assert answer.status == status
        assert upstream.asked == []


async def test_an_address_that_is_too_long_is_a_431() -> None:
    async with scene() as (edge, _), connect(edge.url) as client:
        await client.request("/" + "x" * 100_000)

        assert (await refused(client)).status == 431


BODIES = {
    "no UTF-8": (b'{"model": "m\xff", "messages": []}', 400),
    "a null character": (b'{"model": "m\0", "messages": []}', 400),
    "nothing but null characters": (b"\0" * 1000, 400),
    "half a pair of surrogates": (
        rb'{"model": "m", "messages": [{"role": "user", "content": "\ud800"}]}',
        400,
    ),
    "a number without bounds": (
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "seed": 1e400}',
        400,
    ),
    "a number of too many digits": (
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "seed": '
        + b"1" * 10_000
        + b"}",
        400,
    ),
    "a key given twice": (
        b'{"model": "a", "model": "m", "messages": [{"role": "user", "content": "x"}]}',
        200,
    ),
    "a second value": (b'{"model": "m", "messages": [{"role": "user", "content": "x"}]} {}', 400),
    "100,000 levels": (
        b'{"model": "m", "messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        400,
    ),
    "100,000 open levels": (b'{"model": ' + b'{"a":' * 100_000, 400),
    "a million empty messages": (b'{"model": "m", "messages": [' + b"{}," * 10**6 + b"{}]}", 400),
    "a million calls": (
        b'{"model": "m", "messages": [{"role": "assistant", "tool_calls": ['
        + b"{}," * 10**6
        + b"{}]}]}",
        400,
    ),
    "a million tools": (
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": ['
        + b"{}," * 10**6
        + b"{}]}",
        400,
    ),
    "no object": (b"[]", 400),
    "nothing": (b"", 400),
}


@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES.keys())
async def test_a_body_with(body: bytes, status: int) -> None:
    async with scene() as (edge, upstream), connect(edge.url) as client:
        answer = await client.post(CHAT, body)

        assert answer.status == status
        assert len(answer.body) < 10 * KIB
        if status == 200:
            assert upstream.asked[0].raw.count(b'"model"') == 1
        else:
            assert upstream.asked == []
            assert b'"invalid_request_error"' in answer.body
        assert (await ask(client, chat())).status == 200, "the connection goes on"


async def test_a_client_that_waits_to_be_asked_for_its_body_is_asked() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    expecting = b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with scene() as (edge, _), connect(edge.url) as client:
        await client.send(HEAD + expecting)
        go_on = await client.head()
        await client.send(body)
        answer = await client.response()

        assert (go_on.status, answer.status) == (100, 200)


async def test_a_client_without_a_key_is_not_asked_for_its_body(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "secret")
    keys = '[[keys]]\nname = "a"\nkey = "env:EDGE_TEST_KEY"\n'
    async with (
        openai_server() as upstream,
        gateway(upstream_config(upstream.base_url) + keys) as edge,
        connect(edge.url) as client,
    ):
        await client.send(HEAD + b"Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n")

        assert (await refused(client)).status == 401


async def test_what_is_sent_ahead_is_answered_once_or_dropped() -> None:
    request = b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}'
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(request) + request
    async with scene() as (edge, upstream), connect(edge.url) as client:
        await client.send(one * 50)
        answers = 0
        while (await client.response()).status == 200:
            answers += 1
            if answers == 2:
                break

        assert await client.until_closed() == b""
        await edge.settled(2)
        assert len(upstream.asked) == 2


@pytest.mark.parametrize(
    "opening", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/2.0\r\n\r\n"]
)
async def test_http2_is_refused(opening: bytes) -> None:
    async with scene() as (edge, _), connect(edge.url) as client:
        await client.send(opening + b"\0\0\x12\x04\0\0\0\0\0" * 10)

        assert (await refused(client)).status == 505


async def test_an_offer_of_http2_is_passed_over() -> None:
    offer = [
        ("Connection", "Upgrade, HTTP2-Settings"),
        ("Upgrade", "h2c"),
        ("HTTP2-Settings", "AA"),
    ]
    async with scene() as (edge, _), connect(edge.url) as client:
        assert (await ask(client, chat(), *offer)).status == 200


SMUGGLED = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nabcde",
    "a length beside chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks by another name": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks twice": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "chunks not last": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Content-Length : 5\r\n\r\nabcde",
    "a folded header": b"X-A: b\r\n Content-Length: 5\r\n\r\nabcde",
    "a bare line feed": b"X-A: b\nContent-Length: 5\r\n\r\nabcde",
    "a bare carriage return": b"X-A: b\rContent-Length: 5\r\n\r\nabcde",
    "a null in a header": b"X-A: b\0c\r\n\r\n",
    "a length with a sign": b"Content-Length: +5\r\n\r\nabcde",
    "a length in hexadecimal": b"Content-Length: 0x5\r\n\r\nabcde",
    "a chunk length with a sign": b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
    "a chunk length beyond 64 bits": b"Transfer-Encoding: chunked\r\n\r\n1ffffffffffffffff\r\n",
    "chunks that end in line feeds": b"Transfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
    "two hosts": b"Host: other\r\n\r\n",
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED.keys())
async def test_a_request_that_two_readers_may_read_otherwise_is_refused(rest: bytes) -> None:
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: gateway\r\n\r\n"
    async with scene() as (edge, upstream), connect(edge.url) as client:
        await client.send(HEAD + rest + smuggled)

        told = 501 if rest == SMUGGLED["chunks by another name"] else 400
        assert (await refused(client)).status == told
        assert upstream.asked == []


LIVELY = 1000


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_thousand_idle_connections_cost_little_and_nobody_notices() -> None:
    half = HEAD + b"X-Long: " + b"x" * 1000
    async with scene() as (edge, _), AsyncExitStack() as stack:
        await ask_once(edge.url, chat())
        before, open_before = await memory(), descriptors()
        clients = [await stack.enter_async_context(connect(edge.url)) for _ in range(LIVELY)]
        for number, client in enumerate(clients):
            if number % 2:
                await client.send(half)
        assert (await ask_once(edge.url, chat())).status == 200
        assert descriptors() - open_before >= 2 * LIVELY

        cost = (await memory() - before) / LIVELY
        assert cost < 64 * KIB, "memory of both ends of a connection"
        assert (await ask(clients[0], chat())).status == 200, "they can be used all the same"
        await stack.aclose()
        await until(lambda: descriptors() <= open_before + 2)  # one of them to the provider
        tracemalloc.stop()


async def memory() -> int:
    """Bytes that are held by what has been made since this was first asked."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    await trio.testing.wait_all_tasks_blocked()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def test_where_connections_run_out_idle_ones_go_first() -> None:
    pause = trio.Event()
    async with (
        scene(streams("Hel", pause, "lo"), server="max_connections = 3") as (edge, _),
        AsyncExitStack() as stack,
    ):
        busy, idle, half = [await stack.enter_async_context(connect(edge.url)) for _ in range(3)]
        await send(busy, chat(stream=True))
        await busy.head()
        await half.send(HEAD)
        await trio.testing.wait_all_tasks_blocked()

        first, second = [await stack.enter_async_context(connect(edge.url)) for _ in range(2)]
        for client in (first, second):
            await send(client, chat(stream=True))
            await client.head()
        assert await idle.until_closed() == b""
        assert await half.until_closed() == b""

        one_too_many = await stack.enter_async_context(connect(edge.url))
        assert await one_too_many.until_closed() == b""
        pause.set()
        for client in (busy, first, second):
            assert b"[DONE]" in await client.rest_of_chunks()
        for client in (busy, first, second):
            await client.hang_up()
        await trio.testing.wait_all_tasks_blocked()
