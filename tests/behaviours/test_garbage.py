"""What is over leaves nothing: nothing is kept of it, and nothing waits for the collector.

The collector comes rarely (``edge/process/memory.py``), so what only it can free is as good as
kept: a run's messages, its answer, its connection. Whatever way a request ends, counting references
is enough to free all of it.
"""

import gc
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
import trio

from edge.runs.registry import Run
from edge.server.client_connection import ClientConnection
from edge.server.client_reply import ClientReply
from edge.server.exchange import Exchange, GatewayRequest
from edge.server.protocol import IncomingRequest
from tests.core.toolcalls.rendered_forms import RENDERED
from tests.fakes.gateway import (
    CHAT,
    RunningGateway,
    chat,
    gateway,
    send,
    tool,
    until,
    upstream_config,
)
from tests.fakes.mirror_client import open_socket
from tests.fakes.openai_scripts import (
    calls,
    hangs_up,
    refuses,
    silent,
    streams,
)
from tests.fakes.openai_server import Break, Script, openai_server
from tests.fakes.raw_client import RawClient, connect

TIMES = 4
OF_ONE_REQUEST = (ClientConnection, ClientReply, Exchange, GatewayRequest, IncomingRequest, Run)
PING = tool("ping")

End = Callable[[RunningGateway, RawClient], Awaitable[None]]
"""Brings one request of this client to its end."""

TUNNEL = 'validate = "off"\nbuffer = "off"\nrecover = false'


@dataclass(frozen=True)
class Way:
    """A way for requests to end.

    Attributes:
        script: what the provider does.
        end: what the client does; by default it reads its answer.
        request: the chat.
        tables: of the configuration, beside the provider's address.
    """

    script: Script
    end: End | None = None
    request: dict[str, Any] = field(default_factory=lambda: chat(stream=True, tools=[PING]))
    tables: dict[str, str] = field(default_factory=dict)


async def leaves(edge: RunningGateway, client: RawClient) -> None:
    """Read the first piece of the answer, and go."""
    await edge.phase_reached("streaming")
    await client.hang_up()


async def leaves_while_it_is_silent(edge: RunningGateway, client: RawClient) -> None:
    await edge.phase_reached("connecting")
    await client.hang_up()


async def is_cancelled(edge: RunningGateway, client: RawClient) -> None:
    await edge.phase_reached("streaming")
    (run,) = edge.gateway.desk.registry.live()
    async with connect(edge.url) as other:
        await other.request(f"/v1/runs/{run.id}", method="DELETE")
        await other.response()
    await client.response()


words = streams("one", "two")
endless = streams("one", trio.Event())
broken = streams("one", Break.CLOSE)
reset = streams("one", Break.RESET)
unsound = calls("ping", {"no": "such"})
once = {"output": "max_attempts = 1"}
held = {"output": 'buffer = "full"'}
tunnelled = {"output": TUNNEL}
drained = {"provider": 'on_give_up = "drain"\ndrain_s = 0.05'}

WAYS = {
    "streamed": Way(words),
    "whole": Way(words, request=chat()),
    "held": Way(calls("ping", {}), tables=held),
    "tunnelled": Way(words, tables=tunnelled),
    "tunnelled whole": Way(words, request=chat(), tables=tunnelled),
    "retried": Way(unsound),
    "refused by validation": Way(unsound, tables=once),
    "refused by validation, whole": Way(unsound, request=chat(tools=[PING]), tables=once),
    "broken off": Way(broken),
    "reset": Way(reset),
    "reset, whole": Way(reset, request=chat(), tables=once),
    "broken off in a tunnel": Way(broken, tables=tunnelled),
    "reset in a tunnel": Way(reset, tables=tunnelled),
    "never answered": Way(hangs_up),
    "refused by the provider": Way(refuses(400)),
    "refused in a tunnel": Way(refuses(400), tables=tunnelled),
    "given up": Way(endless, leaves),
    "given up while silent": Way(silent, leaves_while_it_is_silent),
    "given up in a tunnel": Way(endless, leaves, tables=tunnelled),
    "given up and drained": Way(endless, leaves, tables=drained),
    "cancelled": Way(endless, is_cancelled),
    "cancelled in a tunnel": Way(endless, is_cancelled, tables=tunnelled),
    "too late": Way(endless, tables={"output": "run_timeout_s = 0.05"}),
    "refused for its model": Way(words, request={"model": 1, "messages": []}),
}


