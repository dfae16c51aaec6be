"""Leaving an exchange: the provider is hung up on at once unless its answer was complete."""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
import trio.testing

from edge.providers.transport import Exchange, Transport, TransportLimits
from tests.fakes.certificates import Certificates
from tests.fakes.raw_server import (
    Peer,
    answering,
    silent,
    streaming,
)
from tests.providers.serving import serving, whole


async def _endless(peer: Peer) -> None:
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(b"data: 1\n\n")
    await peer.wait_closed()


class _Oops(Exception):
    """Whatever a caller may raise."""


async def _leave_early(exchange: Exchange) -> None:
    async with exchange as answer:
        await answer.receive()


async def _leave_without_receiving(exchange: Exchange) -> None:
    async with exchange:
        pass


async def _leave_by_an_exception(exchange: Exchange) -> None:
    with contextlib.suppress(_Oops):
        async with exchange as answer:
            await answer.receive()
            raise _Oops


async def _leave_by_a_deadline(exchange: Exchange) -> None:
    with trio.move_on_after(0.01):
        async with exchange as answer:
            while await answer.receive():
                pass


@pytest.mark.parametrize(
    "leave",
    [_leave_early, _leave_without_receiving, _leave_by_an_exception, _leave_by_a_deadline],
)
async def test_leaving_before_the_end_hangs_up(
    leave: Callable[[Exchange], Awaitable[None]],
) -> None:
    async with serving(_endless) as (server, transport):
        await leave(transport.request("POST", "/x"))

        assert transport.statistics().open == 0
        await server.happened("closed")


async def test_hanging_up_comes_before_anything_else_is_awaited() -> None:
    """The caller's next step already finds the connection closed: no task had to run for it."""
    async with serving(_endless) as (server, transport):
        steps = 0
        async with transport.request("POST", "/x") as answer:
            await answer.receive()
            exchange = answer.__aexit__(None, None, None)
            with pytest.raises(StopIteration):
                exchange.send(None)  # it ends at once: it awaits nothing
            steps += 1
            assert transport.statistics().open == 0
        assert steps == 1
        await server.happened("closed")


async def test_unread_bytes_in_the_socket_make_no_difference() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send_head(200, {"transfer-encoding": "chunked"})
        for _ in range(100):
            await peer.send_chunk(b"x" * 10_000)
        await peer.wait_closed()

    async with serving(script) as (server, transport):
        async with transport.request("POST", "/x"):
            await server.happened("sent", 5)
        await server.client_left()


async def test_an_answer_that_was_complete_when_it_was_left_keeps_its_connection() -> None:
    """The end had come with the last bytes; that it was not asked for does not matter."""
    async with serving(answering(body=b"hello")) as (server, transport):
        for _ in range(3):
            async with transport.request("POST", "/x") as answer:
                assert await answer.receive() == b"hello"
        with contextlib.suppress(_Oops):
            async with transport.request("POST", "/x"):
                raise _Oops

        assert await whole(transport.request("POST", "/after")) == b"hello"
        assert server.count("accepted") == 1
        assert transport.statistics().idle == 1


async def test_a_cancelled_wait_for_an_answer_hangs_up_and_the_pool_still_serves() -> None:
    async with serving(silent) as (server, transport):
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(whole, transport.request("POST", "/x"))
                await server.happened("body")
                scope.cancel()

        assert transport.statistics().open == 0
        await server.happened("closed")


async def test_an_exchange_is_not_read_outside_its_block() -> None:
    async with serving(answering()) as (_, transport):
        async with transport.request("POST", "/x") as answer:
            pass
        with pytest.raises(RuntimeError):
            await answer.receive()


async def test_closing_the_transport_spares_an_exchange_until_it_ends() -> None:
    async with serving(answering(body=b"hello")) as (server, transport):
        await whole(transport.request("POST", "/1"))
        async with transport.request("POST", "/x") as answer, transport.request("POST", "/y"):
            await whole(transport.request("POST", "/2"))
            await transport.aclose()
            await server.happened("closed")
            assert (transport.statistics().idle, transport.statistics().leased) == (0, 2)
            assert await answer.receive() == b"hello"
        assert transport.statistics().open == 0


# Cancelling at each step of the way.


class _CancelAtStep(trio.abc.Instrument):
    """Cancels a scope when its task is about to run for the n-th time."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.task = trio.lowlevel.current_task()
        self.scope = scope
        self.left = step

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self.task:
            self.left -= 1
            if self.left == 0:
                self.scope.cancel()


async def _is_completed_despite(cancel_at: int, scenario: Callable[[], Awaitable[None]]) -> bool:
    done = False
    with trio.CancelScope() as scope:
        instrument = _CancelAtStep(scope, cancel_at)
        trio.lowlevel.add_instrument(instrument)
        try:
            await scenario()
            done = True
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return done


async def _large_and_streamed(transport: Transport) -> None:
    """Everything that can be waited for: a connection, room to send, a head, a body."""
    await whole(transport.request("POST", "/x", body=b"x" * 3_000_000))
    async with transport.request("POST", "/x", body=b"{}") as answer:
        while await answer.receive():
            pass


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
async def test_cancelling_at_any_step_leaves_the_pool_exact(
    secure: bool, certificates: Certificates
) -> None:
    tls = certificates.server_context() if secure else None
    limits = TransportLimits(ca_file=certificates.ca_file)
    async with serving(streaming([b"a", b"b", b"c"]), limits, tls=tls) as (server, transport):
        for step in range(1, 1000):
            done = await _is_completed_despite(step, partial(_large_and_streamed, transport))
            statistics = transport.statistics()
            assert (statistics.leased, statistics.connecting) == (0, 0)
            assert statistics.idle <= 1
            assert await whole(transport.request("POST", "/after")) == b"abc"
            if done:
                break
        else:
            pytest.fail("the scenario never came to its end")

        assert step > 5
        await server.client_left(server.count("accepted") - 1)
        assert transport.statistics().open == 1


@pytest.mark.parametrize("used", [False, True], ids=["new connection", "used connection"])
async def test_cancelling_before_the_first_step_sends_nothing(used: bool) -> None:
    async with serving(answering()) as (server, transport):
        if used:
            await whole(transport.request("POST", "/x"))
        with trio.CancelScope() as scope:
            scope.cancel()
            await whole(transport.request("POST", "/x"))

        assert transport.statistics().open == 0
        await whole(transport.request("POST", "/after"))
        assert server.count("head") == 2 if used else 1
