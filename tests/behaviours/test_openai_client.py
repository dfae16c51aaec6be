"""The official ``openai`` client as a judge of the wire, sync and async, streamed and whole.

Each test runs twice: with ``OpenAI`` in a thread and with ``AsyncOpenAI`` on trio. What the client
makes of an answer is asserted, never the bytes.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias

import openai
import pytest
import trio
from openai.lib.streaming.chat import ChatCompletionStreamEvent
from openai.types import Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ParsedChatCompletion
from pydantic import BaseModel

from edge.settings import Settings
from tests.fakes.gateway import RunningGateway, gateway, upstream_config
from tests.fakes.openai_scripts import (
    answers,
    call,
    calls,
    completes,
    error,
    refuses,
    silent,
    streams,
)
from tests.fakes.openai_server import OpenAIServer, Script, openai_server

# The async client leaves its own generators to the collector, which trio remarks upon.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")

PATIENCE_S = 20.0
USER = [{"role": "user", "content": "two  words\n"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


# A string: the client's union of events takes its parameter only from type checkers.
Helped: TypeAlias = "tuple[list[ChatCompletionStreamEvent[Any]], ParsedChatCompletion[Any]]"


class Answer(BaseModel):
    """A demanded shape of text."""

    title: str
    steps: list[int]


class Talk(Protocol):
    """The client's calls that are used here, whichever kind of client makes them."""

    async def whole(self, **request: Any) -> ChatCompletion: ...

    async def chunks(self, **request: Any) -> list[ChatCompletionChunk]: ...

    async def helped(self, **request: Any) -> Helped:
        """Through the streaming helper: its events, and the completion it accumulates."""
        ...

    async def parsed(self, **request: Any) -> ParsedChatCompletion[Any]: ...

    async def models(self) -> list[Model]: ...

    async def model(self, name: str) -> Model: ...

    async def first_word(self, **request: Any) -> str:
        """Leave after the first content."""
        ...


class SyncTalk:
    """``OpenAI``, each call in a thread."""

    def __init__(self, client: openai.OpenAI) -> None:
        self._client = client
        self._completions: Any = client.chat.completions

    async def whole(self, **request: Any) -> ChatCompletion:
        made: ChatCompletion = await self._in_thread(self._completions.create, **request)
        return made

    async def chunks(self, **request: Any) -> list[ChatCompletionChunk]:
        def read() -> list[ChatCompletionChunk]:
            with self._completions.create(stream=True, **request) as stream:
                return list(stream)

        return await trio.to_thread.run_sync(read)

    async def helped(self, **request: Any) -> Helped:
        def read() -> Helped:
            with self._completions.stream(**request) as stream:
                return list(stream), stream.get_final_completion()

        return await trio.to_thread.run_sync(read)

    async def parsed(self, **request: Any) -> ParsedChatCompletion[Any]:
        made: ParsedChatCompletion[Any] = await self._in_thread(self._completions.parse, **request)
        return made

    async def models(self) -> list[Model]:
        return await trio.to_thread.run_sync(lambda: list(self._client.models.list()))

    async def model(self, name: str) -> Model:
        return await trio.to_thread.run_sync(self._client.models.retrieve, name)

    async def first_word(self, **request: Any) -> str:
        def read() -> str:
            with self._completions.create(stream=True, **request) as stream:
                return next(word for chunk in stream if (word := content(chunk)))

        return await trio.to_thread.run_sync(read)

    async def _in_thread(self, made: Callable[..., Any], **request: Any) -> Any:
        return await trio.to_thread.run_sync(partial(made, **request))


class AsyncTalk:
    """``AsyncOpenAI`` on trio."""

    def __init__(self, client: openai.AsyncOpenAI) -> None:
        self._client = client
        self._completions: Any = client.chat.completions

    async def whole(self, **request: Any) -> ChatCompletion:
        made: ChatCompletion = await self._completions.create(**request)
        return made

    async def chunks(self, **request: Any) -> list[ChatCompletionChunk]:
        async with await self._completions.create(stream=True, **request) as stream:
            return [chunk async for chunk in stream]

    async def helped(self, **request: Any) -> Helped:
        async with self._completions.stream(**request) as stream:
            return [event async for event in stream], await stream.get_final_completion()

    async def parsed(self, **request: Any) -> ParsedChatCompletion[Any]:
        made: ParsedChatCompletion[Any] = await self._completions.parse(**request)
        return made

    async def models(self) -> list[Model]:
        return [model async for model in self._client.models.list()]

    async def model(self, name: str) -> Model:
        return await self._client.models.retrieve(name)

    async def first_word(self, **request: Any) -> str:
        async with await self._completions.create(stream=True, **request) as stream:
            async for chunk in stream:
                if word := content(chunk):
                    return word
        raise AssertionError("no word came")


