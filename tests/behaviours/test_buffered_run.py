"""The buffered run, point by point: collected, judged, asked again, and only then sent.

These are the promises of the program this gateway re-imagines, with its faults mended: whatever
happens, every attempt has exactly one row in the ledger.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog.testing
import trio

from edge.core.run_events import AttemptEnded, RunEnded
from tests.fakes.gateway import ask_once, chat, gateway, message, send, tool, upstream_config
from tests.fakes.openai_scripts import by_model, calls, error, refuses, streams
from tests.fakes.openai_server import Break, Script, openai_server
from tests.fakes.raw_client import connect
from tests.fakes.strict_client import payloads

SET_LIMIT = tool("set_limit", "limit", limit={"type": "integer"})
SOUND = calls("set_limit", {"limit": 3})
UNSOUND = calls("set_limit", {"limit": "three"}, "Sure.")
FULL = ("x-edge-output", "buffer=full")


def request(**fields: Any) -> dict[str, Any]:
    return chat(stream=True, tools=[SET_LIMIT], **fields)


@asynccontextmanager
async def logged() -> AsyncGenerator[list[Any]]:
    """The log lines of the block."""
    with structlog.testing.capture_logs() as lines:
        yield lines


async def test_1_the_whole_attempt_is_collected_and_judged_before_a_byte_leaves() -> None:
    pause = trio.Event()
    script = streams("Sure.", pause, finish="stop")
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        await send(client, request(), FULL)
        await upstream.happened("sent", 2)
        with trio.move_on_after(0.05) as early:
            await client.head()
        assert early.cancelled_caught, "nothing is sent before the verdict"
        pause.set()
        answer = await client.response()

    assert message(answer)["content"] == "Sure."


async def test_2_an_invalid_attempt_is_made_again_with_its_number_and_reason() -> None:
    async with (
        openai_server(UNSOUND, SOUND) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        logged() as lines,
    ):
        answer = await ask_once(edge.url, request(), FULL)
        rows = await edge.settled(2)

    first, second = (asked.headers for asked in upstream.asked)
    run_id = rows[0].run_id
    assert json.loads(message(answer)["tool_calls"][0]["function"]["arguments"]) == {"limit": 3}
    assert (first["x-edge-run-id"], first["x-edge-attempt"]) == (run_id, "1")
    assert "x-edge-retry-reason" not in first
    assert second["x-edge-attempt"] == "2"
    assert second["x-edge-failed-attempt"] == f"{run_id}.1"
    assert second["x-edge-retry-reason"] == "schema"
    assert "metadata" not in upstream.asked[1].body, "some servers refuse it"
    assert [row.status for row in rows] == ["validation_failed", "success"]
    assert rows[1].feedback
    (warning,) = [line for line in lines if line["log_level"] == "warning"]
    assert (warning["run_id"], warning["attempt"]) == (run_id, 1)
    assert "limit" in warning["reason"]


async def test_2_metadata_travels_in_the_body_where_the_provider_takes_it() -> None:
    async with openai_server(UNSOUND, SOUND) as upstream:
        config = upstream_config(upstream.base_url, provider="send_metadata = true")
        async with gateway(config) as edge:
            await ask_once(edge.url, request(), FULL)

    sent = upstream.asked[1].body["metadata"]
    assert (sent["x-edge-attempt"], sent["x-edge-retry-reason"]) == ("2", "schema")


async def test_2_the_model_is_told_what_was_wrong_and_never_sees_a_malformed_call() -> None:
    async with (
        openai_server(UNSOUND, SOUND) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        await ask_once(edge.url, request(), FULL)

    first, second = (asked.body["messages"] for asked in upstream.asked)
    assert second[: len(first)] == first
    assert [m["role"] for m in second[len(first) :]] == ["assistant", "user"]
    assert all("tool_calls" not in m for m in second)
    assert "limit" in second[-1]["content"]


@pytest.mark.parametrize("offered", ["a tunnel", "nothing"])
async def test_2_a_retry_that_is_offered_only_a_tunnel_or_nothing_is_a_retry_error(
    offered: str,
) -> None:
    """The only provider that can be looked at is told to pause while the first answer comes."""
    pause = trio.Event()
    unsound = calls("set_limit", {"limit": "three"}, pause)
    pausing = refuses(429, headers={"retry-after": "60"})
    async with (
        openai_server(by_model({"patient": unsound, "pushing": pausing})) as first,
        openai_server() as second,
    ):
        config = upstream_config(first.base_url)
        if offered == "a tunnel":
            config = config.replace("targets = [", 'targets = [{ provider = "raw" }, ')
            config += f"""
