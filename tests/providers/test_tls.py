"""The TLS channel by itself, against OpenSSL's server half in memory."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from edge.providers.channel import SocketChannel
from edge.providers.reading import READ_SIZE
from edge.providers.tls import TlsChannel, tls_context
from tests.fakes.certificates import Certificates


class TlsServer:
    """The other end of a socket pair: seals what it is told to, and can spoil it."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.socket = sock
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    async def handshake(self) -> None:
        while not self._shakes_hands():
            self.flush()
            self.incoming.write(await self._read())
        self.flush()

    def _shakes_hands(self) -> bool:
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    async def _read(self) -> bytes:
        await trio.lowlevel.wait_readable(self.socket)
        return self.socket.recv(65536)

    async def read(self) -> bytes:
        while (data := self._open()) is None:
            self.incoming.write(await self._read())
        return data

    def _open(self) -> bytes | None:
        try:
            return self.tls.read(65536)
        except ssl.SSLWantReadError:
            return None

    def seal(self, *records: bytes) -> bytes:
        for record in records:
            self.tls.write(record)
        return self.outgoing.read()

    def goodbye(self) -> bytes:
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self.outgoing.read()

    def flush(self) -> None:
        self.socket.sendall(self.outgoing.read())


Pair = tuple[TlsChannel, TlsServer]


@asynccontextmanager
async def connected(certificates: Certificates) -> AsyncIterator[Pair]:
    """A channel and its server after their handshake."""
    with trio.fail_after(5):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            server = TlsServer(theirs, certificates.server_context())
            context = tls_context(certificates.ca_file, verify=True)
            channel = TlsChannel(SocketChannel(ours), context, "localhost")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(server.handshake)
                await channel.handshake()
            # The tickets that follow a handshake are read with the first answer.
            server.socket.sendall(server.seal(b"hello"))
            assert await channel.receive_some() == b"hello"
            yield channel, server


async def test_all_records_that_one_read_brings_come_as_one(certificates: Certificates) -> None:
    async with connected(certificates) as (channel, server):
        server.socket.sendall(server.seal(*[b"data: %d\n\n" % n for n in range(100)]))

        assert await channel.receive_some() == b"".join(b"data: %d\n\n" % n for n in range(100))


async def test_a_record_that_is_cut_anywhere_comes_when_it_is_whole(
    certificates: Certificates,
) -> None:
    async with connected(certificates) as (channel, server):
        sealed = server.seal(b"ab", b"cd")
        received: list[bytes] = []

        async def receive() -> None:
            while b"".join(received) != b"abcd":
                received.append(await channel.receive_some())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            for byte in sealed:
                server.socket.sendall(bytes([byte]))
                await trio.testing.wait_all_tasks_blocked()

        assert received == [b"ab", b"cd"]


async def test_what_is_received_at_a_time_is_bounded(certificates: Certificates) -> None:
    async with connected(certificates) as (channel, server):
        sizes: list[int] = []

        async def send() -> None:
            rest = memoryview(server.seal(*[b"x" * 16384] * 30))
            while rest:
                await trio.lowlevel.wait_writable(server.socket)
                rest = rest[server.socket.send(rest) :]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while sum(sizes) < 30 * 16384:
                sizes.append(len(await channel.receive_some()))

        assert max(sizes) <= READ_SIZE + 16384


async def test_a_goodbye_is_the_end_behind_what_was_said(certificates: Certificates) -> None:
    async with connected(certificates) as (channel, server):
        assert channel.is_quiet()
        server.socket.sendall(server.seal(b"bye") + server.goodbye())

        assert await channel.receive_some() == b"bye"
        assert not channel.is_quiet()
        assert await channel.receive_some() == b""
        assert await channel.receive_some() == b""


async def test_a_close_without_a_goodbye_is_an_end_too(certificates: Certificates) -> None:
    async with connected(certificates) as (channel, server):
        server.socket.sendall(server.seal(b"bye"))
        server.socket.shutdown(socket.SHUT_WR)

        assert await channel.receive_some() == b"bye"
        assert await channel.receive_some() == b""
        assert await channel.receive_some() == b""


@pytest.mark.parametrize("spoilt", ["a bit", "plain text"])
async def test_a_spoilt_record_breaks_the_channel_behind_what_was_sound(
    spoilt: str, certificates: Certificates
) -> None:
    async with connected(certificates) as (channel, server):
        sound, record = server.seal(b"sound"), bytearray(server.seal(b"spoilt"))
        if spoilt == "plain text":
            record = bytearray(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        else:
            record[-1] ^= 1
        server.socket.sendall(sound + record)

        assert await channel.receive_some() == b"sound"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError) as caught:
                await channel.receive_some()
            assert isinstance(caught.value.__cause__, ssl.SSLError)


@pytest.mark.parametrize("size", [10, 16384, 16385, 3_000_000])
async def test_a_request_of_any_size_arrives_whole(size: int, certificates: Certificates) -> None:
    async with connected(certificates) as (channel, server):
        received = bytearray()

        async def receive() -> None:
            while len(received) < size + 4:
                received.extend(await server.read())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            for piece in await channel.send(b"head", b"x" * size):
                await channel.send_all(piece)

        assert received == b"head" + b"x" * size


async def test_a_refused_peer_is_told_why(certificates: Certificates) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, trio.fail_after(5):
        theirs.setblocking(False)
        server = TlsServer(theirs, certificates.server_context("elsewhere.example"))
        context = tls_context(certificates.ca_file, verify=True)
        channel = TlsChannel(SocketChannel(ours), context, "localhost")
        heard: list[ssl.SSLError] = []

        async def listen() -> None:
            try:
                await server.handshake()
                await server.read()
            except ssl.SSLError as error:
                heard.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            with pytest.raises(trio.BrokenResourceError):
                await channel.handshake()

        assert "ALERT" in (heard[0].reason or "")


def test_a_context_checks_names_and_certificates_unless_told_otherwise() -> None:
    checked, unchecked = tls_context("", verify=True), tls_context("", verify=False)

    assert (checked.check_hostname, checked.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (unchecked.check_hostname, unchecked.verify_mode) == (False, ssl.CERT_NONE)
    for context in (checked, unchecked):
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
