"""A mirror that is told what to say: one script for each connection that comes, in order.

async with fake_mirror([say(FRAME), close(1013)], [say(FRAME)]) as mirror:
    target = Target(url=mirror.url)
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import orjson
import trio
from trio_websocket import WebSocketConnection, WebSocketRequest, serve_websocket

Step: TypeAlias = Callable[[WebSocketConnection], Awaitable[None]]


class FakeMirror:
    """A server that listens.

    Attributes:
        asked: path and ``authorization`` of each handshake.
    """

    def __init__(self, scripts: list[list[Step] | int]) -> None:
        self._scripts = scripts
        self.url = ""
        self.asked: list[tuple[str, str]] = []

    async def answer(self, request: WebSocketRequest) -> None:
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        self.asked.append((request.path, headers.get("authorization", "")))
        script = self._scripts.pop(0) if self._scripts else 404
        if isinstance(script, int):
            body = orjson.dumps({"error": {"message": f"refused with {script}"}})
            await request.reject(script, body=body)
            return
        connection = await request.accept()
        for step in script:
            await step(connection)


def say(*frames: dict[str, Any]) -> Step:
    """Send frames."""

    async def step(connection: WebSocketConnection) -> None:
        for frame in frames:
            await connection.send_message(orjson.dumps(frame).decode())

    return step


def close(code: int, reason: str = "") -> Step:
    """Close with a code."""

    async def step(connection: WebSocketConnection) -> None:
        await connection.aclose(code, reason)

    return step


async def tear(connection: WebSocketConnection) -> None:
    """Step: break the TCP connection."""
    await trio.aclose_forcefully(connection._stream)


async def hang(connection: WebSocketConnection) -> None:
    """Step: say nothing and answer no ping."""
    await trio.sleep_forever()


@asynccontextmanager
async def fake_mirror(*scripts: list[Step] | int) -> AsyncGenerator[FakeMirror]:
    """Serve for the length of the block; a number refuses the handshake with that status."""
    mirror = FakeMirror(list(scripts))
    serve = partial(serve_websocket, mirror.answer, "127.0.0.1", 0, ssl_context=None)
    async with trio.open_nursery() as nursery:
        server = await nursery.start(serve)
        mirror.url = f"http://127.0.0.1:{server.port}"
        yield mirror
        nursery.cancel_scope.cancel()
