"""How tunnelled runs fail and end: the same as any others, and never by half an answer."""

import json
import logging

import orjson
import pytest
import trio

from edge.core.run_events import AttemptEnded
from tests.fakes.gateway import CHAT, ask, chat, gateway, send
from tests.fakes.openai_scripts import answers, error, hangs_up, refuses, silent, streams
from tests.fakes.openai_server import (
    DONE,
    USAGE,
    Answer,
    Break,
    Script,
    openai_server,
)
from tests.fakes.raw_client import connect
from tests.fakes.tunnelled import OFF, WORD, config, frames, reached, scene, until

# Failures.


@pytest.mark.parametrize(
    "fails",
    [
        hangs_up,
        refuses(408),
        refuses(409),
        refuses(429),
        refuses(503),
        streams(error("no memory"), role=False),
        frames(b": hello\n\n" + error("no memory") + WORD + DONE, 1 << 16),
        streams(Break.RESET, role=False),
        frames(b"", 1),
    ],
    ids=[
        "hang-up",
        "408",
        "409",
        "429",
        "503",
        "error event",
        "error among others",
        "reset",
        "nothing",
    ],
)
async def test_before_the_first_byte_another_provider_is_asked(fails: Script) -> None:
    async with (
        openai_server(fails) as first,
        openai_server(streams("Hello")) as second,
        gateway(config(first, second)) as edge,
        connect(edge.url) as client,
    ):
        answer = await ask(client, chat(stream=True))
        rows = await edge.settled(2)

    assert answer.status == 200
    assert b"Hello" in answer.body
    assert answer.headers["x-edge-provider"] == "gpu2"
    assert answer.headers["x-edge-attempts"] == "2"
    assert [row.status for row in rows] == ["upstream_error", "success"]
    assert {row.path for row in rows} == {"tunnel"}


async def test_a_provider_that_keeps_failing_is_left_alone() -> None:
    async with (
        openai_server(refuses(503)) as first,
        openai_server() as second,
        gateway(config(first, second)) as edge,
        connect(edge.url) as client,
    ):
        for _ in range(12):
            assert (await ask(client, chat())).status == 200

        assert len(first.asked) < 12
        assert len(second.asked) == 12


