"""A gateway whose providers' answers pass through, and what the tests of that share."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import trio

from tests.fakes.gateway import RunningGateway, gateway
from tests.fakes.openai_server import Answer, OpenAIServer, Script, event, openai_server
from tests.fakes.raw_client import RawClient, RawResponse, connect

OFF = 'validate = "off"\nbuffer = "off"'
"""Two settings under which nothing of an answer is looked at."""

KEYS = '[[keys]]\nname = "a"\nkey = "env:EDGE_TEST_KEY"'

WORD = event({"choices": [{"index": 0, "delta": {"content": "Hel"}}]})
"""An event with a word of text."""


def config(*upstreams: OpenAIServer, output: str = OFF, target: str = "", **tables: str) -> str:
    """Providers ``gpu1``, ``gpu2``… in order behind ``*``; ``target`` is more of each target."""
    names = [f"gpu{number}" for number, _ in enumerate(upstreams, 1)]
    provider = tables.pop("provider", "")
    text = tables.pop("top", "")
    for name, upstream in zip(names, upstreams, strict=True):
        text += f'\n[[providers]]\nname = "{name}"\nbase_url = "{upstream.base_url}"\n{provider}\n'
    targets = ", ".join(f'{{ provider = "{name}"{target} }}' for name in names)
    text += f'[[routes]]\nmodel = "*"\npolicy = "ordered"\ntargets = [{targets}]\n'
    return text + "".join(f"[{n}]\n{body}\n" for n, body in {**tables, "output": output}.items())


@asynccontextmanager
async def scene(
    *scripts: Script, **tables: str
) -> AsyncGenerator[tuple[RawClient, OpenAIServer, RunningGateway]]:
    """A client, a gateway and one provider."""
    async with (
        openai_server(*scripts) as upstream,
        gateway(config(upstream, **tables)) as edge,
        connect(edge.url) as client,
    ):
        yield client, upstream, edge


async def post(
    client: RawClient, path: str, body: bytes | dict[str, Any], *headers: tuple[str, str]
) -> RawResponse:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    await client.request(path, method="POST", headers=headers, body=data)
    return await client.response()


def frames(upstream_body: bytes, size: int) -> Script:
    """A recorded stream, sent in pieces of ``size`` bytes."""

    async def script(answer: Answer) -> None:
        await answer.start()
        for at in range(0, len(upstream_body), size):
            await answer.send(upstream_body[at : at + size])
        await answer.end()

    return script


async def reached(edge: RunningGateway, phase: str) -> None:
    await until(lambda: [run.phase for run in edge.gateway.desk.registry.live()][-1:] == [phase])


async def until(happened: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while True:
            if happened():
                return
            await trio.sleep(0.001)
