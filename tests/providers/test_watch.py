"""The watch: many sockets read in one task, for tasks that sleep."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from edge.providers.reading import READ_SIZE
from edge.providers.watch import Watch

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """Ours and theirs, forty times."""
    with ExitStack() as stack:
        made = [socket.socketpair() for _ in range(40)]
        for pair in made:
            for end in pair:
                stack.enter_context(end).setblocking(False)
        yield made


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    """A watch that runs, under a deadline for the whole test."""
    watch = Watch()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            await nursery.start(watch.run)
            yield watch
            nursery.cancel_scope.cancel()


async def test_a_reader_sleeps_while_its_pieces_are_taken_and_wakes_when_it_has_enough(
    pairs: list[Pair],
) -> None:
    ours, theirs = pairs[0]
    taken: list[bytes] = []
    woken = trio.Event()

    def take(data: bytes) -> bool:
        taken.append(data)
        return data != b"enough"

    async with watching() as watch, trio.open_nursery() as nursery:

        async def read() -> None:
            await watch.each(ours, take)
            woken.set()

        nursery.start_soon(read)
        for piece in (b"a", b"b"):
            await trio.testing.wait_all_tasks_blocked()
            theirs.send(piece)
        while taken != [b"a", b"b"]:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert not woken.is_set()

        theirs.send(b"enough")

    assert woken.is_set()
    theirs.send(b"rest")
    assert ours.recv(10) == b"rest"


async def test_many_sockets_are_read_and_one_that_floods_does_not_starve_the_others(
    pairs: list[Pair],
) -> None:
    flooded, flood = pairs[0]
    done = trio.Event()
    seen: set[int] = set()
    floods = 0

    def take_flood(data: bytes) -> bool:
        nonlocal floods
        floods += 1
        try:
            while True:
                flood.send(bytes(READ_SIZE))
        except BlockingIOError:
            return not done.is_set()

    async def read(watch: Watch, number: int) -> None:
        def take(data: bytes) -> bool:
            seen.add(number)
            if len(seen) == len(pairs) - 1:
                done.set()
            return False

        await watch.each(pairs[number][0], take)

    async with watching() as watch, trio.open_nursery() as nursery:
        nursery.start_soon(watch.each, flooded, take_flood)
        for number in range(1, len(pairs)):
            nursery.start_soon(read, watch, number)
        await trio.testing.wait_all_tasks_blocked()
        flood.send(b"begin")
        for _, theirs in pairs[1:]:
            theirs.send(b"x")

    assert len(seen) == len(pairs) - 1
    assert floods > 1


async def test_what_taking_raises_is_raised_where_the_reader_sleeps(pairs: list[Pair]) -> None:
    ours, theirs = pairs[0]

    def take(data: bytes) -> bool:
        raise BlockingIOError(f"no room for {data!r}")

    async with watching() as watch:
        theirs.send(b"x")
        with pytest.raises(BlockingIOError, match="no room for b'x'"):
            await watch.each(ours, take)

        # The watch goes on.
        theirs.send(b"y")
        await watch.each(ours, lambda _: False)


async def test_the_end_wakes_the_reader_and_a_reset_is_raised() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for ending in ("end", "reset"):
            ours = socket.create_connection(server.getsockname())
            theirs, _ = server.accept()
            ours.setblocking(False)
            with ours, theirs:
                async with watching() as watch:
                    if ending == "reset":
                        ours.send(b"unread")
                        while not _is_readable(theirs):
                            await trio.lowlevel.checkpoint()
                    theirs.close()
                    if ending == "end":
                        await watch.each(ours, _never)
                        assert ours.recv(1) == b""
                    else:
                        with pytest.raises(trio.BrokenResourceError):
                            await watch.each(ours, _never)


async def test_a_cancelled_reader_is_gone_at_once_and_nothing_is_read_for_it(
    pairs: list[Pair],
) -> None:
    ours, theirs = pairs[0]
    async with watching() as watch:
        for _ in range(2):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watch.each, ours, _never)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
        theirs.send(b"later")
        await trio.testing.wait_all_tasks_blocked()

        assert ours.recv(10) == b"later"


async def test_who_is_cancelled_before_it_sleeps_does_not_sleep(pairs: list[Pair]) -> None:
    ours, theirs = pairs[0]
    theirs.send(b"x")
    async with watching() as watch:
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.each(ours, lambda _: False)

    assert scope.cancelled_caught
    assert ours.recv(10) == b"x"


async def test_without_a_running_watch_a_reader_reads_by_itself(pairs: list[Pair]) -> None:
    ours, _ = pairs[0]
    watch = Watch()
    with trio.fail_after(5):
        await watch.each(ours, _never)
        async with trio.open_nursery() as readers, trio.open_nursery() as nursery:
            await nursery.start(watch.run)
            readers.start_soon(watch.each, ours, _never)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await watch.each(ours, _never)


def _never(data: bytes) -> bool:
    raise AssertionError(f"nothing was sent, why {data!r}?")


def _is_readable(sock: socket.socket) -> bool:
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
