"""A whole gateway on a real socket, inside the test's own event loop.

async with gateway(TOML) as edge:
    async with connect(edge.url) as client:
        answer = await client.post("/v1/chat/completions", ...)
    assert [row.status for row in edge.rows()] == ["success"]
"""

import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
import trio

from edge.app import Gateway
from edge.core.run_events import AttemptEnded, RunEvent
from edge.settings import Settings
from tests.fakes.raw_client import RawClient, RawResponse, connect
from tests.fakes.strict_client import fold

CHAT = "/v1/chat/completions"
PATIENCE_S = 10.0


@dataclass(slots=True)
class RunningGateway:
    """A gateway that listens, and what can be seen of it from inside."""

    url: str
    gateway: Gateway
    shutdown: trio.Event
    events: list[RunEvent]

    def rows(self) -> list[AttemptEnded]:
        """The ledger."""
        return self.gateway.ledger.rows()

    def statuses(self) -> list[str]:
        return [row.status for row in self.rows()]

    async def settled(self, rows: int = 1) -> list[AttemptEnded]:
        """The ledger once it has so many rows and no run is left."""
        await until(lambda: len(self.rows()) >= rows and not len(self.gateway.desk.registry))
        return self.rows()

    async def phase_reached(self, phase: str) -> None:
        """Wait until the newest live run is in this phase."""
        registry = self.gateway.desk.registry
        await until(lambda: [run.phase for run in registry.live()][-1:] == [phase])

    def assert_idle(self) -> None:
        """No run, no place in the queue and no slot is taken."""
        desk = self.gateway.desk
        assert len(desk.registry) == 0
        assert desk.admission.statistics().active == 0
        assert desk.admission.statistics().queued == 0
        for provider in desk.dispatcher.statistics().providers:
            assert provider.busy == 0, provider


@asynccontextmanager
async def gateway(config: str | Settings) -> AsyncGenerator[RunningGateway]:
    """Serve for the length of the block; on the way out nothing may be left running."""
    settings = config
    if isinstance(settings, str):
        settings = Settings.from_toml(settings, bind=["127.0.0.1:0"])
    built = Gateway.build(settings)
    events: list[RunEvent] = []
    built.desk.observers.add(events.append)
    shutdown = trio.Event()
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(partial(_serve, built, shutdown))
        running = RunningGateway(urls[0], built, shutdown, events)
        yield running
        await until(lambda: not len(built.desk.registry))
        running.assert_idle()
        assert built.desk.observers.failures == 0
        nursery.cancel_scope.cancel()
    gc.collect()


async def _serve(
    built: Gateway, shutdown: trio.Event, *, task_status: trio.TaskStatus[list[str]]
) -> None:
    await built.serve(shutdown, task_status=task_status)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition`` holds; it is looked at in every turn of the event loop."""
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await trio.lowlevel.checkpoint()


def upstream_config(base_url: str, **tables: str) -> str:
    """One provider named ``gpu1`` behind ``*``; keyword tables are TOML text of that table."""
    provider = tables.pop("provider", "")
    base_url = base_url if base_url.endswith("/v1") else f"{base_url}/v1"
    text = f"""
[[providers]]
name = "gpu1"
base_url = "{base_url}"
{provider}
[[routes]]
model = "*"
targets = [{{ provider = "gpu1" }}]
"""
    return text + "".join(f"[{name}]\n{body}\n" for name, body in tables.items())


def chat(content: str = "go", **fields: Any) -> dict[str, Any]:
    """A chat request."""
    return {"model": "coder", "messages": [{"role": "user", "content": content}], **fields}


def tool(name: str, *required: str, **properties: Any) -> dict[str, Any]:
    """An offered function."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": schema}}


async def ask(client: RawClient, request: dict[str, Any], *headers: tuple[str, str]) -> RawResponse:
    """Send a chat request and read the whole answer."""
    await send(client, request, *headers)
    return await client.response()


async def send(client: RawClient, request: dict[str, Any], *headers: tuple[str, str]) -> None:
    """Only send a chat request."""
    body = orjson.dumps(request)
    await client.request(CHAT, method="POST", headers=headers, body=body)


async def ask_once(url: str, request: dict[str, Any], *headers: tuple[str, str]) -> RawResponse:
    """Ask on a connection of its own."""
    async with connect(url) as client:
        return await ask(client, request, *headers)


def message(answer: RawResponse) -> dict[str, Any]:
    """The message of an answer's only choice, streamed or not."""
    assert answer.status == 200, answer.body
    if answer.headers["content-type"].startswith("text/event-stream"):
        body = fold(answer.body)
    else:
        body = orjson.loads(answer.body)
    (only,) = body["choices"]
    found: dict[str, Any] = only["message"]
    return found
