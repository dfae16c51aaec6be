"""The scripted model server itself: what it sends, and the order of events in its log."""

import json
from typing import Any

import pytest
import trio

from tests.fakes.openai_scripts import (
    answers,
    by_attempt,
    by_model,
    call,
    calls,
    completes,
    error,
    hangs_up,
    html,
    refuses,
    silent,
    streams,
)
from tests.fakes.openai_server import DONE, Break, OpenAIServer, Script, openai_server
from tests.fakes.raw_client import RawClient, RawResponse, connect
from tests.fakes.strict_client import fold

CHAT = "/v1/chat/completions"


async def send(client: RawClient, *headers: tuple[str, str], **body: Any) -> None:
    data = json.dumps({"model": "m", **body}).encode()
    await client.request(CHAT, method="POST", headers=headers, body=data)


async def ask(url: str, *headers: tuple[str, str], **body: Any) -> RawResponse:
    async with connect(url) as client:
        await send(client, *headers, **body)
        return await client.response()


async def text(server: OpenAIServer, *headers: tuple[str, str], **body: Any) -> str:
    answer = await ask(server.url, *headers, **body)
    said: str = fold(answer.body)["choices"][0]["message"]["content"]
    return said


async def test_a_stream_is_sent_part_by_part_and_written_down_in_order() -> None:
    async with openai_server(streams("Hel", "lo")) as server:
        answer = await ask(server.url, stream_options={"include_usage": True})
        folded = fold(answer.body)
        assert folded["choices"][0]["message"]["content"] == "Hello"
        assert folded["usage"]["total_tokens"] == 15
        await server.happened("closed")
        told = ["accepted", "head", "body", "asked", "started", *["sent"] * 6, "ended", "closed"]
        assert server.kinds() == told
        assert [asked.body["model"] for asked in server.asked] == ["m"]
        assert server.asked[0].path == CHAT


async def test_a_client_that_leaves_is_seen_in_a_pause() -> None:
    pause = trio.Event()
    async with openai_server(streams("Hel", pause, "lo")) as server:
        async with connect(server.url) as client:
            await send(client)
            await client.head()
            while b"Hel" not in await client.chunk():
                pass
            server.note("client leaves")
        await server.happened("closed")
        assert server.kinds()[-3:] == ["sent", "client leaves", "closed"]
        assert server.answering == 0


async def test_a_client_that_resets_before_the_head_is_seen() -> None:
    async with openai_server(silent) as server, connect(server.url) as client:
        await send(client)
        await server.happened("asked")
        assert server.answering == 1
        await client.reset()
        await server.happened("reset")
        assert server.answering == 0


async def test_a_pause_ends_when_the_test_says_so() -> None:
    pause = trio.Event()
    async with openai_server(streams(pause, "late")) as server, trio.open_nursery() as nursery:
        nursery.start_soon(text, server)
        await server.happened("sent")
        server.note("go on")
        pause.set()
        await server.happened("ended")
        assert server.kinds().index("go on") < server.kinds().index("ended")


@pytest.mark.parametrize("how", [Break.CLOSE, Break.RESET])
async def test_a_stream_can_break_in_the_middle(how: Break) -> None:
    async with openai_server(streams("Hel", how, "lo")) as server:
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await ask(server.url)
        await server.happened("broke")
        assert "ended" not in server.kinds()
        server.scripts = [streams("again")]
        assert await text(server) == "again"


async def test_every_request_has_its_script_and_the_last_repeats() -> None:
    async with openai_server(refuses(503), streams("a"), streams("b")) as server:
        assert (await ask(server.url)).status == 503
        assert [await text(server) for _ in range(3)] == ["a", "b", "b"]


async def test_a_connection_serves_request_after_request() -> None:
    async with openai_server() as server, connect(server.url) as client:
        for _ in range(3):
            await send(client)
            assert fold((await client.response()).body)["choices"][0]["message"]["content"] == "ok"
        assert server.count("accepted") == 1


async def test_scripts_are_chosen_by_model_and_by_attempt() -> None:
    tried = by_attempt(streams("first"), streams("later"))
    async with openai_server(by_model({"m": tried, "n": streams("other")})) as server:
        assert await text(server) == "first"
        assert await text(server, ("x-edge-attempt", "3")) == "later"
        assert await text(server, model="n") == "other"


async def test_calls_are_whole() -> None:
    async with openai_server(calls("f", {"a": 1}, "text")) as server:
        choice = fold((await ask(server.url)).body)["choices"][0]
        (made,) = choice["message"]["tool_calls"]
        assert made["function"] == {"name": "f", "arguments": '{"a": 1}'}
        assert choice["finish_reason"] == "tool_calls"
    assert call("f", "{", identity="x", index=2)["tool_calls"][0]["index"] == 2


@pytest.mark.parametrize(
    ("script", "status", "kind", "part"),
    [
        (refuses(429, "slow down", headers={"retry-after": "3"}), 429, "json", b"slow down"),
        (html(), 200, "html", b"<html>"),
        (completes("hi"), 200, "json", b'"content": "hi"'),
        (answers(200, b'{"choices": ['), 200, "json", b'{"choices": ['),
        (streams("x", error("boom"), finish=None, done=False), 200, "event-stream", b"boom"),
    ],
)
async def test_what_goes_wrong_at_model_servers_can_be_said(
    script: Script, status: int, kind: str, part: bytes
) -> None:
    async with openai_server(script) as server:
        answer = await ask(server.url)
    assert answer.status == status
    assert kind in answer.headers["content-type"]
    assert part in answer.body


async def test_a_finish_and_the_end_mark_can_be_left_out() -> None:
    async with openai_server(streams("x", finish=None, done=False, usage=None)) as server:
        body = (await ask(server.url)).body
    assert DONE not in body
    assert b'"finish_reason": "' not in body


async def test_it_can_hang_up_in_place_of_an_answer() -> None:
    async with openai_server(hangs_up) as server:
        with pytest.raises(AssertionError, match="closed after"):
            await ask(server.url)


async def test_models_are_listed() -> None:
    async with openai_server(models=["a", "b"]) as server, connect(server.url) as client:
        answer = await client.get("/v1/models")
        assert [entry["id"] for entry in json.loads(answer.body)["data"]] == ["a", "b"]
        await server.happened("listed")
        assert server.asked == []
