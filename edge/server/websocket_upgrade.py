"""WebSocket on one of our connections, spoken by hypercorn.

Our own HTTP ends at a WebSocket handshake; the socket goes to hypercorn's HTTP/1.1 protocol, which
does the handshake, the frames and the ASGI messages; what does not hold there against a client that
floods is done in :mod:`edge.server.socket_stream`. It writes through the connection's
:class:`~edge.server.client_reply.SocketWriter`, so a client that reads nothing is dropped here too.
"""

from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState, LifespanState

from edge.runs.reply import ClientGone
from edge.server.client_connection import ClientConnection
from edge.server.client_socket import EXTENSION, Intake
from edge.server.socket_stream import SocketProtocol

_LINGER_S = 2.0


async def serve_websocket(
    connection: ClientConnection,
    opening: bytes,
    *,
    app: AppWrapper,
    config: Config,
    state: LifespanState,
) -> None:
    """Serve a WebSocket until either side has closed it.

    Args:
        connection: the client's; no HTTP request is due on it.
        opening: the handshake request and whatever came behind it.
        app: the Quart app.
        config: hypercorn's settings.
        state: the lifespan's state.
    """
    reading = trio.CancelScope()

    async def send(event: Event) -> None:
        if isinstance(event, RawData):
            try:
                await connection.writer.write(event.data)
            except ClientGone:
                reading.cancel()
        elif isinstance(event, Closed):
            connection.shut_down()
            reading.deadline = trio.current_time() + _LINGER_S

    async with TaskGroup() as tasks:
        protocol = SocketProtocol(
            _with_intake(app, connection),
            config,
            WorkerContext(None),
            tasks,
            ConnectionState(state),
            False,
            connection.peer,
            connection.local_address,
            send,
            frames_per_s=connection.limits.max_frames_per_s,
        )
        await protocol.initiate()
        with reading:
            await protocol.handle(RawData(opening))
            while data := await connection.receive():
                await protocol.handle(RawData(data))
        await protocol.handle(Closed())


def _with_intake(app: AppWrapper, connection: ClientConnection) -> AppWrapper:
    """The app, told by which connection it is asked."""

    async def asked(scope: Any, receive: Any, send: Any, sync_spawn: Any, call_soon: Any) -> None:
        scope["extensions"][EXTENSION] = Intake(connection.writer)
        await app(scope, receive, send, sync_spawn, call_soon)

    return asked
