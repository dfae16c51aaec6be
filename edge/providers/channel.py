"""Byte channels to a server: what one is, and a TCP socket as one.

Three things are wanted here that trio's own streams do not give together:

* *closing is synchronous*: a cancelled attempt hangs up before anything else is awaited, which is
  how model servers learn that nobody wants the answer any more; TLS says no goodbye then;
* *reading waits first and reads as late as possible*: one system call less than trying first, and
  all that arrived while this task waited for its turn comes in one read; a stream of pieces can be
  read without waking the task for each (``edge.providers.watch``);
* *sending goes straight to the socket* and waits only for what did not fit, and such a wait can be
  abandoned without harming the reading half, for servers that answer before they have read it all.

A channel belongs to one connection; one task reads and at most one other sends.
"""

import socket
from collections.abc import Sequence
from typing import Protocol

import trio

from edge.providers.reading import read_now
from edge.providers.watch import Take, Watch

_JOIN_BELOW = 65536
"""Head and body are copied into one piece up to this size; above, both go down as they are."""


class Channel(Protocol):
    """What an HTTP connection needs below it."""

    async def send(self, head: bytes, body: bytes) -> Sequence[bytes | memoryview]:
        """Send what goes without waiting; what is left is for :meth:`send_all`.

        Raises:
            trio.BrokenResourceError: the peer no longer takes anything. It may still have answered.
        """
        ...

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send everything, or return early after :meth:`abandon_sending`."""
        ...

    def abandon_sending(self) -> None:
        """Make a :meth:`send_all` in another task return; from then on the channel is only read."""
        ...

    async def receive_some(self) -> bytes:
        """Wait for bytes; empty at the end.

        Raises:
            trio.BrokenResourceError: the connection was reset.
        """
        ...

    async def receive_each(self, take: Take) -> None:
        """Give ``take`` what each read brings, while it returns True and the peer goes on.

        May return at any time, and at once: :meth:`receive_some` then says how it goes on.

        Raises:
            trio.BrokenResourceError: the connection was reset.
            Exception: what ``take`` raised.
        """
        ...

    def is_quiet(self) -> bool:
        """Whether the peer has sent nothing unasked and has not closed: fit for another request."""
        ...

    def close(self) -> None:
        """Close the socket now. Doing so again is allowed."""
        ...


class SocketChannel:
    """A connected TCP socket, which it owns; ``watch`` reads it where many pieces are wanted."""

    def __init__(self, sock: socket.socket, watch: Watch | None = None) -> None:
        sock.setblocking(False)
        self._watch = watch
        self._socket = sock
        self._fd = sock.fileno()
        self._sending: trio.CancelScope | None = None
        self._abandoned = False

    async def send(self, head: bytes, body: bytes) -> Sequence[bytes | memoryview]:
        """See :class:`Channel`; nothing is awaited."""
        return self.send_now(head, body)

    def send_now(self, head: bytes, body: bytes = b"") -> Sequence[bytes | memoryview]:
        """Send what the kernel takes at once; returns the rest.

        Raises:
            trio.BrokenResourceError: the peer no longer takes anything.
        """
        pieces = [head + body] if len(body) <= _JOIN_BELOW else [head, body]
        try:
            sent = (
                self._socket.send(pieces[0]) if len(pieces) == 1 else self._socket.sendmsg(pieces)
            )
        except BlockingIOError:
            return pieces
        except OSError as error:
            raise trio.BrokenResourceError from error
        if len(pieces) == 1:
            return () if sent == len(pieces[0]) else [memoryview(pieces[0])[sent:]]
        if sent < len(head):
            return [memoryview(head)[sent:], body]
        rest = memoryview(body)[sent - len(head) :]
        return [rest] if rest else ()

    async def send_all(self, data: bytes | memoryview) -> None:
        """See :class:`Channel`."""
        rest = self._send_some(memoryview(data))
        if not rest:
            return
        with trio.CancelScope() as self._sending:
            if self._abandoned:
                return
            while rest:
                await trio.lowlevel.wait_writable(self._fd)
                rest = self._send_some(rest)

    def abandon_sending(self) -> None:
        """See :class:`Channel`."""
        self._abandoned = True
        if self._sending is not None:
            self._sending.cancel()

    async def receive_some(self) -> bytes:
        """See :class:`Channel`."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                return read_now(self._socket)
            except BlockingIOError:
                continue
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def receive_each(self, take: Take) -> None:
        """See :class:`Channel`."""
        if self._watch is not None:
            await self._watch.each(self._socket, take)

    def is_quiet(self) -> bool:
        """See :class:`Channel`."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        """See :class:`Channel`."""
        if self._fd >= 0:
            trio.lowlevel.notify_closing(self._fd)
            self._fd = -1
            self._socket.close()

    def _send_some(self, data: memoryview) -> memoryview:
        try:
            return data[self._socket.send(data) :]
        except BlockingIOError:
            return data
        except OSError as error:
            raise trio.BrokenResourceError from error