Talker: TypeAlias = Callable[..., Any]


@asynccontextmanager
async def sync_talk(url: str, **options: Any) -> AsyncGenerator[Talk]:
    with openai.OpenAI(base_url=f"{url}/v1", **{**OPTIONS, **options}) as client:
        yield SyncTalk(client)


@asynccontextmanager
async def async_talk(url: str, **options: Any) -> AsyncGenerator[Talk]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", **{**OPTIONS, **options}) as client:
        yield AsyncTalk(client)


OPTIONS: dict[str, Any] = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S}


@pytest.fixture(params=[sync_talk, async_talk], ids=["sync", "async"])
def talker(request: pytest.FixtureRequest) -> Talker:
    made: Talker = request.param
    return made


@asynccontextmanager
async def simulated(talker: Talker) -> AsyncGenerator[Talk]:
    """A client of a gateway that serves the simulated models."""
    with trio.fail_after(PATIENCE_S):
        async with (
            gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge,
            talker(edge.url) as talk,
        ):
            yield talk


@asynccontextmanager
async def served(
    talker: Talker, *scripts: Script, models: tuple[str, ...] = (), output: str = "", **options: Any
) -> AsyncGenerator[tuple[Talk, OpenAIServer, RunningGateway]]:
    """A client of a gateway in front of a scripted model server."""
    with trio.fail_after(PATIENCE_S):
        async with openai_server(*scripts, models=models) as upstream:
            config = upstream_config(upstream.url, output=output)
            async with gateway(config) as edge, talker(edge.url, **options) as talk:
                yield talk, upstream, edge


def content(chunk: ChatCompletionChunk) -> str:
    return "".join(choice.delta.content or "" for choice in chunk.choices)


def text(completion: ChatCompletion) -> str | None:
    return completion.choices[0].message.content


def calls_of(completion: ChatCompletion) -> list[tuple[str, str]]:
    made = completion.choices[0].message.tool_calls or []
    assert len({one.id for one in made}) == len(made)
    assert all(one.type == "function" for one in made)
    return [(one.function.name, one.function.arguments) for one in made if one.type == "function"]


async def test_a_whole_answer_is_a_completion(talker: Talker) -> None:
    async with simulated(talker) as talk:
        got = await talk.whole(model="sim-echo", messages=USER)
    assert text(got) == "two  words\n"
    assert (got.object, got.model) == ("chat.completion", "sim-echo")
    assert got.choices[0].finish_reason == "stop"
    assert got.choices[0].message.role == "assistant"
    assert got.usage is not None
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens > 0
    assert got._request_id


async def test_a_stream_is_chunks_that_say_the_same(talker: Talker) -> None:
    async with simulated(talker) as talk:
        chunks = await talk.chunks(model="sim-echo", messages=USER)
    assert "".join(map(content, chunks)) == "two  words\n"
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices[0].delta.role] == [
        "assistant"
    ]
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_comes_in_a_chunk_of_its_own_if_it_is_asked_for(talker: Talker) -> None:
    async with simulated(talker) as talk:
        chunks = await talk.chunks(
            model="sim-echo", messages=USER, stream_options={"include_usage": True}
        )
    assert [bool(chunk.choices) for chunk in chunks[-2:]] == [True, False]
    assert chunks[-1].usage is not None
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_the_streaming_helper_accumulates_the_whole_answer(talker: Talker) -> None:
    async with simulated(talker) as talk:
        events, final = await talk.helped(model="sim-echo", messages=USER)
    assert text(final) == "two  words\n"
    assert final.choices[0].finish_reason == "stop"
    deltas = [event.delta for event in events if event.type == "content.delta"]
    assert "".join(deltas) == "two  words\n"
    assert [event.type for event in events].count("content.done") == 1


async def test_several_choices_are_kept_apart(talker: Talker) -> None:
    async with simulated(talker) as talk:
        whole = await talk.whole(model="sim-echo", messages=USER, n=2)
        _, helped = await talk.helped(model="sim-echo", messages=USER, n=2)
    for got in (whole, helped):
        assert [choice.message.content for choice in got.choices] == ["two  words\n"] * 2
        assert [choice.index for choice in got.choices] == [0, 1]


async def test_only_the_sound_attempts_call_is_seen(talker: Talker) -> None:
    request = {"model": "sim-tools", "messages": USER, "tools": [WEATHER]}
    async with simulated(talker) as talk:
        whole = await talk.whole(**request)
        _, helped = await talk.helped(**request)
    for got in (whole, helped):
        assert calls_of(got) == [("weather", '{"city":"example"}')]
        assert got.choices[0].finish_reason == "tool_calls"


