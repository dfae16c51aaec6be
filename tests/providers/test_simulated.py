"""The simulated models: what they say, when, and that they always say the same."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
import trio
from trio.testing import MockClock

from edge.errors import ProviderRefused
from edge.providers.port import ProviderRequest, TunnelRequest
from edge.providers.simulated import MODELS, SimulatedProvider
from edge.wire.openai_chunks import whole_chunk

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 2}},
    "required": ["city", "days"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "clock"}},
]


def request(model: str, text: Any = "two words", attempt: int = 1, **keys: Any) -> ProviderRequest:
    body = {"model": model, "messages": [{"role": "user", "content": text}], **keys}
    return ProviderRequest(body=body, model=model, attempt=attempt, run_id="run_7")


async def answer(asked: ProviderRequest) -> list[dict[str, Any]]:
    chunks: list[dict[str, Any]] = []
    async with SimulatedProvider().open(asked) as stream:
        while received := await stream.receive():
            chunks += map(whole_chunk, received)
        assert stream.complete
    return chunks


def deltas(chunks: list[dict[str, Any]], index: int = 0) -> list[dict[str, Any]]:
    found = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return [choice["delta"] for choice in found]


def said(chunks: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(delta.get("content") or "" for delta in deltas(chunks, index))


def call(chunks: list[dict[str, Any]]) -> tuple[str, str]:
    entries = [entry for delta in deltas(chunks) for entry in delta.get("tool_calls", ())]
    assert {entry["index"] for entry in entries} == {0}
    arguments = "".join(entry["function"].get("arguments", "") for entry in entries)
    return entries[0]["function"]["name"], arguments


def finish(chunks: list[dict[str, Any]]) -> list[str]:
    return [c["finish_reason"] for chunk in chunks for c in chunk["choices"] if c["finish_reason"]]


@pytest.mark.parametrize("text", ["one", "a b  c\nd ", "  lead", "", " \n", "naïve 😀 text"])
async def test_echo_says_the_last_user_message_a_word_a_chunk(text: str) -> None:
    chunks = await answer(request("sim-echo", text))
    assert said(chunks) == text
    words = [delta["content"] for delta in deltas(chunks)[1:-1]]
    assert all(len(word.split()) <= 1 for word in words)
    assert finish(chunks) == ["stop"]


async def test_echo_reads_the_text_of_parts() -> None:
    parts = [{"type": "text", "text": "a "}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert said(await answer(request("sim-echo", parts))) == "a b"


async def test_the_same_request_has_the_same_answer_and_each_attempt_its_id() -> None:
    first = await answer(request("sim-echo"))
    assert first == await answer(request("sim-echo"))
    assert {chunk["id"] for chunk in first} == {"chatcmpl-sim-run_7.1"}
    second = await answer(request("sim-echo", attempt=2))
    assert {chunk["id"] for chunk in second} == {"chatcmpl-sim-run_7.2"}


async def test_every_choice_is_answered() -> None:
    chunks = await answer(request("sim-echo", n=2))
    assert (said(chunks, 0), said(chunks, 1)) == ("two words", "two words")
    assert finish(chunks) == ["stop", "stop"]


async def test_usage_is_reported_where_it_is_asked_for() -> None:
    chunks = await answer(request("sim-echo", stream_options={"include_usage": True}))
    assert chunks[-1]["choices"] == []
    usage = {"prompt_tokens": 2, "completion_tokens": 2, "total_tokens": 4}
    assert chunks[-1]["usage"] == usage
    assert all(chunk["choices"] for chunk in await answer(request("sim-echo")))


async def test_tools_first_attempt_breaks_off_and_the_second_is_sound() -> None:
    name, arguments = call(await answer(request("sim-tools", tools=TOOLS)))
    assert name == "weather"
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(arguments)
    chunks = await answer(request("sim-tools", tools=TOOLS, attempt=2))
    name, arguments = call(chunks)
    assert name == "weather"
    jsonschema_rs.validator_for(WEATHER).validate(orjson.loads(arguments))
    assert finish(chunks) == ["tool_calls"]


async def test_a_call_without_arguments_breaks_off_too() -> None:
    _, arguments = call(await answer(request("sim-tools", tools=TOOLS[1:])))
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(arguments)
    _, arguments = call(await answer(request("sim-tools", tools=TOOLS[1:], attempt=2)))
    assert arguments == "{}"


async def test_a_demanded_tool_is_the_one_that_is_called() -> None:
    asked = request("sim-tools", tools=TOOLS, tool_choice=TOOLS[1], attempt=2)
    assert call(await answer(asked))[0] == "clock"


@pytest.mark.parametrize("keys", [{}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_without_a_tool_to_call_it_says_so(keys: dict[str, Any]) -> None:
    chunks = await answer(request("sim-tools", **keys))
    assert said(chunks) == "There is no tool for me to call."
    assert finish(chunks) == ["stop"]


async def test_behind_a_tools_result_it_tells_the_result() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "tool", "content": "12 degrees"}]
    chunks = await answer(request("sim-tools", tools=TOOLS, messages=messages))
    assert said(chunks) == "The tool said: 12 degrees"


@pytest.mark.parametrize("model", MODELS[:2])
async def test_a_demanded_schema_is_kept(model: str) -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "w", "schema": WEATHER}}
    chunks = await answer(request(model, response_format=asked))
    jsonschema_rs.validator_for(WEATHER).validate(orjson.loads(said(chunks)))
    chunks = await answer(request(model, response_format={"type": "json_object"}))
    assert isinstance(orjson.loads(said(chunks)), dict)


async def test_slow_says_a_word_a_second(autojump_clock: MockClock) -> None:
    began = autojump_clock.current_time()
    chunks = await answer(request("sim-slow", "one two three"))
    assert said(chunks) == "one two three"
    assert autojump_clock.current_time() - began == pytest.approx(3)


async def test_slow_can_be_cancelled_between_words(autojump_clock: MockClock) -> None:
    heard: list[str] = []
    began = autojump_clock.current_time()
    async with SimulatedProvider().open(request("sim-slow", "one two three")) as stream:
        with trio.move_on_after(1.5) as scope:
            while True:
                heard.append(said([*map(whole_chunk, await stream.receive())]))
        assert not stream.complete
    assert scope.cancelled_caught
    assert autojump_clock.current_time() - began == pytest.approx(1.5)
    assert "".join(heard).strip() == "one"


async def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ProviderRefused) as caught:
        await answer(request("gpt-9"))
    assert caught.value.upstream_status == 404
    assert b"gpt-9" in caught.value.upstream_body


async def test_it_lists_its_models() -> None:
    provider = SimulatedProvider("sim")
    models = await provider.list_models()
    assert [(model["id"], model["owned_by"]) for model in models] == [(m, "sim") for m in MODELS]
    await provider.aclose()


async def test_there_is_no_tunnel() -> None:
    provider = SimulatedProvider()
    assert not provider.can_tunnel
    asked = TunnelRequest(path="/embeddings", body=b"{}", headers=[], model="sim-echo")
    with pytest.raises(ProviderRefused):
        async with provider.open_tunnel(asked):
            pass
