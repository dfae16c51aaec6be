"""What leaves when: the three buffers, and judging with or without holding."""

import json
from typing import Any

import pytest
import trio

from tests.fakes.gateway import ask_once, chat, gateway, message, send, tool, upstream_config
from tests.fakes.openai_scripts import call, calls, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect
from tests.fakes.strict_client import payloads

PING = tool("ping")


def offered(**fields: Any) -> dict[str, Any]:
    return chat(stream=True, tools=[PING], **fields)


async def first_piece(output: str, request: dict[str, Any], *parts: Any) -> bytes:
    """What a client has got while the provider pauses behind ``parts``; empty if nothing."""
    pause = trio.Event()
    async with (
        openai_server(streams(*parts, pause, "end")) as upstream,
        gateway(upstream_config(upstream.base_url, output=output)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, request)
        await upstream.happened("sent", len(parts) + 1)
        got = b""
        with trio.move_on_after(0.1):
            await client.head()
            while True:
                got += await client.chunk()
        pause.set()
        return got


async def test_text_is_live_while_calls_are_held() -> None:
    got = await first_piece('buffer = "tool_calls"', offered(), "Hello", call("ping", {}))

    assert b'"content":"Hello"' in got
    assert b"tool_calls" not in got


async def test_reasoning_is_live_while_a_call_in_text_is_held() -> None:
    parts = ({"reasoning_content": "hm"}, "One.", '<tool_call>{"name": "ping"')
    got = await first_piece('buffer = "tool_calls"', offered(), *parts)

    assert b'"reasoning_content":"hm"' in got
    assert b'"content":"One."' in got
    assert b"<" not in got


async def test_full_holds_everything() -> None:
    assert await first_piece('buffer = "full"', offered(), "Hello") == b""


async def test_a_demanded_json_text_is_held_until_it_is_judged() -> None:
    request = chat(stream=True, response_format={"type": "json_object"})

    assert await first_piece('buffer = "tool_calls"', request, '{"a": 1}') == b""


@pytest.mark.parametrize("output", ['buffer = "off"', 'validate = "observe"'])
async def test_where_nothing_is_held_a_demanded_json_text_is_live(output: str) -> None:
    request = chat(stream=True, response_format={"type": "json_object"})

    assert b'"a' in await first_piece(output, request, '{"a": 1}')


async def test_observed_faults_are_counted_and_delivered() -> None:
    async with openai_server(calls("pong", {})) as upstream:
        config = upstream_config(upstream.base_url, output='validate = "observe"')
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, offered())
            (row,) = await edge.settled()

    assert message(answer)["tool_calls"][0]["function"]["name"] == "pong"
    assert (row.status, row.category) == ("success", "unknown_tool")


async def test_without_validation_calls_are_delivered_as_they_are() -> None:
    async with openai_server(calls("pong", "{oops")) as upstream:
        output = 'validate = "off"\nbuffer = "tool_calls"'
        async with gateway(upstream_config(upstream.base_url, output=output)) as edge:
            answer = await ask_once(edge.url, offered())
            (row,) = await edge.settled()

    assert message(answer)["tool_calls"][0]["function"]["arguments"] == "{oops"
    assert (row.status, row.category) == ("success", "")


async def test_with_buffer_off_an_invalid_call_is_an_error_and_is_not_tried_again() -> None:
    async with openai_server(calls("pong", {}, "Hello")) as upstream:
        config = upstream_config(upstream.base_url, output='buffer = "off"')
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, offered())

    *_, failure, done = payloads(answer.body)
    assert (json.loads(failure)["error"]["type"], done) == ("tool_validation_error", "[DONE]")
    assert b"pong" not in answer.body.split(b'"error"')[0]
    assert upstream.count("asked") == 1


