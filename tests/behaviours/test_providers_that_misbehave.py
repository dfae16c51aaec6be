"""A provider may do what it likes: its client gets a sound answer or a typed error, in time.

Nothing it sends makes the gateway keep more than a bound, and nothing it does to one run is felt
by another. (``test_errors`` has the failures that well-meaning servers show, ``test_run_control``
the deadlines.)
"""

import tracemalloc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import trio

from edge.runs import attempt
from tests.fakes.gateway import (
    RunningGateway,
    ask,
    ask_once,
    chat,
    gateway,
    message,
    send,
    upstream_config,
)
from tests.fakes.raw_client import RawResponse, connect
from tests.fakes.raw_server import Peer, RawServer, chunk, head, raw_server
from tests.fakes.strict_client import payloads

Script = Callable[[Peer], Awaitable[None]]

MIB = 1024 * 1024
SSE = {"content-type": "text/event-stream"}
TUNNEL = {"output": 'validate = "off"\nbuffer = "off"\nmax_attempts = 1'}
ONE_TRY = {"output": "max_attempts = 1"}
DONE = b"data: [DONE]\n\n"

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
both_paths = pytest.mark.parametrize("tables", [ONE_TRY, TUNNEL], ids=["normalized", "tunnel"])


def event(**choice: Any) -> bytes:
    """An event with a chunk of one choice."""
    tree = {"choices": [{"index": 0, "delta": {}, "finish_reason": None, **choice}]}
    return b"data: " + orjson.dumps(tree) + b"\n\n"


def named(name: str) -> bytes:
    """An event with a piece of a tool's name."""
    return event(delta={"tool_calls": [{"index": 0, "function": {"name": name}}]})


WORD = event(delta={"content": "Hello"})
SOUND = WORD + event(finish_reason="stop") + DONE


@asynccontextmanager
async def scene(script: Script, **tables: str) -> AsyncGenerator[tuple[RunningGateway, RawServer]]:
    async with (
        raw_server(script) as server,
        gateway(upstream_config(server.url, **tables)) as edge,
    ):
        yield edge, server


def sent(server: RawServer) -> int:
    """Bytes that the provider got rid of."""
    return sum(len(each.detail) for each in server.events if each.kind == "sent")


def error_type(answer: RawResponse) -> str:
    """The type of the one error that an answer is, or ends in."""
    if answer.headers["content-type"] == "application/json":
        body = orjson.loads(answer.body)
    else:
        *chunks, failure, done = payloads(answer.body)
        assert done == "[DONE]"
        assert not any('"finish_reason":"' in each for each in chunks)
        body = orjson.loads(failure)
    found: str = body["error"]["type"]
    return found


def saying(data: bytes) -> Script:
    """Reads a request, sends these bytes, and waits for the gateway to leave."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)
        await peer.wait_closed()

    return script


def without_end(start: bytes, more: bytes) -> Script:
    """Sends ``start`` and then ``more`` for ever."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(start)
        while True:
            await peer.send(more)

    return script


STREAM = head(200, {**SSE, "transfer-encoding": "chunked"})
UNFRAMED = head(200, SSE)
K64 = b"x" * 65536
DEEP = b"[" * 100_000

ENDLESS = {
    "a head": (b"HTTP/1.1 200 OK\r\n", b"x-more: and more\r\n" * 1000),
    "one header": (b"HTTP/1.1 200 OK\r\nx-long: ", K64),
    "heads that are only information": (b"", b"HTTP/1.1 102 Wait\r\n\r\n" * 1000),
    "a line": (UNFRAMED + b"data: ", K64),
    "an event of many lines": (UNFRAMED, b"data: xxxxxxxxxxxxxxxx\n" * 1000),
    "an event that says nothing": (STREAM, chunk(b"event: x\n" * 5000)),
    "a chunk's length": (STREAM, b"0" * 65536),
    "a chunk's extension": (STREAM + b"5;x=", K64),
    "trailers": (STREAM + chunk(WORD) + b"0\r\n", b"x-more: and more\r\n" * 1000),
    "a body of JSON": (head(200, {"content-type": "application/json"}), K64),
    "an error": (head(500, {"content-type": "text/plain"}), K64),
    "choices": (
        STREAM,
        chunk(
            b'data: {"choices":[' + b",".join(b'{"index":%d}' % n for n in range(5000)) + b"]}\n\n"
        ),
    ),
    "arguments": (
        STREAM,
        chunk(event(delta={"tool_calls": [{"index": 0, "function": {"arguments": "x" * 50_000}}]})),
    ),
    "a tool's name": (STREAM, chunk(b"".join(named(letter * 50_000) for letter in "xy"))),
    "calls": (STREAM, chunk(event(delta={"tool_calls": [{"id": f"{n}"} for n in range(2000)]}))),
}


