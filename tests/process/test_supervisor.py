"""When a worker is taken for hung."""

import trio
import trio.testing

from edge.process.channel import Channel
from edge.process.supervisor import READING_S, Worker


class KnownProcess:
    """Stands where a process stands; tells when it was killed."""

    pid = 4711

    def __init__(self) -> None:
        self.killed_at: float | None = None

    def kill(self) -> None:
        self.killed_at = trio.current_time()


async def test_a_worker_is_killed_for_its_silence_and_not_for_its_age(
    autojump_clock: trio.testing.MockClock,
) -> None:
    process = KnownProcess()
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        worker = Worker(1, process, Channel(trio.SocketStream(ours)))  # type: ignore[arg-type]
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.kill_if_hung, 10)
            for _ in range(100):
                await trio.sleep(9)
                worker.note_life()
            assert process.killed_at is None

    assert process.killed_at == began + 900 + 10 + READING_S


async def test_a_sign_that_was_only_read_late_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The supervisor had been stopped: its clock went on, and what was said waited for it."""
    process = KnownProcess()
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        worker = Worker(1, process, Channel(trio.SocketStream(ours)))  # type: ignore[arg-type]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.kill_if_hung, 10)
            await trio.sleep(10 + READING_S / 2)
            worker.note_life()
            await trio.sleep(5)
            assert process.killed_at is None
            nursery.cancel_scope.cancel()
