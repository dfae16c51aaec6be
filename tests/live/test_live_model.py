"""The gateway in front of a real model: what only a real server can show.

Skipped unless ``EDGE_LIVE_URL`` names one (see conftest.py). Nothing here depends on what the model
says, only on the shape in which it arrives.
"""

import json
import socket
from typing import Any

import jsonschema_rs
import pytest
import trio
from openai.types.chat import ChatCompletionChunk

from tests.live.conftest import Live
from tests.live.server_load import requests_in_work

QUESTION: list[Any] = [{"role": "user", "content": "Say hello to the world."}]
LONG_WORK = [{"role": "user", "content": "Write a very long story about a lighthouse."}]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city now.",
            "parameters": WEATHER,
        },
    }
]
ENDS = {"stop", "length"}
FREED_WITHIN_S = 5.0


def streamed(live: Live, **options: Any) -> list[ChatCompletionChunk]:
    """All chunks of a short streamed answer."""
    with live.client as client:
        return list(
            client.chat.completions.create(
                model=live.model, messages=QUESTION, stream=True, max_tokens=16, **options
            )
        )


def test_a_streamed_answer_arrives_piece_by_piece_and_well_formed(live: Live) -> None:
    chunks = streamed(live)
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices[0].delta.content]
    assert len(pieces) > 1
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    ends = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    assert len(ends) == 1
    assert ends[0] in ENDS


def test_an_answer_that_is_not_streamed_is_whole_and_counts_its_tokens(live: Live) -> None:
    with live.client as client:
        answer = client.chat.completions.create(model=live.model, messages=QUESTION, max_tokens=16)
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason in ENDS
    assert answer.usage is not None
    assert answer.usage.prompt_tokens > 0
    assert 0 < answer.usage.completion_tokens <= 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_usage_comes_last_and_alone_where_it_was_asked_for(live: Live) -> None:
    *answer, last = streamed(live, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens > 0
    assert all(chunk.usage is None and chunk.choices for chunk in answer)


def test_no_usage_is_sent_where_it_was_not_asked_for(live: Live) -> None:
    chunks = streamed(live)
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_demanded_tool_call_keeps_its_schema(live: Live, *, stream: bool) -> None:
    """Also from a model that was never taught to call tools, on a server with json_schema."""
    asked: dict[str, Any] = {
        "model": live.model,
        "messages": [{"role": "user", "content": "What is the weather in Paris, in celsius?"}],
        "tools": TOOLS,
        "tool_choice": "required",
        "max_tokens": 200,
        "temperature": 0,
    }
    with live.client as client:
        if stream:
            with client.chat.completions.stream(**asked) as events:
                answer: Any = events.get_final_completion()
        else:
            answer = client.chat.completions.create(**asked)
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert call.function.name == "get_weather"
        jsonschema_rs.validate(WEATHER, json.loads(call.function.arguments))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_client_that_leaves_frees_the_servers_slot(live: Live, *, stream: bool) -> None:
    """While the server would go on for minutes.

    llama.cpp looks after a client that is not streamed to only when a second passes in which
    nothing at all happens in it, which asking for its slots prevents. The gateway must be quicker.
    """
    if requests_in_work(live.server_url) is None:
        pytest.skip("the server does not tell what it is working on")
    await in_work(live, 0)
    with socket.create_connection(("127.0.0.1", live.port)) as client:
        client.sendall(long_request(live, stream=stream))
        await in_work(live, 1)
        if stream:
            client.recv(65536)
    await in_work(live, 0)


def long_request(live: Live, *, stream: bool) -> bytes:
    """A request that keeps a server busy; ``ignore_eos`` is known to llama.cpp and vLLM."""
    asked = {"model": live.model, "messages": LONG_WORK, "max_tokens": 1900, "ignore_eos": True}
    body = json.dumps(asked | {"stream": stream}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{live.port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def in_work(live: Live, wanted: int) -> None:
    """Wait until the server works on so many requests; real time, since the server is real."""
    seen: int | None = None
    with trio.move_on_after(FREED_WITHIN_S):
        seen = await trio.to_thread.run_sync(requests_in_work, live.server_url)
        while seen != wanted:
            await trio.sleep(0.1)
            seen = await trio.to_thread.run_sync(requests_in_work, live.server_url)
    assert seen == wanted
