"""One client's connection: reads requests, has them answered, ends when it must.

The connection's own task does nothing but read. It therefore notices a client that leaves at
once, whatever the request is doing, and cancels that request's scope. Each request is answered in
a task of its own, which writes to the socket without going through this one.

When an answer is complete the connection goes on, unless one side said ``close``, the server is
draining, the request's body was never read to its end, or the client broke the protocol behind
its request. It is then closed politely: our end first, and for a moment everything the client
still sends is read and dropped, since closing over unread bytes would reset the connection and
could take the answer with it.

Rules that are visible from outside:

* A client that shuts down its sending side while its answer is due has given up.
* Of requests sent ahead (pipelining) one is kept and answered in its turn; what comes behind it
  is dropped and the connection closed after the last kept answer. Bytes sent ahead never hide
  that the client left.
* Waiting for a first or next request ends after ``keep_alive_s``, a half-sent head after
  ``header_timeout_s``.
"""

import logging
import socket
from collections import deque
from contextlib import suppress
from typing import Protocol

import trio

from edge.errors import EdgeError, GatewayFault, forget_frames
from edge.providers.reading import read_now
from edge.runs.reply import AnswerCut, ClientGone
from edge.server.client_reply import REQUEST_ID, ClientReply, SocketWriter, closing_answer
from edge.server.error_exit import error_response, send_error
from edge.server.exchange import Address, Exchange, new_request_id
from edge.server.limits import ServerLimits
from edge.server.protocol import IncomingRequest, ProtocolFault, RequestParser

_LINGER_S = 2.0
_KEPT_AHEAD = 1

log = logging.getLogger("edge.server")


class Service(Protocol):
    """What answers the requests of all connections.

    Attributes:
        draining: whether connections are to end as soon as their answers are out.
    """

    limits: ServerLimits
    draining: bool

    async def answer(self, exchange: Exchange, /) -> None:
        """Answer a request, to the end of its reply."""
        ...

    async def serve_websocket(self, connection: "ClientConnection", opening: bytes, /) -> None:
        """Speak WebSocket on ``connection``, beginning with the handshake in ``opening``."""
        ...


