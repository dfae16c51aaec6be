"""Connections kept and used again: when they are, and when they must not be."""

import pytest
import trio
import trio.testing

from edge.errors import (
    ProviderProtocolError,
    ProviderUnreachable,
)
from edge.providers.transport import Transport, TransportLimits
from tests.fakes.raw_server import (
    Peer,
    Script,
    answering,
    each,
    head,
    raw_server,
    saying,
    streaming,
)
from tests.providers.serving import serving, whole


async def test_a_connection_carries_one_request_after_the_other() -> None:
    async with serving(streaming([b"a", b"b"])) as (server, transport):
        for _ in range(5):
            assert await whole(transport.request("POST", "/x")) == b"ab"

        assert server.count("accepted") == 1
        assert (transport.statistics().opened, transport.statistics().reused) == (1, 4)


async def test_each_request_in_flight_has_a_connection_of_its_own() -> None:
    async with serving(answering()) as (server, transport):
        async with transport.request("POST", "/1") as first, transport.request("POST", "/2"):
            assert transport.statistics().leased == 2
            assert await first.receive() == b"{}"

        assert server.count("accepted") == 2
        assert (transport.statistics().idle, transport.statistics().leased) == (2, 0)


@pytest.mark.parametrize(
    "wire",
    [
        head(200, {"content-length": "2", "connection": "close"}) + b"ok",
        head(200, {"content-length": "2"}).replace(b"HTTP/1.1", b"HTTP/1.0") + b"ok",
        head(200, {"content-length": "2"}) + b"ok" + b"surplus",
        head(200) + b"ok",
    ],
    ids=["connection: close", "HTTP/1.0", "surplus bytes", "until close"],
)
async def test_a_connection_that_may_not_be_used_again_is_closed(wire: bytes) -> None:
    async with serving(saying(wire)) as (server, transport):
        for _ in range(2):
            async with transport.request("POST", "/x") as answer:
                assert await answer.receive() == b"ok"
                assert await answer.receive() == b""
            assert transport.statistics().open == 0

        assert server.count("accepted") == 2


async def test_idle_connections_are_no_more_than_allowed() -> None:
    async with serving(answering(), TransportLimits(max_idle=2)) as (server, transport):
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(whole, transport.request("POST", "/x"))
        await server.happened("closed", server.count("accepted") - 2)

        assert transport.statistics().open == 2


async def test_with_none_allowed_a_connection_is_closed_after_its_answer() -> None:
    async with serving(answering(), TransportLimits(max_idle=0)) as (server, transport):
        await whole(transport.request("POST", "/x"))

        await server.happened("closed")


async def test_a_connection_that_was_idle_for_too_long_is_not_used_again() -> None:
    now = 0.0
    with trio.fail_after(10):
        async with raw_server(answering()) as server:
            limits = TransportLimits(idle_expiry_s=55)
            transport = Transport(server.url, limits, now=lambda: now)
            for now, accepted in ((0, 1), (55, 1), (110, 1), (165.1, 2), (170, 2)):  # noqa: B007
                await whole(transport.request("POST", "/x"))
                assert server.count("accepted") == accepted
            await server.happened("closed")
            assert transport.statistics().idle == 1
            await transport.aclose()


async def test_the_most_recently_used_connection_is_taken_first_and_old_ones_are_dropped() -> None:
    now = 0.0
    with trio.fail_after(10):
        async with raw_server(answering()) as server:
            limits = TransportLimits(idle_expiry_s=55)
            transport = Transport(server.url, limits, now=lambda: now)
            async with transport.request("POST", "/1"), transport.request("POST", "/2"):
                pass  # the second is given back first
            for now in (50, 100):  # noqa: B007
                await whole(transport.request("POST", "/x"))
            heads = [event.connection for event in server.events if event.kind == "head"]
            assert heads == [1, 2, 1, 1]
            assert (await server.happened("closed")).connection == 2
            assert transport.statistics().idle == 1
            await transport.aclose()


async def test_an_idle_connection_that_the_provider_closed_is_not_used_again() -> None:
    async with serving(each(saying(head(200, {"content-length": "0"})), answering())) as (
        server,
        transport,
    ):
        await whole(transport.request("POST", "/x"))
        await server.happened("finished")

        await whole(transport.request("POST", "/x"))
        assert server.count("head") == 2
        assert (transport.statistics().stale, transport.statistics().reused) == (1, 0)


async def test_an_idle_connection_with_unasked_bytes_is_not_used_again() -> None:
    speak = trio.Event()

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send_answer()
        await speak.wait()
        await peer.send(head(408, {"content-length": "0"}))
        await peer.wait_closed()

    async with serving(each(script, answering(body=b"right"))) as (server, transport):
        await whole(transport.request("POST", "/x"))
        speak.set()
        await server.happened("sent", 2)

        assert await whole(transport.request("POST", "/x")) == b"right"


async def _close_on_second_request(peer: Peer) -> None:
    await peer.read_request()
    await peer.send_answer()
    await peer.read_request()


async def _reset_on_second_request(peer: Peer) -> None:
    await _close_on_second_request(peer)
    peer.reset()


@pytest.mark.parametrize("going", [_close_on_second_request, _reset_on_second_request])
async def test_a_request_on_a_connection_that_closes_just_then_is_sent_once_more(
    going: Script,
) -> None:
    async with serving(each(going, answering(body=b"second"))) as (server, transport):
        await whole(transport.request("POST", "/x"))

        assert await whole(transport.request("POST", "/x", body=b"{}")) == b"second"
        assert [event.connection for event in server.events if event.kind == "head"] == [1, 1, 2]
        assert transport.statistics().stale == 1


async def test_it_is_sent_once_more_and_not_twice() -> None:
    async with serving(each(_close_on_second_request, saying(b""))) as (server, transport):
        await whole(transport.request("POST", "/x"))

        with pytest.raises(ProviderUnreachable):
            await whole(transport.request("POST", "/x"))
        assert server.count("accepted") == 2
        assert transport.statistics().open == 0


async def test_a_new_connection_that_closes_without_an_answer_is_not_tried_again() -> None:
    async with serving(saying(b"")) as (server, transport):
        with pytest.raises(ProviderUnreachable, match="'gpu1' closed the connection before"):
            await whole(transport.request("POST", "/x"))

        assert server.count("accepted") == 1


async def test_after_one_byte_of_an_answer_nothing_is_sent_again() -> None:
    async def script(peer: Peer) -> None:
        await _close_on_second_request(peer)
        await peer.send(b"H")

    async with serving(script) as (server, transport):
        await whole(transport.request("POST", "/x"))

        with pytest.raises(ProviderProtocolError, match="before the head of its answer"):
            await whole(transport.request("POST", "/x"))
        assert server.count("accepted") == 1
