"""One client's WebSocket, as the gateway's views use it.

Quart and hypercorn do the handshake, read the frames and close; what we send goes around them.
A server's frame is the same bytes for every client (:mod:`edge.wire.websocket`), so it is made
once and written by the connection's own :class:`~edge.server.client_reply.SocketWriter`, with the
back-pressure and the ``write_timeout_s`` of any other answer.

What the stock layers get wrong is put right in one place each:

* A client that leaves cancels the view, whatever it is doing, on every Quart alike
  (``GatewayWebsocketConnection`` in :mod:`edge.server.connection`); Quart 0.23 would raise into
  it, and log a traceback for a normal close.
* :meth:`ClientSocket.send` always gives way once, and raises where nobody is left: a loop that
  only sends can neither spin nor go on for nobody.
* A client is read no faster than its messages are taken (:class:`Intake`); Quart 0.23 would queue
  them without bound.
* A view that fails closes with 1011 (:func:`hold`), not with 1000 as if all were well.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from quart.wrappers import Websocket

from edge.errors import GatewayFault
from edge.runs.subscription import Ending
from edge.server.auth import MIRROR_PROTOCOL
from edge.server.client_connection import failure_of
from edge.server.client_reply import SocketWriter
from edge.server.exchange import GatewayRequest, Headers

EXTENSION = "edge.socket"
"""Where the scope of a WebSocket on one of our connections carries its :class:`Intake`."""

BROKEN = Ending(1011, "the gateway failed")
MAX_WAITING = 4
"""Messages of a client that may wait to be taken; then it is not read any more."""

_REASON_BYTES = 123
"""What a close frame has room for (RFC 6455, section 5.5)."""

log = logging.getLogger("edge.server")


class Intake:
    """What a client has sent and the view has not taken.

    Attributes:
        writer: the way out of the same connection.
        is_watched: whether a view says what it takes; for others the reading is not held back.
        on_give_up: called at the moment when the client is found to have gone.
    """

    def __init__(self, writer: SocketWriter) -> None:
        self.writer = writer
        self.is_watched = False
        self.on_give_up: Callable[[], None] | None = None
        self._waiting = 0
        self._taken = trio.Event()

    async def room(self) -> None:
        """Wait until another message may come."""
        while self.is_watched and self._waiting >= MAX_WAITING:
            self._taken = trio.Event()
            await self._taken.wait()

    def came(self) -> None:
        """A message is on its way to the view."""
        self._waiting += 1

    def took(self) -> None:
        """The view has it."""
        self._waiting -= 1
        self._taken.set()


def intake_of(scope: Mapping[str, Any]) -> Intake | None:
    """The intake behind an ASGI scope; None where another server made the scope."""
    intake = (scope.get("extensions") or {}).get(EXTENSION)
    return intake if isinstance(intake, Intake) else None


class ClientSocket:
    """A WebSocket that has been asked for.

    Args:
        websocket: Quart's own object, not its proxy.

    Attributes:
        request: the handshake.
        arguments: of its query.

    Raises:
        GatewayFault: it is not on one of our connections.
    """

    def __init__(self, websocket: Websocket) -> None:
        scope: Mapping[str, Any] = websocket.scope
        intake = intake_of(scope)
        if intake is None:
            raise GatewayFault("WebSockets are served on the gateway's own connections.")
        self._websocket = websocket
        self._intake = intake
        self._closed = False
        intake.is_watched = True
        self.arguments: Mapping[str, str] = websocket.args
        self.request = GatewayRequest(
            "GET",
            websocket.path,
            websocket.query_string,
            Headers([(name.lower(), value) for name, value in scope["headers"]]),
            client=scope.get("client"),
            body=_no_body,
        )

    def on_give_up(self, note: Callable[[], None]) -> None:
        """Call this at the moment when the client is found to have gone."""
        self._intake.on_give_up = note

    async def accept(self) -> None:
        """Complete the handshake. A browser that offers protocols wants one of them chosen."""
        offered = MIRROR_PROTOCOL in self._websocket.requested_subprotocols
        await self._websocket.accept(subprotocol=MIRROR_PROTOCOL if offered else None)

    async def send(self, frames: bytes) -> None:
        """Send whole WebSocket frames; returns when the kernel has taken them.

        Raises:
            ClientGone: the client closed its connection, or read nothing for too long.
        """
        await trio.lowlevel.checkpoint()
        await self._intake.writer.write(frames)

    async def receive(self) -> str | bytes:
        """The client's next message. Its leaving cancels the view."""
        message = await self._websocket.receive()
        self._intake.took()
        return message or b""

    async def ignore_messages(self) -> None:
        """Read on and keep nothing: a connection that is not read does not show that it ended."""
        while True:
            await self.receive()

    async def close(self, ending: Ending) -> None:
        """Close; what was sent before arrives before."""
        if not self._closed:
            self._closed = True
            reason = ending.reason.encode()[:_REASON_BYTES].decode("utf-8", "ignore")
            await self._websocket.close(ending.code, reason)


async def hold(socket: ClientSocket, talk: Callable[[], Awaitable[Ending]]) -> None:
    """Accept a socket, talk on it, and close it as the talk's end says."""
    await socket.accept()
    try:
        ending = await talk()
    except Exception as error:
        failure = failure_of(error)
        if failure is None:
            return  # the client has gone
        log.error("a WebSocket on %s failed", socket.request.path, exc_info=failure)
        ending = BROKEN
    await socket.close(ending)


async def _no_body() -> bytes:
    return b""
