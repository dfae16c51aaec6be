"""Runs are followed as they happen, by clients on real sockets that may do as they like."""

import logging
import socket
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from edge.runs.mirror import MirrorHub
from edge.server import mirror as mirror_views
from edge.settings import Settings, Surroundings
from tests.fakes.gateway import (
    RunningGateway,
    ask_once,
    chat,
    gateway,
    message,
    send,
    tool,
    until,
    upstream_config,
)
from tests.fakes.mirror_client import Frame, open_socket
from tests.fakes.openai_scripts import by_attempt, calls, refuses, silent, streams
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.fakes.raw_client import RawClient, connect
from tests.fakes.strict_client import payloads
from tests.fakes.tunnelled import config as tunnelled

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
KEYS = """
[[keys]]
name = "team-a"
key = "env:A"
[[keys]]
name = "team-b"
key = "env:B"
[[keys]]
name = "watcher"
key = "env:W"
observe = true
[[keys]]
name = "shy"
key = "env:S"
observe = true
mirror = false
"""
ENVIRON = {
    "A": "key-of-a",
    "B": "key-of-b",
    "W": "key-of-watcher",
    "S": "key-of-shy",
    "C": "key-of-clerk",
}
WEATHER = tool("weather", "city", city={"type": "string"})


def kinds(frames: Iterable[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def chunks(frames: Iterable[Frame]) -> list[Any]:
    return [frame["chunk"] for frame in frames if frame["type"] == "chunk"]


def streamed(body: bytes) -> list[Any]:
    return [orjson.loads(payload) for payload in payloads(body) if payload != "[DONE]"]


def run_id(edge: RunningGateway) -> str:
    (run,) = edge.gateway.desk.registry.live()
    return run.id


def hub(edge: RunningGateway) -> MirrorHub:
    return edge.gateway.common.hub


async def test_a_run_is_followed_from_beginning_to_end() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams(pause, "Hel", "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await edge.phase_reached("waiting")
        path = f"/v1/runs/{run_id(edge)}/mirror"
        async with open_socket(edge.url, path) as follower:
            before = await follower.until("attempt.started")
            pause.set()
            answer = await client.response()
            after = await follower.rest()
            closed = await follower.closed()

    frames = before + after
    assert kinds(before) == ["run.started", "attempt.started"]
    assert before[0]["model"] == "coder"
    assert before[1]["provider"] == "gpu1"
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert chunks(after) == streamed(answer.body)
    assert kinds(after)[-1] == "run.finished"
    end = after[-1]
    assert (end["status"], end["error_type"]) == ("success", None)
    assert [attempt["verdict"] for attempt in end["attempts"]] == ["valid"]
    assert end["usage"]["output_tokens"] == 5
    assert end["timings"]["total_s"] >= end["timings"]["first_token_s"] > 0
    assert closed == 1000


async def test_a_late_joiner_gets_the_past_and_then_the_rest() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams(*"abc", pause, *"def")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await client.head()
        while b'"c"' not in await client.chunk():
            pass
        path = f"/v1/runs/{run_id(edge)}/mirror"
        async with open_socket(edge.url, path) as late, open_socket(edge.url, path) as other:
            await late.until("chunk")
            pause.set()
            frames, others = await late.rest(), await other.rest()
            await client.rest_of_chunks()

    assert "".join(_content(each) for each in chunks(others)) == "abcdef"
    assert kinds(others)[:2] == ["run.started", "attempt.started"]
    assert frames == others[3:]
    assert [frame["seq"] for frame in others] == list(range(1, len(others) + 1))


def _content(chunk: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


async def test_a_run_that_just_ended_is_replayed() -> None:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, chat(stream=True))
        path = f"/v1/runs/{answer.headers['x-edge-run-id']}/mirror"
        async with open_socket(edge.url, path) as follower:
            frames = await follower.rest()
            closed = await follower.closed()

    assert chunks(frames) == streamed(answer.body)
    assert kinds(frames)[-1] == "run.finished"
    assert closed == 1000


async def test_an_answer_that_is_not_streamed_is_told_whole() -> None:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        answer = await ask_once(edge.url, chat())
        frames = await follower.until("run.finished")

    assert kinds(frames) == ["run.started", "attempt.started", "answer", "run.finished"]
    assert frames[2]["answer"] == answer.json


async def test_a_failed_attempt_is_told_with_its_reason() -> None:
    script = by_attempt(calls("weather", {"town": "Bern"}), calls("weather", {"city": "Bern"}))
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        answer = await ask_once(edge.url, chat(stream=True, tools=[WEATHER]))
        frames = await follower.until("run.finished")

    (failed,) = [frame for frame in frames if frame["type"] == "attempt.failed"]
    assert (failed["attempt"], failed["status"]) == (1, "validation_failed")
    assert (failed["category"], failed["verdict"]) == ("schema", "invalid")
    assert "city" in failed["reason"]
    assert chunks(frames) == streamed(answer.body)
    assert [attempt["verdict"] for attempt in frames[-1]["attempts"]] == ["invalid", "valid"]


async def test_a_failed_run_is_told_with_its_error() -> None:
    async with (
        openai_server(refuses(400, "no")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        await ask_once(edge.url, chat(stream=True))
        frames = await follower.until("run.finished")

    assert kinds(frames)[-2:] == ["attempt.failed", "run.finished"]
    assert frames[-1]["status"] == "upstream_error"
    assert frames[-1]["error_type"]


async def test_a_given_up_run_is_told_as_cancelled() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        async with connect(edge.url) as client:
            await send(client, chat(stream=True))
            await edge.phase_reached("connecting")
        frames = await follower.until("run.finished")

    assert frames[-1]["status"] == "cancelled"


async def test_of_all_runs_that_are_under_way_the_beginning_is_told_and_what_was_missed() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("a", "b", pause, "c")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await client.head()
        while b'"b"' not in await client.chunk():
            pass
        async with open_socket(edge.url, "/v1/mirror") as follower:
            before = await follower.until("gap")
            pause.set()
            after = await follower.until("run.finished")
            await client.rest_of_chunks()

    assert kinds(before) == ["run.started", "attempt.started", "gap"]
    assert before[-1]["missed"] == 3
    assert before[-1]["seq"] == 5
    assert [frame["seq"] for frame in after] == list(range(6, 6 + len(after)))


async def closed_with(url: str, path: str, key: str = "") -> int:
    async with open_socket(url, path, key=key) as follower:
        return await follower.closed()


async def test_a_run_that_does_not_exist_closes_with_4404() -> None:
    async with openai_server() as upstream, gateway(upstream_config(upstream.base_url)) as edge:
        assert await closed_with(edge.url, "/v1/runs/run_none/mirror") == 4404


def keyed(upstream: OpenAIServer) -> Settings:
    around = Surroundings(environ=ENVIRON, folder=Path())
    config = upstream_config(upstream.base_url) + KEYS
    return Settings.from_toml(config, bind=["127.0.0.1:0"], around=around)


async def test_keys_follow_what_they_may_see_and_no_more() -> None:
    async with openai_server(streams("Hello")) as upstream, gateway(keyed(upstream)) as edge:
        async with (
            open_socket(edge.url, "/v1/mirror", key="key-of-b") as other,
            open_socket(edge.url, "/v1/mirror", key="key-of-watcher") as watcher,
        ):
            answer = await ask_once(
                edge.url, chat(stream=True), ("Authorization", "Bearer key-of-a")
            )
            await watcher.until("run.finished")
            await ask_once(edge.url, chat(stream=True), ("Authorization", "Bearer key-of-b"))
            seen = await other.until("run.finished")
        path = f"/v1/runs/{answer.headers['x-edge-run-id']}/mirror"
        codes = {
            name: await closed_with(edge.url, path, key)
            for name, key in (("a", "key-of-a"), ("b", "key-of-b"), ("shy", "key-of-shy"))
        }
        async with connect(edge.url) as nobody:
            await nobody.request(path, headers=HANDSHAKE)
            refused = await nobody.response()

    assert {frame["run_id"] for frame in seen} != {answer.headers["x-edge-run-id"]}
    assert len({frame["run_id"] for frame in seen}) == 1
    assert codes == {"a": 1000, "b": 4404, "shy": 1008}
    assert refused.status == 401
    assert orjson.loads(refused.body)["error"]["type"] == "authentication_error"


def long_answer(pause: trio.Event, pieces: int, size: int) -> Any:
    return streams("begin", pause, *("x" * size for _ in range(pieces)))


async def test_a_follower_that_reads_nothing_delays_no_run_and_is_told_the_gap() -> None:
    pause = trio.Event()
    async with openai_server(long_answer(pause, 600, 32768)) as upstream:
        config = upstream_config(upstream.base_url, mirror="subscriber_buffer = 4")
        async with (
            gateway(config) as edge,
            connect(edge.url) as client,
            connect(edge.url, receive_buffer=4096) as stuck,
        ):
            # A busy machine may take long for it; here nobody is to be found hopeless.
            hub(edge)._limits = replace(hub(edge)._limits, stalled_s=float("inf"))
            await send(client, chat(stream=True))
            await edge.phase_reached("streaming")
            await stuck.request(f"/v1/runs/{run_id(edge)}/mirror", headers=HANDSHAKE)
            await stuck.head()
            await until(lambda: hub(edge).statistics().subscribers == 1)
            pause.set()
            answer = await client.response()
            await edge.settled()
            frames, code = unpacked(await read_at_last(stuck))

    gaps = [frame for frame in frames if frame["type"] == "gap"]
    assert len(message(answer)["content"]) == 5 + 600 * 32768
    assert code == 1000
    assert frames[-1]["type"] == "run.finished"
    assert_gaps_explain_everything(frames)
    assert sum(gap["missed"] for gap in gaps) > 100


async def read_at_last(stuck: RawClient) -> bytes:
    """Everything that waited for a client which read nothing."""
    stuck.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    return await stuck.until_closed()


def assert_gaps_explain_everything(frames: list[Frame]) -> None:
    expected = 1
    for frame in frames:
        if frame["type"] == "gap":
            expected += frame["missed"]
            assert frame["seq"] == expected - 1
        else:
            assert frame["seq"] == expected
            expected += 1


def unpacked(wire: bytes) -> tuple[list[Frame], int]:
    """Server frames off the wire: the messages, and the code of the close."""
    messages: list[Frame] = []
    at = 0
    while at < len(wire):
        opcode, length, start = wire[at] & 0xF, wire[at + 1], at + 2
        if length >= 126:
            start = at + (4 if length == 126 else 10)
            length = int.from_bytes(wire[at + 2 : start], "big")
        at = start + length
        payload = wire[start:at]
        if opcode == 8:
            return messages, int.from_bytes(payload[:2], "big")
        if opcode == 1:
            messages.append(orjson.loads(payload))
    return messages, 0


async def test_a_follower_that_reads_nothing_for_too_long_is_sent_away() -> None:
    pause = trio.Event()
    async with openai_server(long_answer(pause, 600, 32768)) as upstream:
        config = upstream_config(upstream.base_url, mirror="subscriber_buffer = 4")
        async with (
            gateway(config) as edge,
            connect(edge.url) as client,
            connect(edge.url, receive_buffer=4096) as stuck,
        ):
            hub(edge)._limits = replace(hub(edge)._limits, stalled_s=0.0)
            await send(client, chat(stream=True))
            await edge.phase_reached("streaming")
            await stuck.request(f"/v1/runs/{run_id(edge)}/mirror", headers=HANDSHAKE)
            await stuck.head()
            await until(lambda: hub(edge).statistics().subscribers == 1)
            pause.set()
            await client.response()
            await edge.settled()
            assert hub(edge).statistics().hopeless == 1
            assert hub(edge).statistics().subscribers == 0
            frames, code = unpacked(await read_at_last(stuck))

    assert code == 1013
    assert frames[-1]["type"] == "gap"
    assert_gaps_explain_everything(frames)


async def test_a_follower_that_left_is_noticed_while_nothing_happens() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await edge.phase_reached("connecting")
        path = f"/v1/runs/{run_id(edge)}/mirror"
        async with open_socket(edge.url, path) as follower, connect(edge.url) as rude:
            await follower.until("attempt.started")
            await rude.request(path, headers=HANDSHAKE)
            await rude.head()
            await until(lambda: hub(edge).statistics().subscribers == 2)
            await rude.reset()
            await until(lambda: hub(edge).statistics().subscribers == 1)
        await until(lambda: hub(edge).statistics().subscribers == 0)


async def test_a_follower_that_leaves_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("a", pause, "b")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await edge.phase_reached("streaming")
        async with open_socket(edge.url, f"/v1/runs/{run_id(edge)}/mirror") as follower:
            await follower.until("chunk")
        await until(lambda: hub(edge).statistics().subscribers == 0)
        pause.set()
        await client.response()

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_replay_to_a_follower_that_left_holds_nobody_up() -> None:
    """To a peer that has gone, the stock ``send`` returns without giving way, for ever."""
    parts = ["x" * 1024] * 2000
    async with openai_server(streams(*parts)) as upstream:
        config = upstream_config(upstream.base_url, mirror="replay_bytes = 16777216")
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, chat(stream=True))
            path = f"/v1/runs/{answer.headers['x-edge-run-id']}/mirror"
            async with connect(edge.url, receive_buffer=4096) as gone:
                await gone.request(path, headers=HANDSHAKE)
                await gone.reset()
            await until(lambda: hub(edge).statistics().subscribers == 0)
            assert (await ask_once(edge.url, chat())).status == 200


async def test_what_a_follower_sends_is_read_and_kept_nowhere() -> None:
    flood = "x" * 65536
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await edge.phase_reached("connecting")
        async with open_socket(edge.url, f"/v1/runs/{run_id(edge)}/mirror") as follower:
            await follower.until("attempt.started")
            tracemalloc.start()
            try:
                for _ in range(256):
                    await follower.send_text(flood)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            await until(lambda: hub(edge).statistics().subscribers == 1)
    assert peak < 4 * 1024 * 1024


async def test_a_mirror_that_fails_closes_with_1011_and_harms_no_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(mirror_views, "_tell", fails)
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, chat(stream=True))
        await edge.phase_reached("streaming")
        code = await closed_with(edge.url, f"/v1/runs/{run_id(edge)}/mirror")
        pause.set()
        answer = await client.response()

    assert code == 1011
    assert message(answer)["content"] == "Hello"
    assert "ZeroDivisionError" in caplog.text


async def test_a_quiet_mirror_is_pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirror_views, "PING_EVERY_S", 0.01)
    async with (
        openai_server() as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await client.request("/v1/mirror", headers=HANDSHAKE)
        await client.head()
        assert await client.exactly(2) == b"\x89\x00"


async def test_without_a_replay_buffer_runs_can_be_followed_live() -> None:
    pause = trio.Event()
    async with openai_server(streams("a", pause, "b")) as upstream:
        config = upstream_config(upstream.base_url, mirror="replay_bytes = 0")
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, chat(stream=True))
            await edge.phase_reached("streaming")
            (run,) = edge.gateway.desk.registry.live()
            assert run.mirror is None
            async with open_socket(edge.url, f"/v1/runs/{run.id}/mirror") as follower:
                await until(lambda: run.mirror is not None)
                pause.set()
                frames = await follower.rest()
            answer = await client.response()
            path = f"/v1/runs/{run.id}/mirror"
            assert await closed_with(edge.url, path) == 4404

    told = chunks(frames)
    assert told
    assert told == streamed(answer.body)[-len(told) :]


async def test_shutdown_sends_followers_away_after_the_last_run() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        await send(client, chat(stream=True))
        await follower.until("chunk")
        edge.shutdown.set()
        pause.set()
        await client.response()
        frames = await follower.rest()

        assert kinds(frames)[-1] == "run.finished"
        assert await follower.closed() == 1001


def test_the_fakes_read_frames() -> None:
    """What ``unpacked`` makes of a message and a close."""
    wire = b"\x81\x0d" + b'{"type":"x"} ' + b"\x88\x02\x03\xe8"
    assert unpacked(wire) == ([{"type": "x"}], 1000)


async def test_a_stream_that_passes_through_is_told_chunk_by_chunk() -> None:
    parts = ("Hel", b": note\n\n", b'data: {"half":', b" 1}\r\n\r\n", b"data: no json\n\n", "lo")
    async with (
        openai_server(streams(*parts)) as upstream,
        gateway(tunnelled(upstream)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        request = chat(stream=True, stream_options={"include_usage": True})
        answer = await ask_once(edge.url, request)
        frames = await follower.until("run.finished")

    told = chunks(frames)
    assert frames[1]["path"] == "tunnel"
    assert {"half": 1} in told
    assert "no json" in told
    assert "".join(_content(each) for each in told if "choices" in each) == "Hello"
    assert len(told) == answer.body.count(b"data: ") - 1
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
