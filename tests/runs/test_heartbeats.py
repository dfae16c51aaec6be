"""Clients that wait are kept alive, each in its own time, by one task for all."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from edge.runs.heartbeats import Heartbeats


class Heart:
    """An answer that notes when it was asked to beat.

    Args:
        beats_slowly: seconds that a beat takes.
        left: is called at a beat, since its client has left.
        writes: whether a beat is a write, as it is unless one is under way.
    """

    def __init__(
        self,
        *,
        beats_slowly: float = 0,
        left: Callable[[], None] | None = None,
        writes: bool = True,
    ) -> None:
        self.last_write = trio.current_time()
        self.beats: list[float] = []
        self.was_cut = False
        self._slow = beats_slowly
        self._left = left
        self._writes = writes

    async def beat(self) -> None:
        self.beats.append(trio.current_time())
        try:
            await trio.sleep(self._slow)
        except trio.Cancelled:
            self.was_cut = True
            raise
        if self._left is not None:
            self._left()
        elif self._writes:
            self.last_write = trio.current_time()


@asynccontextmanager
async def beating() -> AsyncIterator[Heartbeats]:
    heartbeats = Heartbeats()
    async with trio.open_nursery() as nursery:
        await nursery.start(heartbeats.run)
        start = trio.current_time()
        assert start == 0, "times below are counted from here"
        yield heartbeats
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("writes", [True, False])
async def test_a_silent_answer_beats_at_every_interval(
    autojump_clock: trio.testing.MockClock, *, writes: bool
) -> None:
    async with beating() as heartbeats:
        heart = Heart(writes=writes)
        with heartbeats.keep(heart, 10):
            await trio.sleep(35)

    assert heart.beats == [10, 20, 30]


async def test_an_answer_that_is_written_beats_an_interval_after_its_last_write(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with beating() as heartbeats:
        heart = Heart()
        with heartbeats.keep(heart, 10):
            for _ in range(5):
                await trio.sleep(4)
                heart.last_write = trio.current_time()
            await trio.sleep(25)

    assert heart.beats == [30, 40]


async def test_each_beats_in_its_own_time(autojump_clock: trio.testing.MockClock) -> None:
    async with beating() as heartbeats:
        slow, quick, late = Heart(), Heart(), Heart()
        with heartbeats.keep(slow, 10), heartbeats.keep(quick, 4):
            await trio.sleep(5)
            late.last_write = trio.current_time()
            with heartbeats.keep(late, 2):
                await trio.sleep(4.5)
            await trio.sleep(3.5)

    assert (slow.beats, quick.beats, late.beats) == ([10], [4, 8, 12], [7, 9])


async def test_an_answer_that_has_ended_is_left_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with beating() as heartbeats:
        heart = Heart()
        with heartbeats.keep(heart, 10):
            await trio.sleep(5)
        await trio.sleep(50)

    assert heart.beats == []


async def test_a_beat_that_waits_for_its_client_keeps_nobody_waiting_and_ends_with_the_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with beating() as heartbeats:
        stuck, other = Heart(beats_slowly=1000), Heart()
        with heartbeats.keep(other, 10):
            with heartbeats.keep(stuck, 10):
                await trio.sleep(35)
            await trio.testing.wait_all_tasks_blocked()
            assert stuck.was_cut

    assert (stuck.beats, other.beats) == ([10], [10, 20, 30])


async def test_a_run_that_ends_because_of_a_beat_gets_no_other(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with beating() as heartbeats:
        run = trio.CancelScope()
        heart = Heart(left=run.cancel)
        with run, heartbeats.keep(heart, 10):
            await trio.sleep_forever()
        assert trio.current_time() == 10
        await trio.sleep(50)

    assert heart.beats == [10]


async def test_what_is_kept_of_answers_that_have_ended_has_a_bound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with beating() as heartbeats:
        living = [Heart() for _ in range(5)]
        lives = ExitStack()
        for heart in living:
            lives.enter_context(heartbeats.keep(heart, 10))
        most = 0
        for _ in range(1000):
            with heartbeats.keep(Heart(), 10):
                most = max(most, heartbeats.entries)
        await trio.sleep(15)
        assert heartbeats.entries == len(living)
        lives.close()

    assert most < 150
    assert [heart.beats for heart in living] == [[10]] * 5
