"""The server: sockets, start-up, and an end in good order.

hypercorn gives the lifespan of the Quart app and the WebSocket protocol. Accepting, reading and
answering HTTP are our own (:mod:`edge.server.client_connection`), since each has a defect in the
stock worker that a gateway cannot live with: docs/design/003-own-http-exchange.md.

Shutdown: the listening sockets are closed at once, so that new connections are refused and not
left hanging; idle connections are closed; running requests have ``drain_s`` to end, and are then
cancelled. The app's own shutdown comes last.
"""

import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import trio
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from quart_trio import QuartTrio

from edge.server.client_connection import ClientConnection
from edge.server.connection import DirectRoutes, carry_out
from edge.server.cors import Cors
from edge.server.exchange import Exchange
from edge.server.limits import ServerLimits
from edge.server.sockets import bind_all, url_of
from edge.server.websocket_upgrade import serve_websocket

__all__ = ["ServerLimits", "serve"]

Shutdown: TypeAlias = trio.Event | Callable[[], Awaitable[object]]

_OUT_OF_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_PAUSE_S = 0.1

log = logging.getLogger("edge.server")


async def serve(
    app: QuartTrio,
    limits: ServerLimits,
    *,
    binds: Sequence[str],
    shutdown: Shutdown,
    direct: DirectRoutes | None = None,
    cors: Callable[[], Cors] = Cors,
    reuse_port: bool = False,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve ``app`` until ``shutdown``, then drain.

    Args:
        app: as made by :func:`edge.server.connection.prepare`.
        limits: what one client's connection is allowed.
        binds: addresses, as :func:`edge.server.sockets.bind_all` takes them.
        shutdown: an event, or a function whose return asks for the end.
        direct: handlers that are called without Quart; they take precedence over its routes.
        cors: gives what web pages from elsewhere may do; asked for each request of one.
        reuse_port: share the addresses with other processes.
        task_status: told the addresses listened on, as URLs.

    Raises:
        CannotListen: an address cannot be bound; nothing has been started then.
    """
    config = _config(limits)
    sockets = bind_all(binds, reuse_port=reuse_port)
    state: LifespanState = {}
    lifespan = Lifespan(wrap_app(app, 0, "asgi"), config, state)
    service = GatewayService(app, config, state, limits, direct or {}, cors)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(lifespan.handle_lifespan)
            await lifespan.wait_for_startup()
            await service.serve(sockets, shutdown, task_status)
            await lifespan.wait_for_shutdown()
            nursery.cancel_scope.cancel()
    finally:
        _close(sockets)


class GatewayService:
    """Answers the requests of every connection, directly or through Quart."""

    def __init__(
        self,
        app: QuartTrio,
        config: Config,
        state: LifespanState,
        limits: ServerLimits,
        direct: DirectRoutes,
        cors: Callable[[], Cors] = Cors,
    ) -> None:
        self.limits = limits
        self.draining = False
        self._app: Callable[[Any, Any, Any], Awaitable[None]] = app
        self._websocket_app = wrap_app(app, 0, "asgi")
        self._config = config
        self._state = state
        self._direct = direct
        self._cors = cors
        # The longest connected first.
        self._connections: dict[ClientConnection, None] = {}

    async def answer(self, exchange: Exchange) -> None:
        """Answer a request, to the end of its reply."""
        request = exchange.request
        if "origin" in request.headers and await self._cors().answers(exchange):
            return
        handler = self._direct.get((request.method, request.path))
        if handler is not None:
            await carry_out(await handler(request), exchange.reply)
            return
        scope = exchange.asgi_scope(self._state)
        request.scope = scope
        await self._app(scope, exchange.receive, exchange.send)

    async def serve_websocket(self, connection: ClientConnection, opening: bytes) -> None:
        """Hand a connection to hypercorn's WebSocket protocol."""
        await serve_websocket(
            connection, opening, app=self._websocket_app, config=self._config, state=self._state
        )

    async def serve(
        self,
        sockets: Sequence[socket.socket],
        shutdown: Shutdown,
        task_status: trio.TaskStatus[list[str]],
    ) -> None:
        """Accept and serve until ``shutdown``, then drain."""
        wait = shutdown.wait if isinstance(shutdown, trio.Event) else shutdown
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                for listening in sockets:
                    listening.listen(self.limits.backlog)
                    accepting.start_soon(self._accept, listening, connections)
                task_status.started([url_of(listening) for listening in sockets])
                await wait()
                accepting.cancel_scope.cancel()
            _close(sockets)
            self.draining = True
            for connection in list(self._connections):
                connection.drain()
            connections.cancel_scope.deadline = trio.current_time() + self.limits.drain_s

    async def _accept(self, listening: socket.socket, connections: trio.Nursery) -> None:
        while True:
            await trio.lowlevel.wait_readable(listening)
            try:
                client, address = listening.accept()
            except OSError as error:
                if error.errno in _OUT_OF_ROOM:
                    log.warning("cannot accept a connection: %s", error)
                    await trio.sleep(_PAUSE_S)
                continue
            if not self._has_room():
                client.close()
                continue
            client.setblocking(False)
            peer = (address[0], address[1]) if isinstance(address, tuple) else None
            connections.start_soon(self._serve_client, ClientConnection(client, peer, self))

    async def _serve_client(self, connection: ClientConnection) -> None:
        self._connections[connection] = None
        try:
            await connection.run()
        finally:
            del self._connections[connection]

    def _has_room(self) -> bool:
        """Whether one more connection may be served; where it is tight an idle one must go."""
        if len(self._connections) < self.limits.max_connections:
            return True
        for connection in self._connections:
            if connection.is_idle:
                connection.drain()
                return len(self._connections) < 2 * self.limits.max_connections
        return False


def _config(limits: ServerLimits) -> Config:
    config = Config()
    config.accesslog = None
    config.errorlog = logging.getLogger("edge.server.hypercorn")
    config.include_server_header = False
    config.websocket_max_message_size = limits.max_websocket_message_bytes
    config.max_app_queue_size = 1  # messages may be long; those of one client wait with the client
    return config


def _close(sockets: Sequence[socket.socket]) -> None:
    for listening in sockets:
        if listening.fileno() != -1:
            trio.lowlevel.notify_closing(listening)
            listening.close()
