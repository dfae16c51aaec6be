"""``on_give_up = "drain"``: the answer is read to its end for the bill, with bounds."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
import trio

from edge.core.run_events import RunEnded
from edge.runs.registry import Run
from tests.fakes.gateway import RunningGateway, ask_once, chat, gateway, send, upstream_config
from tests.fakes.raw_client import connect
from tests.fakes.raw_server import Peer, RawServer, raw_server

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
DRAIN = 'on_give_up = "drain"\nmax_concurrent = 1'


def event(chunk: object) -> bytes:
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


def word(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


class Script:
    """One word, then, once told to, two more, the usage and the end."""

    def __init__(self, *, goes_on: bool = True) -> None:
        self.go_on = trio.Event()
        self._goes_on = goes_on

    async def __call__(self, peer: Peer) -> None:
        await peer.read_request()
        await peer.start_sse()
        await peer.send_chunk(word("one "))
        await self.go_on.wait()
        if not self._goes_on:
            await peer.wait_closed()
            return
        await peer.send_chunk(word("two ") + word("three"))
        await peer.send_chunk(event({"choices": [{"delta": {}, "finish_reason": "stop"}]}))
        await peer.send_chunk(event({"choices": [], "usage": USAGE}))
        await peer.send_chunk(b"data: [DONE]\n\n")
        await peer.end_chunks()
        await peer.wait_closed()


@asynccontextmanager
async def drained_by(
    script: Script, bound: str = ""
) -> AsyncGenerator[tuple[RunningGateway, RawServer]]:
    """A gateway before a provider whose answers are drained."""
    async with raw_server(script) as server:
        config = upstream_config(server.url, provider=f"{DRAIN}\n{bound}")
        async with gateway(config) as edge:
            yield edge, server


async def leave_in_mid_answer(edge: RunningGateway, *, stream: bool) -> None:
    async with connect(edge.url) as client:
        await send(client, chat(stream=stream))
        await until(lambda: phases(edge) == ["streaming"])
        await client.hang_up()
        await until(lambda: phases(edge) in (["draining"], []))


def live(edge: RunningGateway) -> list[Run]:
    return edge.gateway.desk.registry.live()


def phases(edge: RunningGateway) -> list[str]:
    return [run.phase for run in live(edge)]


def slots_taken(edge: RunningGateway) -> int:
    return edge.gateway.desk.dispatcher.statistics().providers[0].busy


def is_hung_up(server: RawServer) -> bool:
    return bool({"closed", "reset"} & set(server.kinds()))


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(5):
        while not holds():  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.001)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_the_answer_is_read_on_and_its_usage_is_in_the_row(stream: bool) -> None:
    script = Script()
    async with drained_by(script) as (edge, server):
        await leave_in_mid_answer(edge, stream=stream)

        assert edge.rows() == []
        assert phases(edge) == ["draining"]
        assert slots_taken(edge) == 1
        assert edge.gateway.desk.admission.statistics().active == 0
        assert not is_hung_up(server)
        script.go_on.set()

        (row,) = await edge.settled()
        assert (row.status, row.category, row.phase) == ("drained", "give_up", "streaming")
        assert (row.usage.output_tokens, row.usage.reported) == (3, True)
        assert slots_taken(edge) == 0
        ends = [event for event in edge.events if isinstance(event, RunEnded)]
        assert [(end.status, end.attempts) for end in ends] == [("drained", 1)]


@pytest.mark.parametrize(
    ("bound", "category"),
    [("drain_s = 0.05", "drain_s"), ("drain_tokens = 1", "drain_tokens")],
)
async def test_a_drain_has_bounds(bound: str, category: str) -> None:
    script = Script(goes_on=category == "drain_tokens")
    async with drained_by(script, bound) as (edge, server):
        await leave_in_mid_answer(edge, stream=True)
        script.go_on.set()

        (row,) = await edge.settled()
        assert (row.status, row.category) == ("drained", category)
        assert not row.usage.reported
        assert row.usage.output_tokens > 0
        await until(lambda: is_hung_up(server))


async def test_a_run_that_is_cancelled_by_its_id_is_not_drained() -> None:
    script = Script(goes_on=False)
    script.go_on.set()
    async with drained_by(script) as (edge, server), connect(edge.url) as client:
        await send(client, chat(stream=True))
        await until(lambda: phases(edge) == ["streaming"])
        (run,) = live(edge)

        edge.gateway.desk.registry.cancel(run.id)

        await until(lambda: is_hung_up(server))
        (row,) = await edge.settled()
        assert (row.status, row.category) == ("cancelled", "run_cancelled")


async def test_a_client_that_stays_sees_no_difference() -> None:
    script = Script()
    script.go_on.set()
    async with drained_by(script) as (edge, _):
        answer = await ask_once(edge.url, chat())

        assert orjson.loads(answer.body)["choices"][0]["message"]["content"] == "one two three"
        (row,) = await edge.settled()
        assert row.status == "success"