class ClientConnection:
    """The life of one accepted, non-blocking stream socket, which it closes at the end.

    Args:
        peer: the client's address and port; None for a local socket.
    """

    def __init__(self, client: socket.socket, peer: Address, service: Service) -> None:
        limits = service.limits
        self.writer = SocketWriter(client, write_timeout_s=limits.write_timeout_s)
        self.peer = peer
        self._socket = client
        self._service = service
        self.limits = limits
        self._parser = RequestParser(
            self, max_head_bytes=limits.max_head_bytes, max_body_bytes=limits.max_body_bytes
        )
        self._nursery: trio.Nursery
        self._reading = trio.CancelScope()
        self._current: Exchange | None = None
        self._ahead: deque[Exchange] = deque()
        self._arriving: IncomingRequest | None = None
        self._deaf = False
        self._opening = b""

    @property
    def local_address(self) -> Address:
        """Our own address and port; None for a local socket."""
        name = self._socket.getsockname()
        return (name[0], name[1]) if isinstance(name, tuple) else None

    async def run(self) -> None:
        """Serve the client until the connection ends; never raises for what a client did."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self._read()
                if self._opening:
                    await self._service.serve_websocket(self, self._opening)
                self._client_gone()
        except* Exception:
            # Whatever it is, it ends this connection and no other.
            log.exception("a connection failed")
        finally:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._parser.close()

    async def receive(self) -> bytes:
        """What the client sent; empty once it has ended its side, or the connection is broken."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return read_now(self._socket)
            except BlockingIOError:
                continue
            except OSError:
                return b""

    def shut_down(self) -> None:
        """End our side; the client's may still be read."""
        self.writer.close()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered, and no WebSocket is open."""
        return self._current is None and not self._opening and not self._reading.cancel_called

    def drain(self) -> None:
        """Close at once if idle; else the answer that is due is the last."""
        if self._current is None:
            self._reading.cancel()

    async def _read(self) -> None:
        self._wait_at_most(0 if self._service.draining else self.limits.keep_alive_s)
        with self._reading:
            while not self._opening and (data := await self.receive()):
                self._take(data)

    def _take(self, data: bytes) -> None:
        if self._deaf:
            return
        was_between = self._parser.between_requests
        try:
            self._parser.feed(data)
        except ProtocolFault as fault:
            self._refuse(fault)
            return
        if was_between and self._current is None and not self._parser.between_requests:
            self._wait_at_most(self.limits.header_timeout_s)

    def _wait_at_most(self, seconds: float) -> None:
        self._reading.deadline = trio.current_time() + seconds

    # What the parser calls.

    def request_begun(self, request: IncomingRequest) -> None:
        """Have a request answered, now or after the one before it."""
        self._arriving = request
        exchange = self._exchange(request)
        if self._current is None:
            self._begin(exchange)
        elif len(self._ahead) < _KEPT_AHEAD:
            self._ahead.append(exchange)
        else:
            self._deaf = True

    def websocket_asked(self, opening: bytes) -> None:
        """Hand the connection over, unless an answer is still due on it."""
        if self._current is None:
            self._opening = opening
        else:
            self._deaf = True

    def _refuse(self, fault: ProtocolFault) -> None:
        self._deaf = True
        if self._current is None:
            named = [(REQUEST_ID, new_request_id().encode("ascii"))]
            self.writer.write_nowait(closing_answer(*error_response(fault, named)))
            self._end()
        elif self._arriving is not None and not self._arriving.complete:
            self._arriving.fail(fault)

    # One request after another.

    def _exchange(self, request: IncomingRequest) -> Exchange:
        def on_start() -> bool:
            request.release()
            if not request.keep_alive or not request.complete:
                return True
            return self._service.draining or (self._deaf and not self._ahead)

        def over() -> None:
            self._over(exchange)

        reply = ClientReply(
            self.writer,
            method=request.method,
            chunks=request.http_version == "1.1",
            on_start=on_start,
            on_complete=over,
            request_id=lambda: exchange.request.request_id,
        )
        exchange = Exchange(self, request, reply)
        return exchange

    def _begin(self, exchange: Exchange) -> None:
        self._current = exchange
        self._reading.deadline = float("inf")
        self._nursery.start_soon(self._answer, exchange)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            with exchange.scope:
                await self._service.answer(exchange)
        except Exception as error:
            await self._fail(exchange, error)
            forget_frames(error)
        self._over(exchange)
        # The exchange, its request and its reply know each other. Left like that, every request
        # would be garbage that only the collector finds, and its pauses are everybody's.
        exchange.part()

    async def _fail(self, exchange: Exchange, error: Exception) -> None:
        failure = failure_of(error)
        if failure is None:
            return
        reply = exchange.reply
        expected = isinstance(failure, EdgeError) and not isinstance(failure, GatewayFault)
        if not expected or (reply.started and not self.writer.gone):
            request = exchange.request
            log.error("%s %s failed", request.method, request.path, exc_info=error)
        if not reply.started:
            if not isinstance(failure, EdgeError):
                failure = GatewayFault("The gateway failed to answer this request.")
            with suppress(ClientGone):
                await send_error(reply, failure)

    def _over(self, exchange: Exchange) -> None:
        if exchange is not self._current:
            return
        self._current = None
        if self._arriving is exchange.incoming:
            self._arriving = None
        reply = exchange.reply
        if not reply.complete or reply.closes:
            self._end()
        elif self._ahead:
            self._begin(self._ahead.popleft())
        elif self._deaf or self._service.draining:
            self._end()
        else:
            self._wait_at_most(self.limits.keep_alive_s)

    # The end.

    def _end(self) -> None:
        self._deaf = True
        self._ahead.clear()
        self.shut_down()
        self._wait_at_most(_LINGER_S)

    def _client_gone(self) -> None:
        self.writer.close()
        if self._current is not None:
            note = self._current.request.on_give_up
            if note is not None:
                note()
            self._current.scope.cancel(reason="the client has gone")


def failure_of(error: BaseException) -> Exception | None:
    """What went wrong, out of nested exception groups: a bug first, then a known error.

    None where nothing but the client's leaving did, or an answer was cut that had begun.
    """
    known: Exception | None = None
    for leaf in _leaves(error):
        if isinstance(leaf, ClientGone | AnswerCut):
            continue
        if not isinstance(leaf, EdgeError):
            return leaf
        known = known or leaf
    return known


def _leaves(error: BaseException) -> list[Exception]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error] if isinstance(error, Exception) else []
