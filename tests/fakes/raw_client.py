"""A client that speaks HTTP/1.1 by hand, so that a test can misbehave on the wire.

It reads exactly what a response's framing says and keeps the rest, so that keep-alive, pipelining,
half-closing and hanging up can be told apart. Every read ends after ``PATIENCE_S``: a test that
waits for a server which never answers fails, it does not hang.
"""

import socket
import struct
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import orjson
import trio

PATIENCE_S = 10.0


@dataclass(frozen=True)
class RawResponse:
    """A response as it came: ``head`` is everything before the body."""

    status: int
    headers: dict[str, str]
    head: bytes
    body: bytes = b""

    @property
    def json(self) -> object:
        return orjson.loads(self.body)


class RawClient:
    """One connection.

    ``request`` only sends; ``response`` reads a whole answer; ``head`` and ``chunk`` read an
    answer piece by piece.
    """

    def __init__(self, stream: trio.SocketStream, *, patience_s: float = PATIENCE_S) -> None:
        self.stream = stream
        self._patience_s = patience_s
        self._buffer = bytearray()
        self._chunked = False

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def request(
        self,
        path: str = "/",
        *,
        method: str = "GET",
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | None = None,
        version: str = "1.1",
    ) -> None:
        """Send a request; a ``body`` gets its ``Content-Length``."""
        lines = [f"{method} {path} HTTP/{version}", "Host: gateway"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        await self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    async def get(self, path: str = "/") -> RawResponse:
        await self.request(path)
        return await self.response()

    async def post(self, path: str, body: bytes) -> RawResponse:
        await self.request(path, method="POST", body=body)
        return await self.response()

    async def response(self, *, bodyless: bool = False) -> RawResponse:
        """A whole answer; ``bodyless`` for one to HEAD."""
        head = await self.head()
        if bodyless:
            return head
        if self._chunked:
            body = await self.rest_of_chunks()
        elif "content-length" in head.headers:
            body = await self.exactly(int(head.headers["content-length"]))
        else:
            body = await self.until_closed()
        return RawResponse(head.status, head.headers, head.head, body)

    async def head(self) -> RawResponse:
        """The status line and the headers, names in lower case."""
        raw = await self._until(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        self._chunked = headers.get("transfer-encoding") == "chunked"
        return RawResponse(int(first.split(" ")[1]), headers, raw)

    async def chunk(self) -> bytes:
        """The next chunk of a chunked body; empty at its end."""
        size = int(await self._until(b"\r\n"), 16)
        data = await self.exactly(size)
        assert await self.exactly(2) == b"\r\n"
        return data

    async def rest_of_chunks(self) -> bytes:
        """What is left of a chunked body, put together."""
        body = b""
        while chunk := await self.chunk():
            body += chunk
        return body

    async def exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            assert await self._more(), f"closed after {bytes(self._buffer)!r}"
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    async def until_closed(self) -> bytes:
        """Everything up to the server's end of the connection."""
        while await self._more():
            pass
        data = bytes(self._buffer)
        self._buffer.clear()
        return data

    async def until_gone(self) -> bytes:
        """Like `until_closed`, for a client that goes on sending, which may get a reset instead."""
        with suppress(trio.BrokenResourceError):
            while await self._more():
                pass
        return bytes(self._buffer)

    def half_close(self) -> None:
        """End our side, and go on reading."""
        self.stream.socket.shutdown(trio.socket.SHUT_WR)

    async def hang_up(self) -> None:
        """Close the connection."""
        await self.stream.aclose()

    async def reset(self) -> None:
        """Break the connection: the server gets a reset, not an end."""
        linger_for_nothing = struct.pack("ii", 1, 0)
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_nothing)
        await self.stream.aclose()

    async def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            assert await self._more(), f"closed after {bytes(self._buffer)!r}"
        return await self.exactly(self._buffer.index(end) + len(end))

    async def _more(self) -> bool:
        with trio.fail_after(self._patience_s):
            data = await self.stream.receive_some()
        self._buffer += data
        return bool(data)


@asynccontextmanager
async def connect(
    url: str, *, receive_buffer: int | None = None, patience_s: float = PATIENCE_S
) -> AsyncGenerator[RawClient]:
    """A connection to ``http://host:port``; a small ``receive_buffer`` makes a slow reader."""
    address = urlsplit(url)
    with trio.socket.socket() as client:
        if receive_buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        await client.connect((address.hostname, address.port))
        yield RawClient(trio.SocketStream(client), patience_s=patience_s)
