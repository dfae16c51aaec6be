"""A server on a real socket for the length of a test, and things for it to do."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import trio
from quart_trio import QuartTrio

from edge.runs.reply import Reply
from edge.server.connection import Carry, DirectRoutes, GatewayRequest, RunResponse, prepare
from edge.server.limits import ServerLimits
from edge.server.listener import serve

PATIENCE_S = 10.0


def fresh_app() -> QuartTrio:
    return prepare(QuartTrio("edge-tests", static_folder=None))


@asynccontextmanager
async def running(
    app: QuartTrio | None = None,
    *,
    direct: DirectRoutes | None = None,
    limits: ServerLimits | None = None,
    shutdown: trio.Event | None = None,
) -> AsyncGenerator[str]:
    """The URL of a server that runs inside the block; it drains when the block ends."""
    stop = trio.Event() if shutdown is None else shutdown
    serving = partial(
        serve,
        fresh_app() if app is None else app,
        ServerLimits(drain_s=1) if limits is None else limits,
        binds=["127.0.0.1:0"],
        shutdown=stop,
        direct=direct,
    )
    async with trio.open_nursery() as nursery:
        urls: list[str] = await nursery.start(serving)
        yield urls[0]
        stop.set()


class Watched:
    """A ``carry`` whose fate a test can await.

    Attributes:
        begun: set when it is called.
        cancelled: set when it was cancelled in the middle.
        ended: set when it went through to its end.
    """

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self.begun = trio.Event()
        self.cancelled = trio.Event()
        self.ended = trio.Event()

    async def __call__(self, reply: Reply) -> None:
        self.begun.set()
        through = False
        try:
            await self._carry(reply)
            through = True
        finally:
            (self.ended if through else self.cancelled).set()

    async def handle(self, request: GatewayRequest) -> Carry:
        """A direct handler that reads the body and then carries."""
        await request.body()
        return self

    async def view(self) -> RunResponse:
        """A Quart view that carries."""
        return RunResponse(self)


async def wait_for(event: trio.Event) -> None:
    """Wait for what must happen; fail where it does not."""
    with trio.fail_after(PATIENCE_S):
        await event.wait()


async def hello(reply: Reply) -> None:
    """A short answer of known length."""
    await reply.start(200, [], content_length=5)
    await reply.finish(b"hello")


async def two_chunks(reply: Reply) -> None:
    """A stream that ends well."""
    await reply.start(200, [(b"content-type", b"text/event-stream")])
    await reply.write(b"data: 1\n\n")
    await reply.finish(b"data: [DONE]\n\n")


async def silence(_reply: Reply) -> None:
    """No answer, ever."""
    await trio.sleep_forever()


async def head_and_silence(reply: Reply) -> None:
    """A stream that begins and does not go on."""
    await reply.start(200, [])
    await reply.write(b": heartbeat\n\n")
    await trio.sleep_forever()


async def flood(reply: Reply) -> None:
    """A stream without end, as fast as it is read."""
    await reply.start(200, [])
    while True:
        await reply.write(b"x" * 65536)


def at_root(carry: Carry) -> DirectRoutes:
    """Routes on which every request to ``/`` is answered by ``carry``."""

    async def handle(request: GatewayRequest) -> Carry:
        await request.body()
        return carry

    return {(method, "/"): handle for method in ("GET", "POST", "HEAD")}
