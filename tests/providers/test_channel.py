"""The socket channel by itself: what is sent, left over, read, looked at and closed."""

import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing

from edge.providers.channel import SocketChannel
from edge.providers.reading import READ_SIZE

Pair = tuple[SocketChannel, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """A channel and the socket at its other end."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield SocketChannel(ours), theirs


def _drain(sock: socket.socket) -> bytes:
    sock.setblocking(False)
    data = b""
    try:
        while piece := sock.recv(1_000_000):
            data += piece
    except BlockingIOError:
        pass
    return data


@pytest.mark.parametrize("head_size", [4, 5_000_000])
@pytest.mark.parametrize("body_size", [0, 10, 65536, 65537, 5_000_000])
async def test_what_is_not_sent_at_once_is_exactly_what_is_left(
    pair: Pair, head_size: int, body_size: int
) -> None:
    channel, theirs = pair
    data = bytes(range(251)) * ((head_size + body_size) // 251 + 1)
    head, body = data[:head_size], data[head_size : head_size + body_size]
    unsent = await channel.send(head, body)

    assert _drain(theirs) + b"".join(bytes(piece) for piece in unsent) == head + body
    assert bool(unsent) == (head_size + body_size > 1_000_000)


async def test_a_full_socket_takes_nothing_and_loses_nothing(pair: Pair) -> None:
    channel, _ = pair
    await channel.send(b"", b"x" * 5_000_000)

    assert await channel.send(b"head", b"body") == [b"headbody"]
    assert await channel.send(b"head", b"y" * 100_000) == [b"head", b"y" * 100_000]


@pytest.mark.parametrize("before", [True, False])
async def test_an_abandoned_wait_returns_and_reading_goes_on(pair: Pair, before: bool) -> None:
    channel, theirs = pair
    await channel.send(b"", b"x" * 5_000_000)
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            if before:
                channel.abandon_sending()
            nursery.start_soon(channel.send_all, b"more")
            if not before:
                await trio.testing.wait_all_tasks_blocked()
                channel.abandon_sending()
        theirs.send(b"answer")

        assert await channel.receive_some() == b"answer"


async def test_a_read_brings_all_that_is_there_up_to_a_bound(pair: Pair) -> None:
    channel, theirs = pair
    for _ in range(3):
        theirs.send(b"ab")
    assert await channel.receive_some() == b"ababab"

    theirs.send(b"x" * (READ_SIZE + 1))
    assert len(await channel.receive_some()) == READ_SIZE
    assert len(await channel.receive_some()) == 1

    theirs.shutdown(socket.SHUT_WR)
    assert await channel.receive_some() == b""


async def test_a_cancelled_read_loses_nothing(pair: Pair) -> None:
    channel, theirs = pair
    with trio.move_on_after(0):
        await channel.receive_some()
    theirs.send(b"data")

    assert await channel.receive_some() == b"data"


async def test_a_look_tells_whether_anything_has_come_and_takes_nothing(pair: Pair) -> None:
    channel, theirs = pair
    assert channel.is_quiet()

    theirs.send(b"x")
    assert not channel.is_quiet()
    assert await channel.receive_some() == b"x"
    assert channel.is_quiet()

    theirs.shutdown(socket.SHUT_WR)
    assert not channel.is_quiet()


async def test_closing_reaches_the_peer_at_once_and_may_be_repeated(pair: Pair) -> None:
    channel, theirs = pair
    channel.close()
    assert theirs.recv(1) == b""

    channel.close()
    assert not channel.is_quiet()


async def test_a_peer_that_is_gone_is_a_broken_resource(pair: Pair) -> None:
    channel, theirs = pair
    theirs.close()

    for body in (b"", b"x" * 100_000):
        with pytest.raises(trio.BrokenResourceError):
            await channel.send(b"head", body)
    with pytest.raises(trio.BrokenResourceError):
        await channel.send_all(b"x")
