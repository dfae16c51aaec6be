"""A scripted server and the transport to it, for tests on real sockets."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from edge.providers.transport import Exchange, Transport, TransportLimits
from tests.fakes.raw_server import RawServer, Script, raw_server

SHORT = TransportLimits(max_header_bytes=4096)


@asynccontextmanager
async def serving(
    script: Script,
    limits: TransportLimits = SHORT,
    *,
    tls: ssl.SSLContext | None = None,
    receive_buffer: int = 0,
) -> AsyncIterator[tuple[RawServer, Transport]]:
    """A scripted server and the transport to it; nothing here may take longer than seconds."""
    with trio.fail_after(10):
        async with raw_server(script, tls=tls, receive_buffer=receive_buffer) as server:
            transport = Transport(f"{server.url}/v1", limits, name="gpu1")
            yield server, transport
            await transport.aclose()
            assert transport.statistics().open == 0


async def whole(exchange: Exchange) -> bytes:
    """Send a request and receive its whole body."""
    body = b""
    async with exchange as answer:
        while data := await answer.receive():
            body += data
    return body
