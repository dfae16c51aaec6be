"""A fleet behind one name: another provider answers where the first one fails, unseen.

The first provider of the route fails in some way before anything of its answer has left; the
second is well. The client must not notice, and both attempts are in the ledger.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import orjson
import pytest
import trio

from tests.fakes.gateway import RunningGateway, ask_once, chat, gateway, message
from tests.fakes.raw_client import RawResponse
from tests.fakes.raw_server import Peer, RawServer, answering, raw_server

Script = Callable[[Peer], Awaitable[None]]
SOUND = "from the second"


def event(chunk: object) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def word(text: str) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}


async def sound(peer: Peer) -> None:
    while True:
        await peer.read_request()
        await peer.start_sse()
        await peer.send_chunk(event(word(SOUND)))
        await peer.send_chunk(event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
        await peer.send_chunk(b"data: [DONE]\n\n")
        await peer.end_chunks()


async def hangs_up_at_once(peer: Peer) -> None:
    await trio.lowlevel.checkpoint()
    peer.reset()


async def hangs_up_on_requests(peer: Peer) -> None:
    await peer.read_request()


async def says_nothing(peer: Peer) -> None:
    await peer.read_request()
    await peer.wait_closed()


async def sends_no_content(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    await peer.wait_closed()


async def sends_an_error_object(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(event({"error": {"message": "overloaded", "type": "server_error"}}))
    await peer.wait_closed()


async def dies_in_the_head(peer: Peer) -> None:
    await peer.read_request()
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-ty")


async def sends_html(peer: Peer) -> None:
    await peer.read_request()
    await peer.send_answer(200, b"<html>", {"content-type": "text/html"})


def one_word_then(end: Callable[[Peer], Awaitable[None]]) -> Script:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.start_sse()
        await peer.send_chunk(event(word("from the first")))
        await end(peer)

    return script


@asynccontextmanager
async def fleet(
    *scripts: Script, provider: str = "", policy: str = "ordered"
) -> AsyncGenerator[tuple[RunningGateway, list[RawServer]]]:
    """A gateway whose only route tries providers ``p1``, ``p2``… in order."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(raw_server(script)) for script in scripts]
        text = "".join(
            f'[[providers]]\nname = "p{number}"\nbase_url = "{server.url}/v1"\n{provider}\n'
            for number, server in enumerate(servers, 1)
        )
        targets = ", ".join(
            f'{{ provider = "p{number}" }}' for number in range(1, len(servers) + 1)
        )
        text += f'[[routes]]\nmodel = "*"\npolicy = "{policy}"\ntargets = [{targets}]\n'
        edge = await stack.enter_async_context(gateway(text))
        yield edge, servers


def told(answer: RawResponse) -> dict[str, object]:
    error: dict[str, object] = orjson.loads(answer.body)["error"]
    return error


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("failing", "category"),
    [
        (hangs_up_at_once, "connect"),
        (hangs_up_on_requests, "connect"),
        (answering(408), "http_408"),
        (answering(409), "http_409"),
        (answering(429), "http_429"),
        (answering(500), "http_5xx"),
        (answering(503), "http_5xx"),
        (answering(401), "http_auth"),
        (sends_an_error_object, "stream_error"),
        (says_nothing, "first_token_timeout"),
        (sends_no_content, "first_token_timeout"),
        (sends_html, "protocol"),
        (dies_in_the_head, "protocol"),
    ],
)
async def test_the_client_gets_the_second_providers_answer(
    failing: Script, category: str, stream: bool
) -> None:
    # Only who is silent on purpose is given a short time: the machine may be busy.
    impatient = "first_token_timeout_s = 0.1" if category == "first_token_timeout" else ""
    async with fleet(failing, sound, provider=impatient) as (edge, _):
        answer = await ask_once(edge.url, chat(stream=stream))

        assert message(answer)["content"] == SOUND
        first, second = await edge.settled(2)
        assert (first.provider, first.category) == ("p1", category)
        assert (second.provider, second.status) == ("p2", "success")


async def test_a_provider_that_cannot_be_reached_is_passed_over() -> None:
    async with fleet(sound, sound) as (edge, servers):
        listener_gone = servers[0].url
        async with raw_server(sound) as gone:
            listener_gone = gone.url
        text = f"""
[[providers]]
name = "p1"
base_url = "{listener_gone}/v1"
[[providers]]
name = "p2"
base_url = "{servers[1].url}/v1"
[[routes]]
model = "*"
policy = "ordered"
targets = [{{ provider = "p1" }}, {{ provider = "p2" }}]
"""
        async with gateway(text) as other:
            assert message(await ask_once(other.url, chat()))["content"] == SOUND
            assert other.statuses() == ["upstream_error", "success"]
        assert edge.rows() == []


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refusal_of_the_request_is_passed_on_and_not_tried_elsewhere(status: int) -> None:
    body = b'{"error": {"message": "too long", "type": "context", "code": "x", "param": "y"}}'
    async with fleet(answering(status, body), sound) as (edge, servers):
        answer = await ask_once(edge.url, chat())

        assert (answer.status, answer.body) == (status, body)
        assert servers[1].count("accepted") == 0
        assert len(await edge.settled()) == 1