async def test_native_deltas_of_any_shape_accumulate_to_sound_calls(talker: Talker) -> None:
    split = streams(
        {"tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": ""}}]},
        {"tool_calls": [{"id": "a", "function": {"name": "weather", "arguments": '{"ci'}}]},
        {"tool_calls": [{"function": {"arguments": 'ty":"Oslo"}'}}]},
        call("weather", {"city": "Rome"}, identity="b", index=0),
        finish="stop",
    )
    request = {"model": "m", "messages": USER, "tools": [WEATHER]}
    async with served(talker, split) as (talk, _, _):
        whole = await talk.whole(**request)
        events, helped = await talk.helped(**request)
    for got in (whole, helped):
        assert [name for name, _ in calls_of(got)] == ["weather", "weather"]
        assert [arguments.replace(" ", "") for _, arguments in calls_of(got)] == [
            '{"city":"Oslo"}',
            '{"city":"Rome"}',
        ]
        assert got.choices[0].finish_reason == "tool_calls"
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert [event.index for event in done] == [0, 1]


async def test_text_before_a_call_and_reasoning_are_kept(talker: Talker) -> None:
    script = calls("weather", {"city": "Oslo"}, {"reasoning": "hm"}, "Let me look.")
    request = {"model": "m", "messages": USER, "tools": [WEATHER]}
    async with served(talker, script) as (talk, _, _):
        whole = await talk.whole(**request)
        _, helped = await talk.helped(**request)
    for got in (whole, helped):
        assert text(got) == "Let me look."
        assert got.choices[0].message.model_extra is not None
        assert got.choices[0].message.model_extra["reasoning_content"] == "hm"
        assert len(calls_of(got)) == 1


async def test_a_demanded_model_is_parsed(talker: Talker) -> None:
    async with simulated(talker) as talk:
        whole = await talk.parsed(model="sim-echo", messages=USER, response_format=Answer)
        _, helped = await talk.helped(model="sim-echo", messages=USER, response_format=Answer)
    for got in (whole, helped):
        assert got.choices[0].message.parsed == Answer(title="example", steps=[1])


async def test_a_tools_arguments_are_parsed(talker: Talker) -> None:
    tools = [openai.pydantic_function_tool(Answer, name="answer")]
    request = {"model": "sim-tools", "messages": USER, "tools": tools}
    async with simulated(talker) as talk:
        whole = await talk.parsed(**request)
        _, helped = await talk.helped(**request)
    for got in (whole, helped):
        (made,) = got.choices[0].message.tool_calls or []
        assert made.function.parsed_arguments == Answer(title="example", steps=[1])


async def test_an_answer_that_was_cut_is_told_as_cut(talker: Talker) -> None:
    script = streams('{"title": "x", "ste', finish="length")
    async with served(talker, script, output="max_attempts = 1") as (talk, _, _):
        got = await talk.whole(model="m", messages=USER)
        assert got.choices[0].finish_reason == "length"


async def test_a_providers_whole_completion_is_an_answer_too(talker: Talker) -> None:
    async with served(talker, completes("Hello")) as (talk, _, _):
        assert text(await talk.whole(model="m", messages=USER)) == "Hello"
        chunks = await talk.chunks(model="m", messages=USER)
        assert "".join(map(content, chunks)) == "Hello"


async def test_models_are_listed_and_found(talker: Talker) -> None:
    async with simulated(talker) as talk:
        names = {model.id for model in await talk.models()}
        assert names == {"sim-echo", "sim-tools", "sim-slow"}
        found = await talk.model("sim-echo")
        assert (found.id, found.object) == ("sim-echo", "model")
        with pytest.raises(openai.NotFoundError):
            await talk.model("nope")


async def test_a_providers_own_models_are_listed(talker: Talker) -> None:
    async with served(talker, models=("theirs",)) as (talk, _, _):
        assert "theirs" in {model.id for model in await talk.models()}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_bad_request_names_its_place(talker: Talker, stream: bool) -> None:
    request = {"model": "sim-echo", "messages": [*USER, {"role": "nobody"}]}
    async with simulated(talker) as talk:
        with pytest.raises(openai.BadRequestError) as caught:
            await (talk.chunks(**request) if stream else talk.whole(**request))
    fault = caught.value
    assert (fault.type, fault.param) == ("invalid_request_error", "messages[1].role")


async def test_a_refused_request_has_an_id_to_ask_about(talker: Talker) -> None:
    async with simulated(talker) as talk:
        with pytest.raises(openai.BadRequestError) as caught:
            await talk.whole(model="sim-echo", messages=[])
    assert caught.value.request_id


