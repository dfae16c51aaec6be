"""Requests that the kernel does not take at once: what happens to them while the server speaks."""

from typing import NoReturn

import pytest
import trio

from edge.errors import ProviderUnreachable
from edge.providers.connection import Connection
from edge.providers.transport import TransportLimits
from tests.fakes.certificates import Certificates
from tests.fakes.channel import FakeChannel
from tests.fakes.raw_server import Peer, Script, head
from tests.providers.serving import serving, whole

LARGE = b"x" * 12_000_000
"""More than the buffers of two sockets hold."""

SMALL_BUFFER = 16384


async def _refuse_unread(peer: Peer) -> None:
    """Answer from the head alone, then neither read on nor close."""
    await peer.read_head()
    await peer.send_answer(413, b"too large")
    await trio.sleep_forever()


async def _refuse_and_close(peer: Peer) -> None:
    await peer.read_head()
    await peer.send_answer(413, b"too large")
    peer.end()
    await trio.sleep_forever()


async def _refuse_at_length(peer: Peer) -> None:
    """An error whose body comes bit by bit, still without reading the request."""
    await peer.read_head()
    await peer.send_head(413, {"content-length": "9"})
    for byte in b"too large":
        await peer.send(bytes([byte]))
    await trio.sleep_forever()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
@pytest.mark.parametrize("script", [_refuse_unread, _refuse_and_close, _refuse_at_length])
async def test_an_error_that_comes_before_the_body_was_sent_is_received(
    script: Script, secure: bool, certificates: Certificates
) -> None:
    tls = certificates.server_context() if secure else None
    limits = TransportLimits(ca_file=certificates.ca_file)
    async with serving(script, limits, tls=tls, receive_buffer=SMALL_BUFFER) as (_, transport):
        async with transport.request("POST", "/x", body=LARGE) as answer:
            body = b""
            while data := await answer.receive():
                body += data

        assert (answer.status, body) == (413, b"too large")
        assert transport.statistics().open == 0


async def test_an_answer_from_a_server_that_closes_while_it_is_sent_to_is_received() -> None:
    """A reset follows what it said, since it has not read everything; both are there to be read."""

    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send_answer(503, b"busy", {"connection": "close"})

    async with (
        serving(script, receive_buffer=SMALL_BUFFER) as (_, transport),
        transport.request("POST", "/x", body=LARGE) as answer,
    ):
        assert (answer.status, await answer.receive()) == (503, b"busy")


async def test_an_answer_on_a_used_connection_whose_sending_fails_is_received() -> None:
    """The server says goodbye on an idle connection with a status (408), just before we send."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send_answer()
        await peer.read_head()
        await peer.send_answer(408, b"bye", {"connection": "close"})

    async with serving(script) as (server, transport):
        await whole(transport.request("POST", "/x"))

        async with transport.request("POST", "/x", body=LARGE) as answer:
            assert (answer.status, await answer.receive()) == (408, b"bye")
        assert server.count("accepted") == 1


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_informational_and_early_sound_answers_do_not_stop_the_sending(
    secure: bool, certificates: Certificates
) -> None:
    received = 0

    async def script(peer: Peer) -> None:
        nonlocal received
        for _ in range(2):
            await peer.read_head()
            await peer.send(head(100) + head(200, {"content-length": "2"}))
            received += len(await peer.read_body(len(LARGE)))
            await peer.send(b"ok")

    tls = certificates.server_context() if secure else None
    limits = TransportLimits(ca_file=certificates.ca_file)
    async with serving(script, limits, tls=tls, receive_buffer=SMALL_BUFFER) as (
        server,
        transport,
    ):
        for _ in range(2):
            assert await whole(transport.request("POST", "/x", body=LARGE)) == b"ok"

        assert received == 2 * len(LARGE)
        assert server.count("accepted") == 1


async def test_a_server_that_vanishes_while_it_is_sent_to_is_unreachable() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        peer.reset()

    async with serving(script, receive_buffer=SMALL_BUFFER) as (server, transport):
        with pytest.raises(ProviderUnreachable):
            await whole(transport.request("POST", "/x", body=LARGE))

        assert server.count("accepted") == 1
        assert transport.statistics().open == 0


async def test_a_connection_whose_sending_failed_is_not_reused_whatever_it_answers() -> None:
    class Deaf(FakeChannel):
        async def send(self, head: bytes, body: bytes) -> NoReturn:
            raise trio.BrokenResourceError

    channel = Deaf()
    channel.says = [head(408, {"content-length": "0"})]
    connection = Connection(channel, 4096)

    assert await connection.ask("POST", b"", b"")
    assert connection.parser.complete
    assert not connection.is_reusable()


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_cancelling_while_sending_hangs_up(secure: bool, certificates: Certificates) -> None:
    go_on = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_head()
        peer.server.log(peer.number, "stuck")
        await go_on.wait()
        await peer.wait_closed()

    tls = certificates.server_context() if secure else None
    limits = TransportLimits(ca_file=certificates.ca_file)
    async with serving(script, limits, tls=tls, receive_buffer=SMALL_BUFFER) as (
        server,
        transport,
    ):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(whole, transport.request("POST", "/x", (), LARGE))
                await server.happened("stuck")
                scope.cancel()
        assert transport.statistics().open == 0

        go_on.set()
        await server.client_left()
