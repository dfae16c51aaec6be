"""``/v1/chat/completions`` as a WebSocket: many chat runs of one client over one connection.

One nursery holds the runs of a socket. Each has its own scope, so that one may be cancelled, run
out of time or fail alone; when the socket ends, all of them are given up. The messages are those
of :mod:`edge.wire.socket_frames`; a run is the same run as over HTTP, with another reply.

The key is that of the handshake, and so are ``x-edge-output`` and the trace context, for every run
of the socket. A new configuration counts for the runs that begin after it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from edge.errors import (
    EdgeError,
    GatewayFault,
    InvalidRequest,
    RateLimited,
    RunCancelled,
    forget_frames,
)
from edge.runs.apart import apart
from edge.runs.registry import ChatRun
from edge.runs.reply import ClientGone
from edge.runs.run import carry_run
from edge.runs.subscription import GOING_AWAY, Ending
from edge.server.auth import KeyRights
from edge.server.chat import ChatHandler
from edge.server.client_connection import failure_of
from edge.server.client_socket import ClientSocket, hold
from edge.server.error_exit import told_object
from edge.server.socket_reply import SocketReply
from edge.wire.socket_frames import RunFrames, read_message

log = logging.getLogger("edge.server")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketLimits:
    """Bounds of one socket.

    Attributes:
        max_runs: runs at a time, those that wait for their turn included.
    """

    max_runs: int = 256


async def serve_runs(
    socket: ClientSocket,
    current: Callable[[], ChatHandler],
    limits: SocketLimits,
) -> None:
    """Serve a client's runs until it leaves, or the gateway goes down.

    Args:
        socket: asked for, and not yet accepted.
        current: gives the handler of the configuration in use.
        limits: of the socket.

    Raises:
        Unauthorized: before the handshake is complete.
    """
    rights = current().rights(socket.request)
    runs = SocketRuns(socket, current, rights, limits)
    await hold(socket, runs.talk)


class SocketRuns:
    """The runs of one socket."""

    def __init__(
        self,
        socket: ClientSocket,
        current: Callable[[], ChatHandler],
        rights: KeyRights,
        limits: SocketLimits,
    ) -> None:
        self._socket = socket
        self._current = current
        self._rights = rights
        self._limits = limits
        self._live: dict[str | int, ChatRun] = {}
        self._nursery: trio.Nursery
        self._going_away = False
        socket.on_give_up(self._note_given_up)

    async def talk(self) -> Ending:
        """Take messages and carry runs; the client's leaving cancels it.

        Raises:
            ClientGone: it reads nothing (in an exception group).
        """
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._listen)
            await self._current().desk.admission.drain_began.wait()
            self._going_away = True
            self._leave_if_idle()
        return GOING_AWAY

    async def _listen(self) -> None:
        while True:
            await self._take(await self._socket.receive())

    async def _take(self, message: str | bytes) -> None:
        started_at = trio.current_time()
        try:
            asked = await apart(len(message), read_message, message)
            if asked.request is None:
                self._cancel(asked.id)
                return
            if asked.id in self._live:
                # It must not look like the end of the run that has this id.
                raise InvalidRequest(f"a run with the id {asked.id!r} is under way", param="id")
        except EdgeError as error:
            await self._refuse(None, error)
            return
        chat = self._current()
        try:
            run = await self._begin(chat, asked.request, started_at, size=len(message))
        except EdgeError as error:
            await self._refuse(asked.id, error)
            return
        self._live[asked.id] = run
        self._nursery.start_soon(self._carry, asked.id, run, chat)

    async def _begin(
        self, chat: ChatHandler, request: dict[str, Any], started_at: float, *, size: int
    ) -> ChatRun:
        if len(self._live) >= self._limits.max_runs:
            raise RateLimited(f"this socket has {self._limits.max_runs} runs", retry_after_s=1)
        if request.get("stream") is None:
            request["stream"] = True
        asked = self._socket.request
        return await chat.run_for(asked, request, self._rights, started_at, size=size)

    def _cancel(self, asked_id: str | int) -> None:
        """Cancel a run; one that has just ended has had its last word already."""
        run = self._live.get(asked_id)
        if run is not None:
            run.stop(RunCancelled("the run was cancelled by its client"))

    async def _carry(self, asked_id: str | int, run: ChatRun, chat: ChatHandler) -> None:
        reply = SocketReply(self._socket, asked_id, run.id)
        try:
            failure = await _carried(run, reply, chat)
        except ClientGone:
            self._note_given_up()
            raise
        finally:
            del self._live[asked_id]
        if failure is not None:
            await reply.fail(failure)
            forget_frames(failure)
        self._leave_if_idle()

    def _note_given_up(self) -> None:
        """The client has gone, or reads nothing: all runs end before their time."""
        for run in self._live.values():
            run.note_cancelled()

    async def _refuse(self, asked_id: str | int | None, error: EdgeError) -> None:
        await self._socket.send(RunFrames(asked_id).error(*told_object(error)))

    def _leave_if_idle(self) -> None:
        """Once the gateway goes down, close behind the last run."""
        if self._going_away and not self._live:
            self._nursery.cancel_scope.cancel()


async def _carried(run: ChatRun, reply: SocketReply, chat: ChatHandler) -> EdgeError | None:
    """Carry a run to its end; gives the error that its client is to be told."""
    try:
        await carry_run(run, reply, chat.desk)
    except EdgeError as error:
        return error
    except ClientGone:
        raise  # of all runs of the socket
    except Exception as error:
        if failure_of(error) is None:
            raise
        # A bug ends this run and no other.
        log.error("run %s failed", run.id, exc_info=error)
        return GatewayFault("The gateway failed to answer this request.")
    return None
