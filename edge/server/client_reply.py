"""One answer on its way to the client, by the shortest way there is.

A body frame goes from the run to the client's socket in one non-blocking ``send``, with its chunk
framing in the same buffer. Only what the kernel does not take waits, and the run with it: that is
the back-pressure. A wait has an end: a client that takes nothing for ``write_timeout_s`` has given
up.

The bytes the kernel did not take are kept by :class:`SocketWriter`, not by the frame that waits.
So a write that is cancelled, or two writers that meet, never tear a frame: what is left of the one
goes out before the next.

Framing: ``Content-Length`` where the length is known, chunks for HTTP/1.1, the end of the
connection for HTTP/1.0. HEAD, 204 and 304 have no body, whatever is written.
"""

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import time

import trio

from edge.runs.reply import ClientGone

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii")
    for status in HTTPStatus
}
REQUEST_ID = b"x-request-id"
_BODYLESS = frozenset({204, 304})
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"keep-alive"})
_LAST_CHUNK = b"0\r\n\r\n"
_WRITES_IN_A_ROW = 32
"""After so many writes that did not wait, one yields: a run must not keep the others waiting."""


class SocketWriter:
    """Writes to a non-blocking socket, whole frames in order, with a limit on each wait."""

    __slots__ = ("_lock", "_send", "_socket", "_stall_s", "_unsent", "gone")

    def __init__(self, client: socket.socket, *, write_timeout_s: float) -> None:
        self._socket = client
        self._send = client.send
        self._stall_s = write_timeout_s
        self._unsent = bytearray()
        self._lock = trio.Lock()
        self.gone = False

    async def write(self, data: bytes) -> None:
        """Give ``data`` to the kernel.

        Raises:
            ClientGone: the connection is closed, or the client reads nothing.
        """
        if not self.write_now(data):
            await self.drain()

    def write_now(self, data: bytes) -> bool:
        """Give ``data`` to the kernel as far as it takes it, and keep the rest for :meth:`drain`.

        Returns whether nothing was left.

        Raises:
            ClientGone: the connection is closed.
        """
        if self.gone:
            raise ClientGone("the client has closed its connection")
        if self._unsent:
            self._unsent += data
            return False
        sent = self._send_now(data) if data else 0
        if sent < len(data):
            self._unsent += data[sent:]
        return not self._unsent

    def write_nowait(self, data: bytes) -> None:
        """Give ``data`` to the kernel, or keep it until the next write; never raises."""
        if not self.gone:
            self._unsent += data
            with suppress(ClientGone):
                del self._unsent[: self._send_now(self._unsent)]

    async def drain(self) -> None:
        """Wait until the kernel has taken everything; raises as :meth:`write` does."""
        async with self._lock:
            while self._unsent:
                with trio.move_on_after(self._stall_s) as stall:
                    await trio.lowlevel.wait_writable(self._socket)
                if stall.cancelled_caught:
                    self._give_up()
                    raise ClientGone(f"the client read nothing for {self._stall_s:g} s")
                del self._unsent[: self._send_now(self._unsent)]
        if self.gone:
            raise ClientGone("the client has closed its connection")

    def close(self) -> None:
        """Nothing more can be written."""
        self._give_up()

    def _send_now(self, data: bytes | bytearray) -> int:
        try:
            return self._send(data)
        except BlockingIOError:
            return 0
        except OSError:
            self._give_up()
            raise ClientGone("the client has closed its connection") from None

    def _give_up(self) -> None:
        self.gone = True
        self._unsent.clear()


