"""What is told of traced runs alone, and to whom: what was asked, what came, what is held back."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge.settings import Settings, Surroundings
from tests.fakes.gateway import ask_once, chat, gateway, tool, upstream_config
from tests.fakes.mirror_client import Frame, open_socket
from tests.fakes.openai_scripts import by_attempt, calls, streams
from tests.fakes.openai_server import OpenAIServer, openai_server
from tests.fakes.strict_client import payloads

KEYS = """
[[keys]]
name = "owner"
key = "env:OWNER"
[[keys]]
name = "watcher"
key = "env:WATCHER"
observe = true
[[keys]]
name = "clerk"
key = "env:CLERK"
observe = true
trace = false
"""
ENVIRON = {"OWNER": "key-of-owner", "WATCHER": "key-of-watcher", "CLERK": "key-of-clerk"}
WEATHER = tool("weather", "city", city={"type": "string"})


def keyed(upstream: OpenAIServer) -> Settings:
    around = Surroundings(environ=ENVIRON, folder=Path())
    config = upstream_config(upstream.base_url) + KEYS
    return Settings.from_toml(config, bind=["127.0.0.1:0"], around=around)


def kinds(frames: Iterable[Frame]) -> list[str]:
    return [frame["type"] for frame in frames]


def chunks(frames: Iterable[Frame]) -> list[Any]:
    return [frame["chunk"] for frame in frames if frame["type"] == "chunk"]


@pytest.mark.parametrize("traced", [True, False])
async def test_what_is_held_back_is_told_of_traced_runs_only(traced: bool) -> None:
    script = by_attempt(calls("weather", {"town": "Bern"}), calls("weather", {"city": "Bern"}))
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        request = chat(stream=True, tools=[WEATHER])
        if traced:
            request["metadata"] = {"edge.trace": "true"}
        await ask_once(edge.url, request)
        frames = await follower.until("run.finished")

    held = [(frame["attempt"], frame["held"]) for frame in frames if frame["type"] == "held"]
    names = [(attempt, orjson.loads(said["arguments"])) for attempt, (said,) in held]
    assert names == ([(1, {"town": "Bern"}), (2, {"city": "Bern"})] if traced else [])


@pytest.mark.parametrize("stream", [True, False])
async def test_of_a_traced_run_it_is_told_what_was_asked_and_what_its_provider_sent(
    stream: bool,
) -> None:
    text = '<tool_call>{"name": "weather", "arguments": {"city": "Bern"}}</tool_call>'
    async with (
        openai_server(streams(text[:9], text[9:])) as upstream,
        gateway(upstream_config(upstream.base_url, output="trace = true")) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
    ):
        await ask_once(edge.url, chat(stream=stream, tools=[WEATHER], temperature=0.5))
        frames = await follower.until("run.finished")

    asked = next(frame for frame in frames if frame["type"] == "request")
    received = [frame for frame in frames if frame["type"] == "received"]
    sent = [chunk for frame in received for chunk in frame["chunks"]]
    deltas = [choice["delta"] for chunk in sent for choice in chunk["choices"]]
    said = "".join(delta.get("content", "") for delta in deltas)
    assert asked["request"] == {"tools": [WEATHER], "stream": stream}
    assert asked["output"]["trace"] is True
    assert said == text
    assert {(frame["attempt"], frame["live"]) for frame in received} == {(1, stream)}
    assert kinds(frames).index("request") == 1


async def test_a_key_without_the_right_is_not_told_what_is_told_of_traced_runs_alone() -> None:
    async with openai_server(streams("Hello")) as upstream, gateway(keyed(upstream)) as edge:
        async with (
            open_socket(edge.url, "/v1/mirror", key="key-of-clerk") as clerk,
            open_socket(
                edge.url, "/v1/mirror?types=held,received,chunk", key="key-of-clerk"
            ) as two,
            open_socket(edge.url, "/v1/mirror", key="key-of-watcher") as watcher,
        ):
            request = chat(stream=True, tools=[WEATHER], metadata={"edge.trace": "true"})
            bearer = ("Authorization", "Bearer key-of-owner")
            answer = await ask_once(edge.url, request, bearer)
            await watcher.until("run.finished")
            live = await clerk.until("run.finished")
            chosen = [await two.frame() for _ in chunks(live)]
        path = f"/v1/runs/{answer.headers['x-edge-run-id']}/mirror"
        async with open_socket(edge.url, path, key="key-of-clerk") as clerk:
            past = await clerk.rest()

    streamed = [orjson.loads(each) for each in payloads(answer.body) if each != "[DONE]"]
    assert chunks(live) == chunks(past) == streamed
    assert {*kinds(live), *kinds(past), *kinds(chosen)}.isdisjoint({"request", "received", "held"})
    assert set(kinds(chosen)) == {"chunk"}