@pytest.mark.parametrize("how", [Break.CLOSE, Break.RESET])
async def test_a_stream_that_breaks_between_events_ends_in_an_error_event(how: Break) -> None:
    async with scene(streams(WORD, how, role=False)) as (client, upstream, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    begun, told, done = answer.body.split(b"\n\n")[:3]
    assert begun + b"\n\n" == WORD
    assert json.loads(told.removeprefix(b"data: "))["error"]["type"] == "run_error"
    assert done == b"data: [DONE]"
    assert (row.status, row.bytes_out) == ("upstream_error", len(WORD))
    assert upstream.count("asked") == 1, "nothing is retried after the commit point"


async def test_a_stream_that_breaks_inside_an_event_is_cut(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with scene(streams(WORD + WORD[:50], Break.CLOSE, role=False)) as (client, _, edge):
        await send(client, chat(stream=True))
        await client.head()
        raw = await client.until_closed()
        (row,) = await edge.settled()

    assert b"error" not in raw
    assert not raw.endswith(b"0\r\n\r\n"), "no clean end"
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert row.status == "upstream_error"


async def test_what_may_be_the_usage_event_is_dropped_when_the_stream_breaks_in_it() -> None:
    async with scene(streams(WORD + b'data: {"choices":[],"us', Break.CLOSE, role=False)) as (
        client,
        _,
        _edge,
    ):
        answer = await ask(client, chat(stream=True))

    assert answer.body.startswith(WORD + b'data: {"error"')


async def test_a_body_that_breaks_off_is_cut() -> None:
    async def script(answer: Answer) -> None:
        await answer._send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            "started",
        )
        await answer.break_off(Break.CLOSE)

    async with scene(script) as (client, _, edge):
        await send(client, chat())
        head = await client.head()
        rest = await client.until_closed()
        (row,) = await edge.settled()

    assert (head.headers["content-length"], rest) == ("99", b"{")
    assert row.status == "upstream_error"


async def test_a_stream_without_its_end_is_no_success() -> None:
    async with scene(streams("Hel", finish=None, done=False, usage=None)) as (client, _, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    assert b'"type":"run_error"' in answer.body
    assert (row.status, row.category) == ("upstream_error", "protocol")


@pytest.mark.parametrize("after", [Break.RESET, trio.Event()], ids=["breaks", "lingers"])
async def test_what_happens_behind_done_harms_nobody(after: Break | trio.Event) -> None:
    async with scene(streams("Hello", DONE, after)) as (client, upstream, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()
        await upstream.happened("closed" if isinstance(after, trio.Event) else "broke")

    assert answer.body.endswith(DONE)
    assert row.status == "success"


async def test_a_client_that_leaves_with_done_has_not_given_up() -> None:
    async with scene(streams("Hello", DONE, trio.Event())) as (client, upstream, edge):
        await send(client, chat(stream=True))
        await client._until(DONE)
        await client.hang_up()
        await upstream.raw.client_left()
        (row,) = await edge.settled()

    assert row.status == "success"


@pytest.mark.parametrize(
    ("script", "stream", "category", "status"),
    [
        (silent, True, "first_token_timeout", 504),
        (streams("Hel", trio.Event()), True, "idle_timeout", 200),
    ],
)
async def test_a_silent_provider_is_given_up_on(
    script: Script, stream: bool, category: str, status: int
) -> None:
    waits = "first_token_timeout_s = 0.3\nidle_timeout_s = 0.1"
    async with scene(script, provider=waits, output=f"{OFF}\nmax_attempts = 1") as (
        client,
        upstream,
        edge,
    ):
        answer = await ask(client, chat(stream=stream))
        (row,) = await edge.settled()
        await upstream.raw.client_left()

    assert answer.status == status
    assert b'"type":"run_timeout"' in answer.body
    assert (row.status, row.category) == ("timeout", category)


async def test_an_answer_that_is_not_streamed_has_no_first_token_to_wait_for() -> None:
    ready = trio.Event()
    async with scene(
        answers(200, {"usage": USAGE}, first=[ready]),
        provider="first_token_timeout_s = 0.05",
        output=f"{OFF}\nmax_attempts = 1",
    ) as (client, upstream, _):
        await send(client, chat())
        await upstream.happened("asked")
        await trio.sleep(0.1)
        ready.set()

        assert (await client.response()).status == 200


async def test_a_run_has_its_time() -> None:
    async with scene(silent, output=f"{OFF}\nrun_timeout_s = 0.1") as (client, upstream, edge):
        answer = await ask(client, chat())
        (row,) = await edge.settled()
        await upstream.raw.client_left()

    assert answer.status == 504
    assert (row.status, row.category) == ("timeout", "run_timeout")


# The end from outside.


async def silent_after_head(answer: Answer) -> None:
    await answer.start()
    await trio.sleep_forever()


async def words_without_end(answer: Answer) -> None:
    await answer.start()
    while True:
        await answer.send(WORD)
        await trio.sleep(0.001)


PHASES = pytest.mark.parametrize(
    ("script", "phase"),
    [
        (silent, "connecting"),
        (silent_after_head, "waiting"),
        (streams("Hel", trio.Event()), "streaming"),
        (words_without_end, "streaming"),
    ],
    ids=["no head", "no first byte", "silence in mid-answer", "streaming"],
)


@PHASES
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_client_that_leaves_ends_it_at_the_provider(
    script: Script, phase: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(script) as (client, upstream, edge):
        await client.request(path, method="POST", body=orjson.dumps(chat(stream=True)))
        await upstream.happened("asked")
        await reached(edge, phase)

        await client.hang_up()

        await upstream.raw.client_left()
        (row,) = await edge.settled()
    assert given_up(row) == ("cancelled", "give_up", phase)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("tables", [{"provider": "max_concurrent = 1"}, {"limits": "max_runs = 1"}])
async def test_a_client_that_leaves_the_queue(tables: dict[str, str]) -> None:
    async with scene(words_without_end, **tables) as (first, upstream, edge):
        await send(first, chat(stream=True))
        await reached(edge, "streaming")
        async with connect(edge.url) as second:
            await send(second, chat(stream=True))
            await reached(edge, "queued")
            await second.hang_up()
            await until(lambda: bool(edge.rows()))
        assert given_up(edge.rows()[0]) == ("cancelled", "give_up", "queued")
        assert len(upstream.asked) == 1
        await first.hang_up()
        await edge.settled(2)


async def test_a_client_that_leaves_the_pause_before_a_retry() -> None:
    async with scene(refuses(503, headers={"retry-after": "7"})) as (client, upstream, edge):
        await send(client, chat())
        await reached(edge, "retrying")
        await client.hang_up()
        rows = await edge.settled(2)

    assert [row.status for row in rows] == ["upstream_error", "cancelled"]
    assert len(upstream.asked) == 1


async def test_a_client_that_reads_nothing_holds_the_provider_and_then_has_given_up() -> None:
    async def flood(answer: Answer) -> None:
        await answer.start()
        while True:
            await answer.send(WORD * 500)

    async with (
        openai_server(flood) as upstream,
        gateway(config(upstream, server="write_timeout_s = 0.2")) as edge,
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await send(client, chat(stream=True))
        await until(lambda: bool({"closed", "reset"} & set(upstream.kinds())))
        (row,) = await edge.settled()

    assert (row.status, row.category) == ("cancelled", "give_up")


@PHASES
async def test_a_run_is_cancelled_by_its_id(script: Script, phase: str) -> None:
    async with scene(script) as (client, upstream, edge), connect(edge.url) as other:
        await send(client, chat(stream=True))
        await upstream.happened("asked")
        await reached(edge, phase)
        (run,) = edge.gateway.desk.registry.live()

        await other.request(f"/v1/runs/{run.id}", method="DELETE")
        assert (await other.response()).status == 200

        answer = await client.response()
        await upstream.raw.client_left()
        (row,) = await edge.settled()
    assert b'"type":"run_cancelled"' in answer.body
    assert answer.status == (200 if phase == "streaming" else 499)
    assert (row.status, row.category) == ("cancelled", "run_cancelled")


async def test_no_heartbeats_come_into_the_bytes() -> None:
    pause = trio.Event()
    async with scene(streams("Hel", pause, "lo"), output=f"{OFF}\nheartbeat_s = 0.01") as (
        client,
        _,
        edge,
    ):
        await send(client, chat(stream=True))
        await reached(edge, "streaming")
        await trio.sleep(0.05)
        pause.set()
        answer = await client.response()

    assert b": heartbeat" not in answer.body


def given_up(row: AttemptEnded) -> tuple[str, str, str]:
    return row.status, row.category, row.phase
