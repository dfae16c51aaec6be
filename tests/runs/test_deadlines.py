"""Silence of a provider, in virtual time."""

import pytest
import trio
import trio.testing

from edge.errors import ProviderTimeout
from edge.runs.deadlines import AttemptDeadline, AttemptTimeouts

TIMEOUTS = AttemptTimeouts(first_token_s=120.0, idle_s=16.0)


async def test_a_first_token_that_does_not_come_ends_the_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()

    with pytest.raises(ProviderTimeout) as timeout, AttemptDeadline(TIMEOUTS, provider="gpu1"):
        await trio.sleep_forever()

    assert trio.current_time() - began == pytest.approx(120)
    assert timeout.value.code == "first_token_timeout"
    assert timeout.value.provider == "gpu1"


async def feed_then_fall_silent(deadline: AttemptDeadline, every_s: float, times: int) -> None:
    for _ in range(times):
        await trio.sleep(every_s)
        deadline.progress()
    await trio.sleep_forever()


async def test_silence_after_the_first_token_ends_the_attempt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()

    with pytest.raises(ProviderTimeout) as timeout, AttemptDeadline(TIMEOUTS) as deadline:
        await feed_then_fall_silent(deadline, 100, 1)

    assert 116 <= trio.current_time() - began <= 117
    assert timeout.value.code == "idle_timeout"


@pytest.mark.parametrize("every_s", [0.001, 0.3, 0.99, 1.0, 1.01, 7.0, 15.9])
async def test_the_idle_deadline_is_never_early_and_hardly_late(
    every_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    began = trio.current_time()

    with pytest.raises(ProviderTimeout), AttemptDeadline(TIMEOUTS) as deadline:
        await feed_then_fall_silent(deadline, every_s, 50)

    assert 16 <= trio.current_time() - began - 50 * every_s <= 17


async def test_an_attempt_that_ends_in_time_is_left_alone(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with AttemptDeadline(TIMEOUTS) as deadline:
        await trio.sleep(119)

    assert not deadline.expired


async def test_a_failure_of_the_attempt_passes() -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(ZeroDivisionError), AttemptDeadline(TIMEOUTS):
        raise ZeroDivisionError


async def test_a_cancellation_from_outside_is_no_timeout(
    autojump_clock: trio.testing.MockClock,
) -> None:
    with trio.move_on_after(5) as outside:
        with AttemptDeadline(TIMEOUTS) as deadline:
            await trio.sleep_forever()

    assert outside.cancelled_caught
    assert not deadline.expired