@pytest.mark.parametrize(("start", "more"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_what_never_ends_is_cut_off(start: bytes, more: bytes) -> None:
    tables = {**ONE_TRY, "provider": "idle_timeout_s = 2\nfirst_token_timeout_s = 2"}
    async with scene(without_end(start, more), **tables) as (edge, server):
        answer = await ask_once(edge.url, chat())
        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()

    assert answer.status in (502, 504)
    assert error_type(answer) in ("run_error", "run_timeout")
    assert row.status in ("upstream_error", "timeout")
    assert sent(server) < 64 * MIB or row.status == "timeout"


async def test_words_without_end_are_cut_off_behind_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that reads all of it does not make the gateway keep all of it."""
    monkeypatch.setattr(attempt, "MAX_ANSWER_CHARS", MIB)
    words = chunk(event(delta={"content": "word " * 5000}) * 4)
    async with scene(without_end(STREAM, words), **ONE_TRY) as (edge, _):
        answer = await ask_once(edge.url, chat(stream=True))
        (row,) = await edge.settled()

    assert error_type(answer) == "run_error"
    assert row.category == "too_large"
    assert MIB < len(answer.body) < 4 * MIB


@both_paths
async def test_a_flood_waits_for_a_client_that_does_not_read(tables: dict[str, str]) -> None:
    words = chunk(WORD * 500)
    async with (
        scene(without_end(STREAM, words), **tables) as (edge, server),
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await send(client, chat(stream=True))
        await client.head()
        stalled_at = await stalled(server)

        received = 0
        for _ in range(20):
            received += len(await client.chunk())
        assert stalled_at < 16 * MIB
        assert await stalled(server) - stalled_at < received + 4 * MIB
        await client.hang_up()
        assert (await edge.settled())[0].category == "give_up"


async def stalled(server: RawServer) -> int:
    """Wait until the provider gets rid of nothing any more; how much it did so far."""
    with trio.fail_after(20):
        while True:
            before = sent(server)
            await trio.sleep(0.3)
            if before and sent(server) == before:
                return before


@both_paths
async def test_an_answer_that_drips_arrives_whole(tables: dict[str, str]) -> None:
    async def drip(peer: Peer) -> None:
        await peer.read_request()
        for byte in UNFRAMED + SOUND:
            await peer.send(bytes([byte]))
            await trio.lowlevel.checkpoint()

    async with scene(drip, **tables) as (edge, _):
        answer = await ask_once(edge.url, chat(stream=True))

    assert b"Hello" in answer.body
    assert payloads(answer.body)[-1] == "[DONE]"


@both_ways
async def test_a_drip_that_completes_nothing_is_silence(stream: bool) -> None:
    async def drip(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(UNFRAMED + WORD + b"data: {")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(peer.wait_closed)
            while True:
                await peer.send(b" ")
                await trio.sleep(0.01)

    tables = {**ONE_TRY, "provider": "idle_timeout_s = 0.3"}
    async with scene(drip, **tables) as (edge, server):
        answer = await ask_once(edge.url, chat(stream=stream))
        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()

    assert error_type(answer) == "run_timeout"
    assert (row.status, row.category) == ("timeout", "idle_timeout")


@both_paths
@pytest.mark.parametrize("status", [101, 204, 301, 302, 303, 304, 307, 308, 999])
async def test_a_status_that_is_no_answer(status: int, tables: dict[str, str]) -> None:
    async def elsewhere(peer: Peer) -> None:
        await peer.read_request()

    async with raw_server(elsewhere) as other:
        location = {"location": f"{other.url}/v1/chat/completions", "content-length": "0"}
        async with scene(saying(head(status, location)), **tables) as (edge, _):
            answer = await ask_once(edge.url, chat(stream=True))
            (row,) = await edge.settled()

        assert (answer.status, error_type(answer)) == (502, "run_error")
        assert "location" not in answer.headers
        assert row.status == "upstream_error"
        assert other.events == [], "redirects are not followed"


FRAMED = head(200, {**SSE, "content-length": str(len(SOUND))})

WRONG = {
    "two lengths": head(200, {**SSE, "content-length": "5", "Content-Length": "6"}) + SOUND,
    "a length that is no number": head(200, {**SSE, "content-length": "many"}) + SOUND,
    "a negative length": head(200, {**SSE, "content-length": "-1"}) + SOUND,
    "a length beside chunks": head(
        200, {**SSE, "content-length": "5", "transfer-encoding": "chunked"}
    )
    + chunk(SOUND)
    + b"0\r\n\r\n",
    "a chunk that is longer than it says": STREAM + b"3\r\n" + SOUND,
    "a chunk length that is no number": STREAM + b"xyz\r\n" + SOUND,
    "another version": FRAMED.replace(b"HTTP/1.1", b"HTTP/2.0") + SOUND,
    "another protocol": b"220 mail.invalid ESMTP\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n" + SOUND,
    "a header of two lines": b"HTTP/1.1 200 OK\r\na: b\r\n c\r\n\r\n" + SOUND,
    "nothing": b"",
    "nulls": b"\0" * 1000,
    "compressed": head(200, {**SSE, "content-encoding": "gzip"}) + b"\x1f\x8b\x08",
    "a coding that nobody asked for": head(200, {**SSE, "transfer-encoding": "gzip, chunked"}),
    "JSON that is too deep": UNFRAMED + b"data: " + DEEP + b"\n\n",
    "JSON that is no object": UNFRAMED + b"data: 1e400\n\n",
    "choices that are no list": UNFRAMED + b'data: {"choices": {"a": 1}}\n\n' + DONE,
    "bytes that are no UTF-8": UNFRAMED + b'data: {"choices": "\xff\xfe"}\n\n' + DONE,
    "half a pair in its text": UNFRAMED
    + rb'data: {"choices":[{"delta":{"content":"\ud800"}}]}'
    + b"\n\n"
    + DONE,
    "a number without bounds": UNFRAMED + b'data: {"choices":[],"created":1e400}\n\n' + DONE,
    "half a pair of surrogates": UNFRAMED + b'data: {"choices": "\\ud800"}\n\n' + DONE,
}


def breaking_off(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)
        peer.end()
        await peer.wait_closed()

    return script


@both_ways
@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
async def test_an_answer_with(data: bytes, stream: bool) -> None:
    async with scene(breaking_off(data), **ONE_TRY) as (edge, server):
        answer = await ask_once(edge.url, chat(stream=stream))
        with trio.fail_after(5):
            await server.client_left()
        (row,) = await edge.settled()

    assert error_type(answer) == "run_error"
    assert answer.status == (200 if answer.headers["content-type"] != "application/json" else 502)
    assert row.status == "upstream_error"


ODD = {
    "a null character": rb'{"choices":[{"delta":{"content":"Hello\u0000"}}]}',
    "a key given twice": rb'{"choices":[],"choices":[{"delta":{"content":"Hello"}}]}',
    "choices of odd kinds": rb'{"choices":[7,null,{"delta":[]},{"delta":{"content":"Hello"}}]}',
    "fields of odd kinds": rb'{"choices":[{"index":"x","delta":{"content":"Hello","role":3}}]}',
    "calls that are none": rb'{"choices":[{"delta":{"content":"Hello","tool_calls":5}}]}',
    "usage that is none": rb'{"choices":[{"delta":{"content":"Hello"}}],"usage":{"total":[]}}',
    "usage of odd kinds": rb'{"choices":[{"delta":{"content":"Hello"}}],"usage":"much"}',
}


@both_ways
@pytest.mark.parametrize("payload", ODD.values(), ids=ODD.keys())
async def test_an_answer_is_given_in_spite_of(payload: bytes, stream: bool) -> None:
    events = b"data: " + payload + b"\n\n" + event(finish_reason="stop") + DONE
    async with scene(breaking_off(UNFRAMED + events), **ONE_TRY) as (edge, _):
        answer = await ask_once(edge.url, chat(stream=stream))

    assert message(answer)["content"].startswith("Hello")


def answering_first(first: bytes) -> Script:
    """Its first answer is ``first``, all that follow are sound."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(first if peer.number == 1 else FRAMED + SOUND)
        while True:
            await peer.read_request()
            await peer.send(FRAMED + SOUND)

    return script


POISON = event(delta={"content": "Poison"}) + event(finish_reason="stop") + DONE

AND_THEN = {
    "garbage behind [DONE]": head(200, {**SSE, "transfer-encoding": "chunked"})
    + chunk(SOUND + POISON)
    + b"0\r\n\r\n",
    "bytes behind its length": FRAMED + SOUND + b"garbage",
    "an answer to what was not asked": FRAMED + SOUND + FRAMED.replace(b"200", b"203") + POISON,
    "a body behind 0 chunks": STREAM + chunk(SOUND) + b"0\r\n\r\n" + FRAMED + POISON,
}


@both_paths
@pytest.mark.parametrize("first", AND_THEN.values(), ids=AND_THEN.keys())
async def test_what_follows_an_answer_is_nobodys(first: bytes, tables: dict[str, str]) -> None:
    async with (
        scene(answering_first(first), **tables) as (edge, _),
        connect(edge.url) as client,
    ):
        answers = [await ask(client, chat(stream=True)) for _ in range(3)]
        await edge.settled(3)

    tunnelled = tables is TUNNEL and "[DONE]" in first.decode()
    for number, answer in enumerate(answers):
        assert answer.status == 200
        if number or not tunnelled:
            assert b"Hello" in answer.body
            assert b"Poison" not in answer.body
            assert payloads(answer.body)[-1] == "[DONE]"


@both_paths
async def test_an_answer_given_before_the_request_was_sent(tables: dict[str, str]) -> None:
    """A large request is not sent to its end, and its connection is not used again."""
    refusal = b'{"error": {"message": "too long", "type": "invalid_request_error"}}'

    async def hasty(peer: Peer) -> None:
        await peer.read_head()
        await peer.send_answer(413, refusal)
        await peer.wait_closed()

    async with (
        raw_server(hasty, receive_buffer=4096) as server,
        gateway(upstream_config(server.url, **tables)) as edge,
    ):
        answer = await ask_once(edge.url, chat("x" * 8 * MIB))
        await ask_once(edge.url, chat("x"))
        await edge.settled(2)

    assert (answer.status, answer.body) == (413, refusal)
    assert server.count("accepted") == 2


@both_paths
async def test_an_answer_sent_before_anybody_asked_is_not_taken(tables: dict[str, str]) -> None:
    async def eager(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(FRAMED + SOUND)
        await peer.send(FRAMED + POISON.ljust(len(SOUND))[: len(SOUND)])
        await peer.wait_closed()

    async with scene(eager, **tables) as (edge, server):
        first = await ask_once(edge.url, chat(stream=True))
        await server.happened("sent", times=2)
        second = await ask_once(edge.url, chat(stream=True))

    assert b"Poison" not in first.body + second.body
    assert server.count("accepted") == 2


async def test_a_line_of_a_gigabyte_passes_through_and_is_not_kept() -> None:
    """Where bytes pass through, there is no bound on a line, and no memory of it either."""
    async with (
        scene(without_end(UNFRAMED + b"data: ", K64), **TUNNEL) as (edge, _),
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await client.head()
        tracemalloc.start()
        received = 0
        while received < 128 * MIB:
            received += len(await client.chunk())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await client.hang_up()
        await edge.settled()

    assert peak < 8 * MIB