async def test_nothing_follows_what_the_client_has_seen() -> None:
    async with fleet(one_word_then(Peer.wait_closed), sound, provider="idle_timeout_s = 0.1") as (
        edge,
        servers,
    ):
        answer = await ask_once(edge.url, chat(stream=True))

        assert b"from the first" in answer.body
        assert b'"error"' in answer.body
        assert b'"finish_reason":"stop"' not in answer.body
        assert servers[1].count("accepted") == 0
        (row,) = await edge.settled()
        assert (row.status, row.category) == ("timeout", "idle_timeout")


async def test_a_whole_answer_that_breaks_off_is_tried_elsewhere() -> None:
    """Nothing of it has been seen."""
    async with fleet(one_word_then(Peer.wait_closed), sound, provider="idle_timeout_s = 0.1") as (
        edge,
        _,
    ):
        assert message(await ask_once(edge.url, chat()))["content"] == SOUND
        first, _second = await edge.settled(2)
        assert first.category == "idle_timeout"


async def test_the_budget_bounds_the_attempts_over_all_providers() -> None:
    scripts = [answering(500) for _ in range(5)]
    async with fleet(*scripts) as (edge, servers):
        answer = await ask_once(edge.url, chat())

        assert answer.status == 502
        assert told(answer)["type"] == "run_error"
        assert answer.headers["x-should-retry"] == "false"
        assert [server.count("head") for server in servers] == [1, 1, 1, 0, 0]


async def test_a_provider_that_keeps_failing_is_left_alone() -> None:
    async with fleet(answering(500), sound) as (edge, servers):
        for _ in range(20):
            assert message(await ask_once(edge.url, chat()))["content"] == SOUND

        assert servers[0].count("head") == 5
        health = {
            each.name: each.health for each in edge.gateway.desk.dispatcher.statistics().providers
        }
        assert health == {"p1": "open", "p2": "closed"}


async def test_a_providers_retry_after_is_respected() -> None:
    async with fleet(answering(429, b"{}", {"retry-after": "60"}), sound) as (edge, servers):
        for _ in range(5):
            assert message(await ask_once(edge.url, chat()))["content"] == SOUND

        assert servers[0].count("head") == 1


async def test_the_only_providers_long_retry_after_is_the_clients() -> None:
    async with fleet(answering(429, b'{"error": "busy"}', {"retry-after": "60"})) as (
        edge,
        servers,
    ):
        first = await ask_once(edge.url, chat())
        second = await ask_once(edge.url, chat())

        assert (first.status, told(first)["type"]) == (429, "rate_limit_error")
        assert first.headers["retry-after"] == "60"
        assert (second.status, told(second)["type"]) == (503, "overloaded_error")
        assert 58 <= int(second.headers["retry-after"]) <= 60
        assert servers[0].count("head") == 1


async def test_a_model_server_that_cannot_parse_its_models_call_is_asked_again() -> None:
    answers = 0

    async def second_time_lucky(peer: Peer) -> None:
        nonlocal answers
        await peer.read_request()
        answers += 1
        if answers == 1:
            body = b'{"error":{"code":500,"message":"Failed to parse tool call arguments as JSON"}}'
            await peer.send_answer(500, body)
            await peer.read_request()
        await peer.start_sse()
        await peer.send_chunk(event(word(SOUND)))
        await peer.send_chunk(b"data: [DONE]\n\n")
        await peer.end_chunks()
        await peer.wait_closed()

    async with fleet(second_time_lucky) as (edge, _):
        assert message(await ask_once(edge.url, chat()))["content"] == SOUND

        first, _second = await edge.settled(2)
        assert (first.status, first.category) == ("validation_failed", "tool_parse")


async def test_no_attempts_are_added_while_the_pool_is_saturated() -> None:
    release = trio.Event()

    async def fails_when_told(peer: Peer) -> None:
        await peer.read_request()
        await release.wait()
        await peer.send_answer(500, b"{}")

    async with fleet(fails_when_told, provider="max_concurrent = 1") as (edge, servers):
        answers: list[RawResponse] = []

        async def client() -> None:
            answers.append(await ask_once(edge.url, chat()))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(client)
            with trio.fail_after(5):
                while edge.gateway.desk.dispatcher.statistics().waiting < 3:  # noqa: ASYNC110
                    await trio.sleep(0.001)
            release.set()

        assert [answer.status for answer in answers] == [502] * 4
        # Twelve, if each of the four had spent its three attempts.
        assert servers[0].count("head") < 12