class ClientReply:
    """The :class:`edge.runs.reply.Reply` of one request.

    Args:
        chunks: whether the client understands chunked bodies (HTTP/1.1).
        on_start: called once, when the head is written; tells whether the connection ends with
            this answer.
        on_complete: called once, when the last byte has been given to the kernel.
        request_id: asked for where the head's headers hold no ``x-request-id``.

    Attributes:
        also: headers that the head gets beside those it is given.
        started: whether the head has been given to be sent.
        finished: whether all of it has reached the kernel; a client that leaves after that has
            not given up.
        complete: whether it is also as long as its head said, so that another may follow.
        closes: whether the connection has to end after it.
    """

    __slots__ = (
        "_bodyless",
        "_chunked",
        "_chunks",
        "_ended",
        "_held_head",
        "_in_a_row",
        "_left",
        "_on_complete",
        "_on_start",
        "_request_id",
        "_to_head",
        "_writer",
        "also",
        "closes",
        "complete",
        "finished",
        "started",
    )

    def __init__(
        self,
        writer: SocketWriter,
        *,
        method: str,
        chunks: bool,
        on_start: Callable[[], bool],
        on_complete: Callable[[], None],
        request_id: Callable[[], str],
    ) -> None:
        self._writer = writer
        self._to_head = method == "HEAD"
        self._chunks = chunks
        self._on_start = on_start
        self._on_complete = on_complete
        self._request_id = request_id
        self._bodyless = False
        self._chunked = False
        self._left = -1  # bytes that are still to come; negative where no length was told
        self._held_head = b""
        self._in_a_row = 0
        self._ended = False
        self.also: Sequence[tuple[bytes, bytes]] = ()
        self.started = False
        self.finished = False
        self.complete = False
        self.closes = False

    def part(self) -> None:
        """Forget who was to be told; for an answer that is over."""
        self._on_start = _nothing_more
        self._on_complete = _nothing_to_tell
        self._request_id = _nameless

    async def start(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        content_length: int | None = None,
    ) -> None:
        """Make the head: ``headers``, names in lower case, then the framing, and a date.

        Framing headers among ``headers`` are left out: a provider's length is not ours.

        It leaves with the next write, though that may be empty: both in one system call.

        Raises:
            ValueError: a header holds a line break.
        """
        if self.started:
            raise RuntimeError("the answer has been started before")
        framing = self._framing(status, content_length)
        if not any(name == REQUEST_ID for name, _ in headers):
            headers = [*headers, (REQUEST_ID, self._request_id().encode("ascii"))]
        if self.also:
            headers = [*headers, *self.also]
        self._held_head = _head(status, headers, framing)
        self.started = True

    def _framing(self, status: int, content_length: int | None) -> bytes:
        self.closes = self._on_start()
        self._bodyless = self._to_head or status in _BODYLESS
        framing = b""
        if content_length is not None and status not in _BODYLESS:
            self._left = 0 if self._bodyless else content_length
            framing = b"content-length: %d\r\n" % content_length
        elif self._bodyless:
            pass
        elif self._chunks:
            self._chunked = True
            framing = b"transfer-encoding: chunked\r\n"
        else:
            self.closes = True
        return framing + b"connection: close\r\n" if self.closes else framing

    async def write(self, data: bytes) -> None:
        """Send body bytes; returns when the kernel has taken them.

        Raises:
            RuntimeError: the body is longer than its ``Content-Length``, or has been ended.
            ClientGone: the client closed its connection, or read nothing for too long.
        """
        if not self.write_now(data):
            await self._writer.drain()
        self._in_a_row += 1
        if self._in_a_row >= _WRITES_IN_A_ROW:
            self._in_a_row = 0
            await trio.lowlevel.checkpoint()

    def write_now(self, data: bytes) -> bool:
        """See :class:`edge.runs.reply.Reply`; raises as :meth:`write` does."""
        if self._ended or not self.started:
            raise RuntimeError("a body is written between start and finish")
        return self._writer.write_now(self._frame(data))

    def _frame(self, data: bytes) -> bytes:
        """``data`` as it goes over the wire, behind the head if that is still here."""
        if self._bodyless:
            data = b""
        elif self._left >= 0:
            if len(data) > self._left:
                raise RuntimeError("the body is longer than its Content-Length")
            self._left -= len(data)
        head, self._held_head = self._held_head, b""
        if self._chunked and data:
            return b"%b%x\r\n%b\r\n" % (head, len(data), data)
        return head + data

    async def finish(self, data: bytes = b"") -> None:
        """Send the last of the body, if any, and its end, in one write.

        There is no moment between the last byte's leaving and ``finished``, so a client that
        leaves because it has all it wanted is never taken for one that gave up. A second call
        adds nothing.

        Raises:
            ClientGone: the client left, or stopped reading, before the kernel had it all.
        """
        if self.finished:
            return
        if not self.started:
            raise RuntimeError("there is no answer to finish")
        if self._ended:
            # The first call was cancelled while it waited; what it had to send is still queued.
            await self._writer.drain()
        else:
            last = self._frame(data) + (_LAST_CHUNK if self._chunked else b"")
            self._ended = True
            await self._writer.write(last)
        self.finished = True
        self.complete = self._left <= 0
        self._on_complete()


def _nothing_more() -> bool:
    return True


def _nothing_to_tell() -> None:
    pass


def _nameless() -> str:
    return ""


def closing_answer(status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bytes:
    """A whole answer, after which the connection is closed."""
    framing = b"content-length: %d\r\nconnection: close\r\n" % len(body)
    return _head(status, headers, framing) + body


def _head(status: int, headers: Sequence[tuple[bytes, bytes]], framing: bytes) -> bytes:
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    date = _date_line()
    for name, value in headers:
        if name in _FRAMING:
            continue
        if name == b"date":
            date = b""
        lines.append(b"%b: %b\r\n" % (name, value))
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
        raise ValueError("a header holds a line break")
    return b"%b%b%b\r\n" % (head, framing, date)


def _date_line() -> bytes:
    return _date_of_second(int(time()))


@lru_cache(maxsize=2)
def _date_of_second(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode("ascii")
