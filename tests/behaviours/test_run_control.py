"""Runs end by their id and by their deadline, and waiting clients are kept alive."""

import json
from typing import Any

import orjson
import pytest
import trio

from tests.fakes.gateway import ask_once, chat, gateway, send, until, upstream_config
from tests.fakes.openai_scripts import silent, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import RawClient, connect
from tests.fakes.strict_client import payloads

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def cancel(url: str, run_id: str) -> dict[str, Any]:
    async with connect(url) as client:
        await client.request(f"/v1/runs/{run_id}", method="DELETE")
        answer = await client.response()
    assert answer.status == 200, answer.body
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


async def rest_of(client: RawClient) -> bytes:
    data = b""
    while piece := await client.chunk():
        data += piece
    return data


@both_ways
async def test_a_run_cancelled_by_its_id_hangs_up_and_tells_its_client(stream: bool) -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=stream))
        await upstream.happened("asked")
        (run,) = edge.gateway.desk.registry.live()

        told = await cancel(edge.url, run.id)

        answer = await client.response()
        await upstream.raw.client_left()
        (row,) = await edge.settled()
    assert told == {"id": run.id, "object": "edge.run", "cancelled": True}
    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (499, "run_cancelled")
    assert (row.status, row.category) == ("cancelled", "run_cancelled")


async def test_a_run_cancelled_in_mid_stream_ends_in_an_error_event() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        head = await client.head()
        while b"Hel" not in await client.chunk():
            pass

        await cancel(edge.url, head.headers["x-edge-run-id"])

        failure, done = payloads(await rest_of(client))
        await upstream.raw.client_left()
    assert (json.loads(failure)["error"]["type"], done) == ("run_cancelled", "[DONE]")
    assert "ended" not in upstream.kinds()


async def test_a_cancelled_run_is_not_cancelled_again() -> None:
    async with openai_server() as upstream, gateway(upstream_config(upstream.base_url)) as edge:
        answer = await ask_once(edge.url, chat())
        told = await cancel(edge.url, answer.headers["x-edge-run-id"])

    assert told["cancelled"] is False


@both_ways
async def test_the_run_deadline_hangs_up_and_tells_the_client(stream: bool) -> None:
    async with openai_server(silent) as upstream:
        config = upstream_config(upstream.base_url, output="run_timeout_s = 0.05")
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, chat(stream=stream))
            await upstream.raw.client_left()
            (row,) = await edge.settled()

    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (504, "run_timeout")
    assert answer.headers["x-should-retry"] == "false"
    assert (row.status, row.category) == ("timeout", "run_timeout")


@pytest.mark.parametrize(
    ("parts", "category"),
    [((), "first_token_timeout"), (("Hel",), "idle_timeout")],
    ids=["before the first token", "in mid-answer"],
)
async def test_a_silent_provider_is_left(parts: tuple[str, ...], category: str) -> None:
    pause = trio.Event()
    limits = "first_token_timeout_s = 0.1\nidle_timeout_s = 0.1"
    async with openai_server(streams(*parts, pause, role=False)) as upstream:
        config = upstream_config(
            upstream.base_url, provider=limits, output='max_attempts = 1\nbuffer = "full"'
        )
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, chat(stream=True))
            await upstream.raw.client_left()
            (row,) = await edge.settled()

    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (504, "run_timeout")
    assert (row.status, row.category) == ("timeout", category)


async def test_heartbeats_come_while_the_provider_thinks_and_stop_with_the_answer() -> None:
    pause = trio.Event()
    async with openai_server(streams(pause, "Hello")) as upstream:
        config = upstream_config(upstream.base_url, output="heartbeat_s = 0.02")
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, chat(stream=True))
            await client.head()
            beats = [await client.chunk() for _ in range(3)]
            pause.set()
            rest = await rest_of(client)

    assert beats == [b": heartbeat\n\n"] * 3
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_heartbeats_come_while_the_run_is_queued() -> None:
    pause = trio.Event()
    async with openai_server(streams("one", pause)) as upstream:
        config = upstream_config(
            upstream.base_url, output="heartbeat_s = 0.02", limits="max_runs = 1"
        )
        async with gateway(config) as edge, connect(edge.url) as one, connect(edge.url) as two:
            await send(one, chat(stream=True))
            await upstream.happened("sent", 2)
            await send(two, chat(stream=True))
            await two.head()
            assert await two.chunk() == b": heartbeat\n\n"
            assert upstream.count("asked") == 1
            pause.set()
            await one.head()
            assert b"one" in await rest_of(one)
            assert b"one" in await rest_of(two)


async def test_a_client_that_is_not_streaming_gets_no_heartbeats() -> None:
    pause = trio.Event()
    async with openai_server(streams(pause, "Hello")) as upstream:
        config = upstream_config(upstream.base_url, output="heartbeat_s = 0.01")
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, chat())
            with trio.move_on_after(0.05):
                await client.head()
            pause.set()
            answer = await client.response()

    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "Hello"


async def test_a_run_shows_what_it_is_doing_and_how_it_ended() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as watcher,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await upstream.happened("sent", 2)
        await until(lambda: edge.gateway.desk.registry.live()[0].phase == "streaming")
        (live,) = orjson.loads((await watcher.get("/v1/runs")).body)["data"]
        pause.set()
        await client.response()
        await edge.settled()
        ended = orjson.loads((await watcher.get(f"/v1/runs/{live['id']}")).body)
        missing = await watcher.get("/v1/runs/run_unknown")

    assert (live["status"], live["phase"]) == ("running", "streaming")
    assert [(each["provider"], each["status"]) for each in live["attempts"]] == [
        ("gpu1", "running")
    ]
    assert (ended["status"], ended["phase"]) == ("success", "done")
    (attempt,) = ended["attempts"]
    assert attempt["provider"] == "gpu1"
    assert attempt["usage"]["output_tokens"] == 5
    assert missing.status == 404


async def test_shutdown_lets_open_runs_end() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await upstream.happened("sent", 2)
        edge.shutdown.set()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OSError, match=r"connect|refused"):
            async with connect(edge.url):
                pass
        pause.set()
        answer = await client.response()

    assert answer.body.endswith(b"data: [DONE]\n\n")
    assert edge.statuses() == ["success"]


async def test_a_run_that_outlives_the_drain_is_told_so() -> None:
    pause = trio.Event()
    async with openai_server(streams("Hel", pause, "lo")) as upstream:
        config = upstream_config(upstream.base_url, server="drain_s = 0.05")
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, chat(stream=True))
            await upstream.happened("sent", 2)
            edge.shutdown.set()
            answer = await client.response()

    *_, failure, done = payloads(answer.body)
    assert (json.loads(failure)["error"]["type"], done) == ("run_cancelled", "[DONE]")
