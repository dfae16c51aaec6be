"""Every case through a running gateway, streamed and not, with calls held and with all held."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.conformance.cases import (
    CASES,
    assert_answer,
    assert_names_the_fault,
    chunks_of,
    request_of,
    squeeze,
)
from tests.fakes.gateway import RunningGateway, ask, gateway, upstream_config
from tests.fakes.openai_server import Answer, event, openai_server
from tests.fakes.raw_client import RawResponse, connect
from tests.fakes.strict_client import fold, payloads

BY_ID = {case["id"]: case for case in CASES}
HEALED = "All good."


async def replay(answer: Answer) -> None:
    """The case that the model's name names; ``heal:`` in front lets a second attempt be sound."""
    name = answer.asked.body["model"]
    case = BY_ID[name.removeprefix("heal:")]
    chunks = chunks_of(case)
    if name.startswith("heal:") and answer.asked.attempt > 1:
        chunks = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": HEALED}}]},
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        ]
    await answer.start()
    for chunk in chunks:
        await answer.send(event({**answer.frame(), **chunk}))
    await answer.send(b"data: [DONE]\n\n")
    await answer.end()


@asynccontextmanager
async def scene(buffer: str) -> AsyncGenerator[RunningGateway]:
    async with openai_server(replay) as upstream:
        config = upstream_config(upstream.base_url, output=f'buffer = "{buffer}"')
        async with gateway(config) as edge:
            yield edge


def answer_of(answer: RawResponse, *, stream: bool) -> dict[str, Any]:
    body = fold(answer.body) if stream else orjson.loads(answer.body)
    (choice,) = body["choices"]
    message = choice["message"]
    return {
        "content": message["content"],
        "reasoning": message.get("reasoning_content"),
        "calls": [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in message.get("tool_calls", ())
        ],
        "finish": choice["finish_reason"],
    }


def error_of(answer: RawResponse) -> tuple[dict[str, Any], str]:
    """The error, and the text that was shown before it."""
    if answer.headers["content-type"] == "application/json":
        return orjson.loads(answer.body)["error"], ""
    *chunks, failure, done = (payload for payload in payloads(answer.body))
    assert done == "[DONE]"
    choices = [choice for chunk in chunks for choice in json.loads(chunk)["choices"]]
    assert all(choice["finish_reason"] is None for choice in choices)
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    found: dict[str, Any] = json.loads(failure)["error"]
    return found, "".join(choice["delta"].get("content") or "" for choice in choices)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("buffer", ["full", "tool_calls"])
async def test_every_case(buffer: str, stream: bool) -> None:
    """One test for all, since a gateway is started for it; the first case that differs is named."""
    async with scene(buffer) as edge, connect(edge.url) as client:
        for case in CASES:
            answer = await ask(client, request_of(case, stream=stream))
            attempts = len(edge.gateway.ledger.rows(answer.headers["x-edge-run-id"]))
            try:
                if case["expect"]["outcome"] == "ok":
                    assert attempts == 1
                    live = stream and buffer == "tool_calls"
                    assert_answer(case, answer_of(answer, stream=stream), live=live)
                else:
                    failure, shown = error_of(answer)
                    kinds = ("tool_validation_error", "output_validation_error")
                    assert failure["type"] in kinds
                    assert attempts == 3
                    assert_names_the_fault(case, failure["message"])
                    assert buffer == "tool_calls" or not squeeze(shown)
            except AssertionError as difference:
                raise AssertionError(f"{case['id']}: {difference}") from difference


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_invalid_answer_is_healed_by_a_sound_second_attempt(stream: bool) -> None:
    async with scene("full") as edge, connect(edge.url) as client:
        for case in CASES:
            asked = case["request"]
            free = asked.get("tool_choice") in (None, "auto") and not asked.get("response_format")
            if case["expect"]["outcome"] == "ok" or not free:
                continue
            request = request_of(case, stream=stream) | {"model": f"heal:{case['id']}"}
            answer = await ask(client, request)
            assert answer.headers["x-edge-attempts"] == "2", case["id"]
            got = answer_of(answer, stream=stream)
            assert got == {
                "content": HEALED,
                "reasoning": None,
                "calls": [],
                "finish": "stop",
            }, case["id"]