[[providers]]
name = "raw"
base_url = "{second.base_url}"
path = "tunnel"
"""
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, request() | {"model": "patient"}, FULL)
            await first.happened("asked")
            await ask_once(edge.url, chat() | {"model": "pushing"})
            pause.set()
            answer = await client.response()
            rows = [row for row in await edge.settled(3) if row.model != "pushing"]

    failure = json.loads(answer.body)["error"]
    assert (answer.status, failure["type"]) == (502, "tool_validation_retry_error")
    assert "limit" in failure["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert [row.status for row in rows] == ["validation_failed", "rejected"]
    assert second.count("accepted") == 0, "what cannot be looked at is not even asked"


async def test_3_invalid_and_no_attempt_left_is_a_tool_validation_error() -> None:
    async with (
        openai_server(UNSOUND) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, request(), FULL)
        rows = await edge.settled(3)

    failure = json.loads(answer.body)["error"]
    assert (answer.status, failure["type"]) == (502, "tool_validation_error")
    assert failure["param"] == "tool_calls[0].arguments.limit"
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-edge-attempts"] == "3"
    assert b"Sure." not in answer.body
    assert [row.status for row in rows] == ["validation_failed"] * 3
    assert [row.constrained for row in rows] == [False, False, True]


async def test_3_after_a_heartbeat_it_is_an_error_event() -> None:
    pause = trio.Event()
    script = streams(pause, "no calls here")
    async with openai_server(script) as upstream:
        config = upstream_config(upstream.base_url, output="heartbeat_s = 0.02\nmax_attempts = 1")
        async with gateway(config) as edge, connect(edge.url) as client:
            await send(client, request(tool_choice="required"), FULL)
            head = await client.head()
            assert (head.status, await client.chunk()) == (200, b": heartbeat\n\n")
            pause.set()
            rest = b""
            while piece := await client.chunk():
                rest += piece

    failure, done = payloads(rest)
    assert (json.loads(failure)["error"]["type"], done) == ("tool_validation_error", "[DONE]")


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (refuses(500), "upstream_error"),
        (streams("Sure.", Break.RESET), "upstream_error"),
        (streams("Sure.", error("out of memory")), "upstream_error"),
    ],
    ids=["refused", "broken off", "an error inside"],
)
async def test_4_what_fails_while_collecting_is_a_run_error(script: Script, status: str) -> None:
    async with openai_server(script) as upstream:
        config = upstream_config(upstream.base_url, output="max_attempts = 1")
        async with gateway(config) as edge:
            answer = await ask_once(edge.url, request(), FULL)
            (row,) = await edge.settled()

    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (502, "run_error")
    assert row.status == status


async def test_4_what_fails_while_collecting_is_asked_again_since_nothing_was_shown() -> None:
    async with (
        openai_server(streams("Sure.", Break.RESET), SOUND) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, request(), FULL)

    assert message(answer)["content"] is None, "nothing of the broken attempt is left"
    assert edge.statuses() == ["upstream_error", "success"]


async def test_5_a_valid_answer_is_role_content_calls_finish_done() -> None:
    script = calls("set_limit", {"limit": 3}, "Sure", ".")
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, request(), FULL)
        (row,) = await edge.settled()

    *chunks, done = payloads(answer.body)
    parsed = [json.loads(chunk) for chunk in chunks]
    choices = [chunk["choices"][0] for chunk in parsed]
    assert [list(choice["delta"]) for choice in choices] == [
        ["role", "content"],
        ["content"],
        ["tool_calls"],
        [],
    ]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "tool_calls"]
    assert done == "[DONE]"
    assert {(c["id"], c["model"]) for c in parsed} == {(f"chatcmpl-{row.run_id}", "coder")}
    assert len({c["created"] for c in parsed}) == 1
    assert (row.usage.output_tokens, row.usage.reported) == (5, True)


async def test_6_a_traced_run_logs_every_piece_with_a_number_and_no_content() -> None:
    script = calls("set_limit", {"limit": 3}, "Sure", ".")
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        logged() as lines,
    ):
        await ask_once(edge.url, request(metadata={"edge.trace": "true"}), FULL)
        await edge.settled()

    *pieces, ended = lines
    assert [(p["event"], p["seq"], p["kind"]) for p in pieces] == [
        ("piece", 1, "content"),
        ("piece", 2, "tool_calls"),
        ("piece", 3, "finish"),
    ]
    assert "Sure" not in str(lines)
    assert (ended["event"], ended["calls"]) == ("run ended", ("set_limit",))
    assert ended["response_mode"] == "full"
    assert ended["content_chars"] == len("Sure.")


async def test_6_a_repair_is_named_in_the_ledger_and_in_the_log_of_a_traced_run() -> None:
    async with (
        openai_server(calls("set_limit", '{"limit": 3,}')) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        logged() as lines,
    ):
        await ask_once(edge.url, request(metadata={"edge.trace": "true"}), FULL)
        (row,) = await edge.settled()

    assert row.repairs == ("trailing_comma",)
    (piece,) = [line for line in lines if line.get("kind") == "tool_calls"]
    assert piece["repairs"] == ("trailing_comma",)


async def test_6_with_trace_content_the_text_is_logged_too() -> None:
    async with openai_server(streams("Sure.")) as upstream:
        config = upstream_config(upstream.base_url, telemetry="trace_content = true")
        async with gateway(config) as edge, logged() as lines:
            await ask_once(edge.url, request(metadata={"edge.trace": "true"}), FULL)
            await edge.settled()

    assert lines[0]["text"] == "Sure."


async def test_every_run_ends_in_one_row_an_attempt_and_one_end() -> None:
    async with (
        openai_server(UNSOUND, refuses(500), SOUND) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        await ask_once(edge.url, request(), FULL)
        await edge.settled(3)

    ended = [event for event in edge.events if isinstance(event, AttemptEnded)]
    assert [row.attempt for row in ended] == [1, 2, 3]
    assert [row.status for row in ended] == ["validation_failed", "upstream_error", "success"]
    (over,) = [event for event in edge.events if isinstance(event, RunEnded)]
    assert (over.status, over.attempts) == ("success", 3)