SOCKET_SCRIPTS = {"sound": words, "broken": broken, "unsound": unsound, "cancelled": endless}


@contextmanager
def saved_garbage() -> Iterator[list[object]]:
    """Fills the list, at the end of the block, with what only the collector can free."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.garbage.clear()


def alive() -> int:
    """How many requests, connections and runs there are, those of other tests included."""
    gc.collect()
    return sum(isinstance(thing, OF_ONE_REQUEST) for thing in gc.get_objects())


def ours(garbage: list[object]) -> Counter[str]:
    """How many there are of each of the gateway's own kinds."""
    kinds = [f"{type(each).__module__}.{type(each).__qualname__}" for each in garbage]
    return Counter(kind for kind in kinds if kind.startswith("edge."))


async def leaves_nothing(ask_all: Callable[[], Awaitable[None]]) -> None:
    """Ask twice: what is made at the first time may stay, and nothing of the second."""
    await ask_all()
    before = alive()
    with saved_garbage() as garbage:
        await ask_all()
    after = alive()

    assert ours(garbage) == {}
    assert after <= before


@asynccontextmanager
async def gateway_for(script: Script, **tables: str) -> AsyncGenerator[RunningGateway]:
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url, **tables)) as edge,
    ):
        yield edge


async def serve(edge: RunningGateway, way: Way) -> None:
    """Some requests that end this way, each on a connection of its own."""
    for _ in range(TIMES):
        async with connect(edge.url) as client:
            await send(client, way.request)
            await (way.end(edge, client) if way.end else client.response())
    await edge.settled(0)
    await no_clients()


async def no_clients() -> None:
    """Wait until the tasks of all connections have ended."""
    await until(lambda: not any("_serve_client" in task.name for task in tasks()))


def tasks() -> Iterator[trio.lowlevel.Task]:
    """All tasks there are."""
    root = trio.lowlevel.current_root_task()
    left = [] if root is None else [root]
    while left:
        task = left.pop()
        yield task
        left += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


@pytest.mark.parametrize("name", WAYS)
async def test_nothing_is_left_by_requests(name: str) -> None:
    way = WAYS[name]
    async with gateway_for(way.script, **way.tables) as edge:
        await leaves_nothing(partial(serve, edge, way))


@pytest.mark.parametrize("form", RENDERED)
async def test_nothing_is_left_by_calls_that_are_text(form: str) -> None:
    way = Way(streams("Sure. ", RENDERED[form]([("ping", {})])))
    async with gateway_for(way.script) as edge:
        await leaves_nothing(partial(serve, edge, way))


@pytest.mark.parametrize("path", ["/v1/models", "/v1/runs", "/metrics", "/nothing", "/v1/nothing"])
async def test_nothing_is_left_by_other_requests(path: str) -> None:
    async def ask_all() -> None:
        async with connect(edge.url) as client:
            for _ in range(TIMES):
                await client.get(path)
        await no_clients()

    async with gateway_for(words) as edge:
        await leaves_nothing(ask_all)


@pytest.mark.parametrize(
    "head",
    [b"GARBAGE\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ids=["garbage", "hostless", "h2"],
)
async def test_nothing_is_left_by_what_is_no_http(head: bytes) -> None:
    async def ask_all() -> None:
        for _ in range(TIMES):
            async with connect(edge.url) as client:
                await client.send(head)
                await client.response()
        await no_clients()

    async with gateway_for(words) as edge:
        await leaves_nothing(ask_all)


@pytest.mark.parametrize("script", SOCKET_SCRIPTS.values(), ids=SOCKET_SCRIPTS)
async def test_nothing_is_left_by_runs_of_a_socket(script: Script) -> None:
    async def ask_all() -> None:
        async with open_socket(edge.url, CHAT) as client:
            for number in range(TIMES):
                await client.send({"id": number, "request": chat(tools=[PING])})
                if script is endless:
                    await edge.phase_reached("streaming")
                    await client.send({"cancel": number})
                while not {"done", "error"} & (await client.frame()).keys():
                    pass
        await no_clients()

    async with gateway_for(script) as edge:
        await leaves_nothing(ask_all)