async def test_an_unknown_model_is_not_found(talker: Talker) -> None:
    async with simulated(talker) as talk:
        with pytest.raises(openai.NotFoundError) as caught:
            await talk.whole(model="nope", messages=USER)
    assert caught.value.type == "model_not_found"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_calls_that_stay_unsound_are_an_error_with_its_type(
    talker: Talker, stream: bool
) -> None:
    request = {"model": "m", "messages": USER, "tools": [WEATHER]}
    async with served(talker, calls("weather", {"days": "x"})) as (talk, upstream, _):
        with pytest.raises(openai.APIError) as caught:
            await (talk.chunks(**request) if stream else talk.whole(**request))
        assert len(upstream.asked) == 3
    assert isinstance(caught.value, openai.InternalServerError)
    assert (caught.value.type, caught.value.status_code) == ("tool_validation_error", 502)
    assert "days" in caught.value.message


async def test_attempts_are_not_multiplied_by_the_clients_own(talker: Talker) -> None:
    request = {"model": "m", "messages": USER, "tools": [WEATHER]}
    script = calls("weather", "not json")
    async with served(talker, script, max_retries=3) as (talk, upstream, _):
        with pytest.raises(openai.InternalServerError):
            await talk.whole(**request)
        assert len(upstream.asked) == 3


async def test_a_failure_after_the_first_word_raises_in_the_stream(talker: Talker) -> None:
    script = streams("Hel", error("out of memory"), finish=None, done=False)
    async with served(talker, script) as (talk, upstream, _):
        with pytest.raises(openai.APIError) as caught:
            await talk.chunks(model="m", messages=USER)
        assert len(upstream.asked) == 1
    assert not isinstance(caught.value, openai.APIStatusError)
    assert caught.value.type == "run_error"
    assert "out of memory" in caught.value.message


async def test_a_providers_refusal_keeps_its_status_and_words(talker: Talker) -> None:
    script = refuses(400, "too many tokens", kind="invalid_request_error")
    async with served(talker, script) as (talk, upstream, _):
        with pytest.raises(openai.BadRequestError, match="too many tokens") as caught:
            await talk.whole(model="m", messages=USER)
        assert len(upstream.asked) == 1
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    "script",
    [
        refuses(500),
        answers(200, b"<html></html>", {"content-type": "text/html"}),
        answers(200, b'{"choices": ['),
        streams(error("boom"), role=False, finish=None),
    ],
    ids=["an error status", "a page", "cut JSON", "an error inside a 200"],
)
async def test_a_provider_that_fails_every_time_is_a_502(talker: Talker, script: Script) -> None:
    async with served(talker, script) as (talk, _, _):
        with pytest.raises(openai.InternalServerError) as caught:
            await talk.whole(model="m", messages=USER)
    assert (caught.value.status_code, caught.value.type) == (502, "run_error")


async def test_an_attempt_that_fails_before_a_word_is_made_again_unseen(talker: Talker) -> None:
    async with served(talker, refuses(500), streams("fine")) as (talk, upstream, _):
        chunks = await talk.chunks(model="m", messages=USER)
        assert "".join(map(content, chunks)) == "fine"
        assert len(upstream.asked) == 2


async def test_leaving_a_stream_ends_the_run_at_the_provider(talker: Talker) -> None:
    pause = trio.Event()
    async with served(talker, streams("one", pause, " two")) as (talk, upstream, edge):
        assert await talk.first_word(model="m", messages=USER) == "one"
        await upstream.raw.client_left()
        assert "ended" not in upstream.kinds()
        assert [row.status for row in await edge.settled()] == ["cancelled"]


async def test_a_client_that_times_out_ends_the_run_at_the_provider(talker: Talker) -> None:
    impatient = openai.Timeout(PATIENCE_S, read=0.2)
    async with served(talker, silent, timeout=impatient) as (talk, upstream, edge):
        with pytest.raises(openai.APITimeoutError):
            await talk.whole(model="m", messages=USER)
        await upstream.raw.client_left()
        assert [row.status for row in await edge.settled()] == ["cancelled"]


async def test_wrong_keys_are_authentication_errors(talker: Talker) -> None:
    config = """
[[keys]]
name = "team"
key = "env:PATH"
[[providers]]
name = "sim"
kind = "simulated"
[[routes]]
model = "*"
targets = [{ provider = "sim" }]
"""
    async with gateway(config) as edge, talker(edge.url) as talk:
        with pytest.raises(openai.AuthenticationError) as caught:
            await talk.whole(model="sim-echo", messages=USER)
    assert caught.value.type == "authentication_error"
