"""Followers of runs may ask for some frames only, and for many of them in one message."""

from collections.abc import Iterable

import orjson
import pytest

from tests.fakes.gateway import ask_once, chat, gateway, upstream_config
from tests.fakes.mirror_client import Frame, open_socket
from tests.fakes.openai_scripts import streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect
from tests.fakes.strict_client import payloads

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


def kinds(frames: Iterable[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


async def test_a_follower_may_ask_for_some_types_only() -> None:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror?types=run.started,run.finished") as follower,
    ):
        await ask_once(edge.url, chat(stream=True))
        await ask_once(edge.url, chat(stream=True))
        frames = [await follower.frame() for _ in range(4)]

    assert kinds(frames) == ["run.started", "run.finished"] * 2


async def test_frames_that_come_together_may_be_one_message() -> None:
    async with (
        openai_server(streams("Hel", "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        async with open_socket(edge.url, "/v1/mirror?batch=true") as follower:
            answer = await ask_once(edge.url, chat(stream=True))
            frames: list[Frame] = []
            while kinds(frames)[-1:] != ["run.finished"]:
                frames += await follower.batch()
        path = f"/v1/runs/{answer.headers['x-edge-run-id']}/mirror?batch=true"
        async with open_socket(edge.url, path) as late:
            past = await late.batch()

    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    told = [frame["chunk"] for frame in frames if frame["type"] == "chunk"]
    assert told == [orjson.loads(each) for each in payloads(answer.body) if each != "[DONE]"]
    assert past == frames


@pytest.mark.parametrize(("name", "value"), [("types", "chunks"), ("batch", "1")])
async def test_a_wish_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    async with (
        openai_server() as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await client.request(f"/v1/mirror?{name}={value}", headers=HANDSHAKE)
        answer = await client.response()

    assert answer.status == 400
    assert orjson.loads(answer.body)["error"]["param"] == name