async def test_after_shown_text_the_next_attempts_calls_are_delivered_and_its_text_dropped() -> (
    None
):
    scripts = calls("pong", {}, "First."), calls("ping", {}, "Second.")
    async with (
        openai_server(*scripts) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, offered())
        await edge.settled(2)

    got = message(answer)
    assert got["content"] == "First."
    assert [each["function"]["name"] for each in got["tool_calls"]] == ["ping"]
    assert edge.statuses() == ["validation_failed", "success"]


async def test_after_shown_text_an_attempt_without_calls_is_set_apart() -> None:
    scripts = calls("pong", {}, "First."), streams("Second.")
    async with (
        openai_server(*scripts) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, offered())

    assert message(answer)["content"] == "First.\n\nSecond."


@pytest.mark.parametrize("text", ["First. <tool", "<tool"])
async def test_text_that_was_held_to_the_end_of_a_faulty_answer_leaves_before_the_next(
    text: str,
) -> None:
    scripts = calls("pong", {}, text), streams("Second.")
    async with (
        openai_server(*scripts) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, offered())

    assert message(answer)["content"] == f"{text}\n\nSecond."


async def test_text_that_was_held_to_the_end_of_a_faulty_answer_leaves_before_the_error() -> None:
    async with openai_server(calls("pong", {}, "First. <tool")) as upstream:
        config = upstream_config(upstream.base_url, output="max_attempts = 1")
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, offered())

    before, _ = answer.body.split(b'"error"')
    chunks = [json.loads(each)["choices"][0]["delta"] for each in payloads(before)[:-1]]
    assert "".join(delta.get("content", "") for delta in chunks) == "First. <tool"


async def test_every_choice_is_held_and_judged_on_its_own() -> None:
    def of(index: int, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": index, "delta": delta, "finish_reason": finish}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    parts = [
        of(0, {"content": "zero"}),
        of(1, call("ping", {})),
        of(1, {}, "tool_calls"),
        of(0, {}, "stop"),
    ]
    async with (
        openai_server(streams(*parts, finish=None, role=False)) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, chat(tools=[PING], n=2))

    first, second = json.loads(answer.body)["choices"]
    assert (first["message"]["content"], first["finish_reason"]) == ("zero", "stop")
    assert second["message"]["tool_calls"][0]["function"]["name"] == "ping"
    assert second["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("buffer", ["full", "tool_calls"])
async def test_an_answer_too_long_to_be_held_is_an_error(buffer: str) -> None:
    output = f'buffer = "{buffer}"\nmax_held_bytes = 2000\nmax_attempts = 1'
    held = call("ping", {"x": "y" * 3000})
    async with (
        openai_server(streams(held, finish="tool_calls")) as upstream,
        gateway(upstream_config(upstream.base_url, output=output)) as edge,
    ):
        answer = await ask_once(edge.url, offered())
        (row,) = await edge.settled()

    assert answer.status == 502
    assert row.category == "too_large"


@pytest.mark.parametrize("buffer", ["full", "tool_calls"])
async def test_a_call_that_fits_into_what_may_be_held_is_delivered(buffer: str) -> None:
    held = call("ping", {"x": "y" * 1900})
    async with openai_server(streams(held, finish="tool_calls")) as upstream:
        output = f'buffer = "{buffer}"\nmax_held_bytes = 2000\nmax_attempts = 1'
        async with gateway(upstream_config(upstream.base_url, output=output)) as edge:
            offer = tool("ping", x={"type": "string"})
            answer = await ask_once(edge.url, chat(stream=True, tools=[offer]))
            (row,) = await edge.settled()

    assert len(message(answer)["tool_calls"][0]["function"]["arguments"]) > 1900
    assert row.status == "success"


async def test_text_that_is_not_held_may_be_longer_than_what_may_be_held() -> None:
    async with openai_server(streams(*["y" * 500] * 20)) as upstream:
        config = upstream_config(upstream.base_url, output="max_held_bytes = 2000")
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, offered())

    assert message(answer)["content"] == "y" * 10_000
