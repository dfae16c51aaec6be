"""What of hypercorn's WebSocket does not hold against a client that floods, done otherwise.

hypercorn's own, as of 0.18: it agrees to compression, so that a thousandth of a message unfolds
into all of it before anybody counts; a message that is too long is answered with a close frame and
then read on, and kept; a client that breaks the protocol is cut without a close frame; pings are
answered in a row, however many, while everybody else waits; bytes ahead of the answer to the
handshake end the stream and leave its view waiting for good; and a handshake that is refused leaves
its connection open.

Here compression is never agreed to. What ends a socket sends its code (RFC 6455, section 7.4.1),
tells the view, ends our side, and reads no frame behind it. Short frames have a rate
(:class:`FrameBudget`), and however many came at once, others get their turn between them.
"""

from typing import Any, cast

import h11
import trio
from hypercorn.events import Closed
from hypercorn.protocol.events import Body, Data, Event, Request, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

SHORT_BYTES = 1024
"""Frames with less payload count: longer ones have the bound of their message."""

BURST_S = 10.0
"""A client may save up frames for so long."""

_EVENTS_IN_A_ROW = 32


class FrameBudget:
    """How many short frames a client may send; pure, and told the time.

    Args:
        per_s: so many a second, over any :data:`BURST_S`.
        now: seconds of any clock.
    """

    def __init__(self, per_s: int, now: float) -> None:
        self._per_s = per_s
        self._left = per_s * BURST_S
        self._then = now

    def passes(self, payload: int, now: float) -> bool:
        """Whether a frame with so many bytes of payload, or a part of one, is within it."""
        if payload >= SHORT_BYTES:
            return True
        gained = (now - self._then) * self._per_s
        self._left = min(self._left + gained, self._per_s * BURST_S) - 1
        self._then = now
        return self._left >= 0


class SocketProtocol(H11Protocol):
    """hypercorn's HTTP/1.1 where nothing but a WebSocket handshake comes.

    Args:
        arguments: hypercorn's own.
        frames_per_s: short frames that the client may send.
    """

    def __init__(self, *arguments: Any, frames_per_s: int) -> None:
        super().__init__(*arguments)
        self._frames_per_s = frames_per_s

    async def _create_stream(self, request: h11.Request) -> None:
        stream = SocketStream(self, FrameBudget(self._frames_per_s, trio.current_time()))
        self.stream = stream
        self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        await stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=[
                    pair for pair in request.headers if pair[0] != b"sec-websocket-extensions"
                ],
                http_version=request.http_version.decode(),
                method="GET",
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        if stream.closed:  # the handshake was refused
            await self.send(Closed())


class SocketStream(WSStream):
    """The frames of one WebSocket."""

    def __init__(self, protocol: SocketProtocol, budget: FrameBudget) -> None:
        super().__init__(
            protocol.app,
            protocol.config,
            protocol.context,
            protocol.task_group,
            protocol.ssl,
            protocol.client,
            protocol.server,
            protocol.stream_send,
            STREAM_ID,
        )
        self._budget = budget
        self._size = 0

    async def handle(self, event: Event) -> None:
        """Take a handshake, bytes behind it, or the end of the connection."""
        if isinstance(event, Body | Data) and not self.closed and not self.handshake.accepted:
            await self._send_error_response(400)
            await self.send(StreamClosed(stream_id=self.stream_id))
        else:
            await super().handle(event)

    async def _handle_events(self) -> None:
        for number, event in enumerate(self.connection.events(), 1):
            if number % _EVENTS_IN_A_ROW == 0:
                await trio.lowlevel.checkpoint()
            payload = getattr(event, "data", b"")
            if not self._budget.passes(len(payload), trio.current_time()):
                await self._end(CloseReason.POLICY_VIOLATION, "too many frames")
            elif isinstance(event, Message):
                await self._take(event)
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                await self._answer_close(event)
            if self.closed:
                return

    async def _take(self, part: Message[Any]) -> None:
        data = part.data
        is_plain = not isinstance(part, TextMessage) or data.isascii()
        self._size += len(data) if is_plain else len(data.encode())
        if self._size > self.buffer.max_length:
            limit = self.buffer.max_length
            await self._end(CloseReason.MESSAGE_TOO_BIG, f"a message has at most {limit} bytes")
            return
        self.buffer.extend(part)
        if part.message_finished:
            message = self.buffer.to_message()
            self.buffer.clear()
            self._size = 0
            if self.app_put is not None:  # it is, once frames are read
                await self.app_put(message)

    async def _answer_close(self, event: CloseConnection) -> None:
        """Answer the client's close frame, or what it did wrong: wsproto says both by one event."""
        state = self.connection.state
        if state is ConnectionState.REMOTE_CLOSING:
            await self._send_wsproto_event(event.response())
        elif state is ConnectionState.OPEN:
            await self._send_wsproto_event(event)
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _end(self, code: CloseReason, reason: str) -> None:
        await self._send_wsproto_event(CloseConnection(code=code, reason=reason))
        await self.send(StreamClosed(stream_id=self.stream_id))
