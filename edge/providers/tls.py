"""TLS over a socket channel, by OpenSSL's memory buffers.

OpenSSL turns plain bytes into sealed ones and back in memory; the channel below carries the sealed
ones. Reading opens *every* record that one read of the socket brought, so that a stream of small
events is handed on in as few pieces as over plain TCP (a stream that returns a record at a time
cost four times the CPU per event here, and a write to the client for each one above).

Only one task reads and one sends, and sealed bytes leave in the order they were made: what OpenSSL
wants to say while it reads (an answer to a key update) goes out ahead of the next request.
Renegotiation is refused.
"""

import contextlib
import ssl
from collections.abc import Sequence

import trio

from edge.providers.channel import SocketChannel
from edge.providers.reading import opened_now
from edge.providers.watch import Take


def tls_context(ca_file: str, *, verify: bool) -> ssl.SSLContext:
    """What TLS is spoken with: the system's authorities or a file's, and HTTP/1.1 only (ALPN).

    Raises:
        ValueError: the CA file cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        raise ValueError(f"the CA file {ca_file!r} cannot be used: {error}") from error
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


class TlsChannel:
    """A channel whose peer has proved who it is, once :meth:`handshake` has returned.

    An end without TLS's own goodbye counts as an end: many servers close so. A body that is framed
    is still known to be cut short.
    """

    def __init__(self, below: SocketChannel, context: ssl.SSLContext, host: str) -> None:
        self._below = below
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._ended = False
        self._failure: ssl.SSLError | None = None

    async def handshake(self) -> None:
        """Agree on keys and check the peer's certificate and name.

        Raises:
            trio.BrokenResourceError: caused by the ``ssl.SSLError``, or the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._below.send_all(self._outgoing.read())
                await self._fill()
            except ssl.SSLError as error:
                self._tell_why()
                raise trio.BrokenResourceError from error
            else:
                await self._below.send_all(self._outgoing.read())
                return

    async def send(self, head: bytes, body: bytes) -> Sequence[bytes | memoryview]:
        """See :class:`edge.providers.channel.Channel`."""
        self._seal(head + body)
        return self._below.send_now(self._outgoing.read())

    async def send_all(self, data: bytes | memoryview) -> None:
        """Send what :meth:`send` has left over: it is sealed already."""
        await self._below.send_all(data)

    def abandon_sending(self) -> None:
        """See :class:`edge.providers.channel.Channel`."""
        self._below.abandon_sending()

    async def receive_some(self) -> bytes:
        """See :class:`edge.providers.channel.Channel`."""
        while True:
            if data := self._open_records():
                return data
            if self._failure is not None:
                raise trio.BrokenResourceError from self._failure
            if self._ended:
                return b""
            await self._fill()

    async def receive_each(self, take: Take) -> None:
        """See :class:`edge.providers.channel.Channel`."""

        def open_and_take(sealed: bytes) -> bool:
            self._incoming.write(sealed)
            data = self._open_records()
            goes_on = take(data) if data else True
            return goes_on and not self._ended and self._failure is None

        if not self._ended and self._failure is None:
            await self._below.receive_each(open_and_take)

    def is_quiet(self) -> bool:
        """See :class:`edge.providers.channel.Channel`."""
        return not (self._ended or self._incoming.pending) and self._below.is_quiet()

    def close(self) -> None:
        """Close the socket, without a goodbye: there is nobody who waits for it."""
        self._below.close()

    async def _fill(self) -> None:
        if data := await self._below.receive_some():
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _seal(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._tls.write(rest) :]

    def _open_records(self) -> bytes:
        """All that the records at hand hold; empty if there is none, or no more."""
        if self._ended or self._failure is not None:
            return b""
        pieces: list[bytes] = []
        try:
            while piece := opened_now(self._tls):
                pieces.append(piece)
            self._ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            if _is_end(error):
                self._ended = True
            else:
                self._failure = error
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _tell_why(self) -> None:
        """Send the alert that OpenSSL has prepared; the peer's operator will want to read it."""
        with contextlib.suppress(trio.BrokenResourceError):
            self._below.send_now(self._outgoing.read())


def _is_end(error: ssl.SSLError) -> bool:
    """Whether the connection just ended, without a goodbye."""
    return isinstance(error, ssl.SSLEOFError) or error.reason == "UNEXPECTED_EOF_WHILE_READING"
