"""Waiting for admission, in virtual time."""

import pytest
import trio
import trio.testing

from edge.core.admission import AdmissionLimits
from edge.errors import Overloaded, RateLimited
from edge.runs.admission import Admission


def gate(max_runs: int, *, queue: int = 10, queue_timeout_s: float = 30.0) -> Admission:
    return Admission(
        AdmissionLimits(max_runs=max_runs, queue=queue, queue_timeout_s=queue_timeout_s)
    )


async def hold(admission: Admission, seconds: float, key: str = "k", limit: int = 0) -> None:
    async with admission.admit(key, limit):
        await trio.sleep(seconds)


async def test_a_place_is_held_for_the_time_of_the_body() -> None:
    admission = gate(1)

    async with admission.admit("k"):
        assert admission.statistics().active == 1
    assert admission.statistics().active == 0


async def test_a_place_comes_back_when_the_body_fails() -> None:
    admission = gate(1)

    with pytest.raises(ZeroDivisionError):
        async with admission.admit("k"):
            raise ZeroDivisionError

    assert admission.statistics().active == 0


async def test_runs_beyond_the_limit_wait_their_turn(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admission = gate(2)
    began = trio.current_time()

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(hold, admission, 5)

    assert trio.current_time() - began == pytest.approx(15)


async def test_the_time_in_the_queue_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    admission = gate(1, queue_timeout_s=30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, admission, 1000)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()

        with pytest.raises(Overloaded) as refusal:
            async with admission.admit("k"):
                raise AssertionError("there was no place")

        assert trio.current_time() - began == pytest.approx(30)
        assert refusal.value.retry_after_s == 1
        assert admission.statistics().queued == 0
        nursery.cancel_scope.cancel()


async def test_a_key_whose_share_is_used_up_is_told_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admission = gate(10, queue=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, admission, 1000, "small", 1)
        await trio.testing.wait_all_tasks_blocked()

        with pytest.raises(RateLimited):
            await hold(admission, 0, "small", 1)
        await hold(admission, 0, "large")
        nursery.cancel_scope.cancel()


async def test_a_client_that_leaves_the_queue_is_gone_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admission = gate(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, admission, 1000)
        await trio.testing.wait_all_tasks_blocked()
        leaving = trio.CancelScope()
        nursery.start_soon(_cancel_when_queued, admission, leaving)
        with leaving:
            await hold(admission, 0)

        assert leaving.cancelled_caught
        assert admission.statistics().queued == 0
        assert admission.statistics().active == 1
        nursery.cancel_scope.cancel()
    assert admission.statistics().active == 0


async def _cancel_when_queued(admission: Admission, scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    assert admission.statistics().queued == 1
    scope.cancel()


async def test_a_place_granted_in_the_moment_of_leaving_goes_on() -> None:
    admission = gate(1)
    ran: list[str] = []

    async def client(name: str, scope: trio.CancelScope) -> None:
        with scope:
            async with admission.admit(name):
                ran.append(name)

    leaving = trio.CancelScope()
    async with trio.open_nursery() as nursery, admission.admit("first"):
        nursery.start_soon(client, "leaving", leaving)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(client, "staying", trio.CancelScope())
        await trio.testing.wait_all_tasks_blocked()
        leaving.cancel()

    assert ran == ["staying"]
    assert admission.statistics().active == 0


async def test_a_hogs_last_one_is_told_when_it_makes_room(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admission = gate(1, queue=2)
    told: list[RateLimited] = []

    async def hog() -> None:
        try:
            await hold(admission, 1, "hog")
        except RateLimited as error:
            told.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(hog)
        await trio.testing.wait_all_tasks_blocked()
        await hold(admission, 1, "late")

    assert len(told) == 1


async def test_draining_refuses_new_runs_and_lets_the_old_ones_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    admission = gate(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hold, admission, 5)
        nursery.start_soon(hold, admission, 5)
        await trio.testing.wait_all_tasks_blocked()

        admission.drain()

        assert admission.draining
        with pytest.raises(Overloaded) as refusal:
            await hold(admission, 0)
        assert refusal.value.status == 503
        assert refusal.value.retry_after_s == 1
    assert admission.statistics().active == 0
