"""Clients of the gateway's WebSockets: frames as parsed objects, and how the socket was closed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, open_websocket_url

Frame = dict[str, Any]
PATIENCE_S = 10.0


class SocketClient:
    """One WebSocket; every wait ends after ``PATIENCE_S``."""

    def __init__(self, connection: WebSocketConnection) -> None:
        self.connection = connection

    async def send(self, tree: object) -> None:
        await self.send_text(orjson.dumps(tree).decode())

    async def send_text(self, text: str) -> None:
        await self.connection.send_message(text)

    async def frame(self) -> Frame:
        with trio.fail_after(PATIENCE_S):
            found: Frame = orjson.loads(await self.connection.get_message())
        return found

    async def batch(self) -> list[Frame]:
        """The frames of one message, where the socket asked for many in one."""
        with trio.fail_after(PATIENCE_S):
            found: list[Frame] = orjson.loads(await self.connection.get_message())
        return found

    async def until(self, kind: str) -> list[Frame]:
        """The frames up to and including the next one of a type."""
        frames = [await self.frame()]
        while frames[-1]["type"] != kind:
            frames.append(await self.frame())
        return frames

    async def rest(self) -> list[Frame]:
        """Every frame until the server closes."""
        frames = []
        try:
            while True:
                frames.append(await self.frame())
        except ConnectionClosed:
            return frames

    async def closed(self) -> int:
        """The code with which the server closes, whatever comes before."""
        await self.rest()
        reason = self.connection.closed
        assert reason is not None
        return int(reason.code)


@asynccontextmanager
async def open_socket(url: str, path: str, *, key: str = "") -> AsyncGenerator[SocketClient]:
    """A WebSocket on the gateway at ``http://host:port``."""
    headers = [(b"authorization", b"Bearer " + key.encode())] if key else []
    address = url.replace("http", "ws", 1) + path
    async with open_websocket_url(
        address, extra_headers=headers, max_message_size=64 * 1024 * 1024
    ) as connection:
        try:
            yield SocketClient(connection)
        finally:
            await connection.aclose()
            # Where the server closed first, trio-websocket leaves the TCP connection open.
            await connection._stream.aclose()
