"""A scripted server on real sockets, TCP or TLS, that writes down what happens in order.

A script is an async callable that is given each accepted connection as a :class:`Peer`:

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        await peer.send_answer(200, b"hello")

    async with raw_server(script) as server:
        ... server.url ...
        await server.happened("closed")
        assert server.kinds() == ["accepted", "head", "body", "sent", "closed"]

When a script returns its connection is closed (``finished`` in the log). A script that talks to a
client that has gone is ended, with ``closed`` or ``reset`` in the log; any other exception fails
the test. Ready-made scripts are at the foot. Events (wait for them with ``happened``: the client
may see bytes before the server's task comes to write down that they were sent):

    accepted            a client has connected
    head, body          a request's head and whole body have been read (detail: request line, body)
    sent                bytes were handed to the kernel (detail: the bytes)
    closed, reset       the client has closed its side, or broken the connection
    finished            the script has returned and the server closed the connection
"""

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

Script = Callable[["Peer"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a connection (numbered from 1 in order of acceptance)."""

    connection: int
    kind: str
    detail: bytes = b""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was read; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class ClientGone(Exception):
    """The client has closed or broken the connection; ends the script."""


class RawServer:
    """A listening server and its log.

    Attributes:
        port: on 127.0.0.1.
        events: all that has happened, in order.
        connected: how many connections are open on the server's side.
    """

    def __init__(self, port: int, *, secure: bool) -> None:
        self.port = port
        self.events: list[Event] = []
        self.connected = 0
        self._secure = secure
        self._news = trio.Event()

    @property
    def url(self) -> str:
        """The base URL; under TLS for the name ``localhost``."""
        return f"https://localhost:{self.port}" if self._secure else f"http://127.0.0.1:{self.port}"

    def log(self, connection: int, kind: str, detail: bytes = b"") -> None:
        """Write an event down and wake who waits for it."""
        self.events.append(Event(connection, kind, detail))
        self._news.set()
        self._news = trio.Event()

    def kinds(self, connection: int | None = None) -> list[str]:
        """What happened, in order, at one connection or at all."""
        return [e.kind for e in self.events if connection in (None, e.connection)]

    def count(self, kind: str) -> int:
        """How often something has happened."""
        return self.kinds().count(kind)

    async def happened(self, kind: str, times: int = 1) -> Event:
        """Wait until something has happened so many times; the last of these events."""
        while True:
            found = [event for event in self.events if event.kind == kind]
            if len(found) >= times:
                return found[times - 1]
            await self._news.wait()

    async def client_left(self, times: int = 1) -> None:
        """Wait until so many connections have been closed or broken by their clients."""
        while self.count("closed") + self.count("reset") < times:
            await self._news.wait()


class Peer:
    """One accepted connection, seen from the server."""

    def __init__(
        self, server: RawServer, number: int, stream: trio.abc.Stream, raw: trio.SocketStream
    ) -> None:
        self.server = server
        self.number = number
        self.stream = stream
        self._socket = raw.socket
        self._unread = b""

    async def receive(self) -> bytes:
        """Whatever comes; empty at the end (which is logged)."""
        if self._unread:
            data, self._unread = self._unread, b""
            return data
        try:
            data = bytes(await self.stream.receive_some(65536))
        except trio.BrokenResourceError:
            self.server.log(self.number, "reset")
            raise ClientGone from None
        if not data:
            self.server.log(self.number, "closed")
        return data

    def put_back(self, data: bytes) -> None:
        """Give received bytes back, to be the next that are received."""
        self._unread = data + self._unread

    async def read_head(self) -> tuple[str, str, dict[str, str]]:
        """Method, target and headers of a request, leaving its body unread."""
        data = b""
        while b"\r\n\r\n" not in data:
            data += await self._more()
        head, _, self._unread = data.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        self.server.log(self.number, "head", line.encode("latin-1"))
        method, target, _ = line.split(" ")
        pairs = (field.split(":", 1) for field in fields)
        return method, target, {name.strip().lower(): value.strip() for name, value in pairs}

    async def read_request(self) -> Request:
        """A whole request with a ``content-length`` body."""
        method, target, headers = await self.read_head()
        return Request(
            method, target, headers, await self.read_body(int(headers.get("content-length", 0)))
        )

    async def read_body(self, length: int) -> bytes:
        """So many bytes of a body."""
        pieces, missing = [], length
        while missing > 0:
            piece = await self._more()
            pieces.append(piece)
            missing -= len(piece)
        data = b"".join(pieces)
        self._unread = data[length:]
        self.server.log(self.number, "body", data[:length])
        return data[:length]

    async def send(self, data: bytes) -> None:
        """Exactly these bytes."""
        try:
            await self.stream.send_all(data)
        except trio.BrokenResourceError:
            self.server.log(self.number, "reset")
            raise ClientGone from None
        self.server.log(self.number, "sent", data)

    async def send_head(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """A status line and headers, nothing added."""
        await self.send(head(status, headers))

    async def send_answer(
        self, status: int = 200, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole length-framed answer, as JSON unless ``headers`` say otherwise."""
        framed = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **(headers or {}),
        }
        await self.send(head(status, framed) + body)

    async def start_sse(self, status: int = 200) -> None:
        """The head of a chunked event stream."""
        framed = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        await self.send(head(status, framed))

    async def send_chunk(self, data: bytes) -> None:
        """One chunk of a chunked body."""
        await self.send(chunk(data))

    async def end_chunks(self) -> None:
        """The last chunk."""
        await self.send(b"0\r\n\r\n")

    async def wait_closed(self) -> None:
        """Read and throw away until the client has closed or broken the connection."""
        while await self.receive():
            pass

    def reset(self) -> None:
        """Break the connection at once (RST)."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def end(self) -> None:
        """Say that nothing more will be sent, and go on reading (FIN; TLS is not told)."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection; a script that goes on can only look at the log."""
        self._socket.close()

    async def _more(self) -> bytes:
        data = await self.receive()
        if not data:
            raise ClientGone
        return data


@asynccontextmanager
async def raw_server(
    script: Script, *, tls: ssl.SSLContext | None = None, receive_buffer: int = 0
) -> AsyncIterator[RawServer]:
    """Serve until the block is left.

    Args:
        script: called with each connection.
        tls: a server context to speak TLS with.
        receive_buffer: the kernel's, bytes; small ones make clients wait while they send.
    """
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1", backlog=1024)
    if receive_buffer:
        listener.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    server = RawServer(listener.socket.getsockname()[1], secure=tls is not None)
    # The listener is outside: closing it in a cancelled nursery would put Cancelled in the place of
    # a failed assertion, and the nursery would swallow that.
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(partial(_accept_all, server, listener, script, tls))
        try:
            yield server
        finally:
            nursery.cancel_scope.cancel()


async def _accept_all(
    server: RawServer, listener: trio.SocketListener, script: Script, tls: ssl.SSLContext | None
) -> None:
    accepted = 0
    async with trio.open_nursery() as nursery:
        while True:
            stream = await listener.accept()
            accepted += 1
            server.log(accepted, "accepted")
            nursery.start_soon(_serve, server, accepted, stream, script, tls)


async def _serve(
    server: RawServer,
    number: int,
    stream: trio.SocketStream,
    script: Script,
    tls: ssl.SSLContext | None,
) -> None:
    secured: trio.abc.Stream = stream
    server.connected += 1
    try:
        if tls is not None:
            secured = await _handshake(stream, tls)
        await script(Peer(server, number, secured, stream))
    except ClientGone:
        return
    except ExceptionGroup as group:  # out of a nursery of the script's own
        if group.split(ClientGone)[1] is not None:
            raise
        return
    except trio.BrokenResourceError:
        server.log(number, "reset")
    else:
        server.log(number, "finished")
    finally:
        server.connected -= 1
        stream.socket.close()


async def _handshake(stream: trio.SocketStream, tls: ssl.SSLContext) -> trio.abc.Stream:
    secured = trio.SSLStream(stream, tls, server_side=True, https_compatible=True)
    await secured.do_handshake()
    return secured


def head(status: int, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of an answer's head."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"HTTP/1.1 {status} Scripted\r\n{fields}\r\n".encode("latin-1")


def chunk(data: bytes) -> bytes:
    """The bytes of one chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


# Ready-made scripts.


def answering(
    status: int = 200, body: bytes = b"{}", headers: Mapping[str, str] | None = None
) -> Script:
    """Give every request of a connection the same length-framed answer, for as long as it lasts."""

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request()
            await peer.send_answer(status, body, headers)

    return script


def streaming(pieces: Iterable[bytes]) -> Script:
    """Answer every request with these pieces as a chunked event stream, each sent on its own."""
    kept = list(pieces)

    async def script(peer: Peer) -> None:
        while True:
            await peer.read_request()
            await peer.start_sse()
            for piece in kept:
                await peer.send_chunk(piece)
            await peer.end_chunks()

    return script


def saying(data: bytes) -> Script:
    """Read a request, send exactly these bytes, close."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(data)

    return script


async def silent(peer: Peer) -> None:
    """Read a request and never answer; logs when the client leaves."""
    await peer.read_request()
    await peer.wait_closed()


def each(*scripts: Script) -> Script:
    """The first script for the first connection, and so on; the last one for all that follow."""

    async def script(peer: Peer) -> None:
        await scripts[min(peer.number, len(scripts)) - 1](peer)

    return script
