"""What goes wrong at a provider is told by its type, soon, and leaves nothing open."""

import pytest
import trio
import trio.testing

from edge.errors import (
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnreachable,
)
from edge.providers.channel import Channel
from edge.providers.transport import Transport, TransportLimits
from tests.fakes.raw_server import (
    Peer,
    Script,
    chunk,
    head,
    raw_server,
    saying,
    silent,
)
from tests.providers.serving import serving, whole

BROKEN = {
    "HTML": b"<html>Bad gateway</html>",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nconte",
    "endless header": b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000,
    "endless headers": b"HTTP/1.1 200 OK\r\n" + b"x: a\r\n" * 20_000,
    "endless informational": head(100) * 5_000,
    "upgrade": head(101, {"upgrade": "h2c", "connection": "upgrade"}),
    "two lengths": head(200, {"content-length": "1", "Content-Length": "2"}) + b"ab",
    "length and chunks": head(200, {"content-length": "1", "transfer-encoding": "chunked"}),
    "gzip coding": head(200, {"transfer-encoding": "gzip"}),
}
BROKEN_BODY = {
    "too short": head(200, {"content-length": "10"}) + b"hello",
    "bad chunk size": head(200, {"transfer-encoding": "chunked"}) + chunk(b"hello") + b"zz\r\n",
    "no last chunk": head(200, {"transfer-encoding": "chunked"}) + chunk(b"hello"),
    "endless trailers": head(200, {"transfer-encoding": "chunked"})
    + chunk(b"hello")
    + b"0\r\n"
    + b"x: a\r\n" * 50_000,
    "endless chunk extension": head(200, {"transfer-encoding": "chunked"})
    + chunk(b"hello")
    + b"5;x="
    + b"a" * 300_000,
}


def _lingering(wire: bytes) -> Script:
    """Say this, and then neither go on nor close."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(wire)
        await peer.wait_closed()

    return script


@pytest.mark.parametrize("wire", BROKEN.values(), ids=BROKEN)
async def test_a_broken_head_is_a_protocol_error_and_the_connection_is_closed(wire: bytes) -> None:
    script = saying(wire) if wire.endswith(b"conte") else _lingering(wire)
    async with serving(script) as (_, transport):
        with pytest.raises(ProviderProtocolError, match="provider 'gpu1' ") as caught:
            async with transport.request("POST", "/x"):
                pytest.fail("this is no answer")

        assert caught.value.provider == "gpu1"
        assert transport.statistics().open == 0


@pytest.mark.parametrize("wire", BROKEN_BODY.values(), ids=BROKEN_BODY)
async def test_a_broken_body_is_a_protocol_error_behind_what_came_before_it(wire: bytes) -> None:
    script = saying(wire) if len(wire) < 200 else _lingering(wire)
    async with serving(script) as (_, transport):
        async with transport.request("POST", "/x") as answer:
            assert await answer.receive() == b"hello"
            for _ in range(2):
                with pytest.raises(ProviderProtocolError):
                    await answer.receive()

        assert transport.statistics().open == 0


async def test_a_reset_in_the_body_is_a_protocol_error_even_where_closing_would_end_it() -> None:
    go_on = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(head(200) + b"hello")
        await go_on.wait()
        peer.reset()

    async with serving(script) as (_, transport), transport.request("POST", "/x") as answer:
        assert await answer.receive() == b"hello"
        go_on.set()
        with pytest.raises(ProviderProtocolError, match="before the end of its answer"):
            await answer.receive()


@pytest.mark.parametrize("url", ["http://127.0.0.1:{port}", "http://localhost:{port}"])
async def test_a_refused_connection_is_unreachable_and_its_address_stays_here(url: str) -> None:
    async with raw_server(silent) as server:
        port = server.port
    transport = Transport(url.format(port=port), name="gpu1")

    with pytest.raises(ProviderUnreachable) as caught:
        await whole(transport.request("POST", "/x"))

    assert str(caught.value) == "provider 'gpu1' cannot be reached: it refused the connection"
    assert transport.statistics().open == 0


async def test_an_unknown_name_is_unreachable() -> None:
    with pytest.raises(ProviderUnreachable, match="its name is not known"):
        await whole(Transport("http://nowhere.invalid", name="gpu1").request("POST", "/x"))


async def test_a_connection_that_takes_too_long_is_a_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def never() -> Channel:
        await trio.sleep_forever()
        raise AssertionError

    transport = Transport("http://gpu1", TransportLimits(connect_timeout_s=7), dial=never)

    with pytest.raises(ProviderTimeout, match="within 7 s"):
        await whole(transport.request("POST", "/x"))
    assert autojump_clock.current_time() == pytest.approx(7)
    assert transport.statistics().connecting == 0
