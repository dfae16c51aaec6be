"""Waiting for slots, in virtual time."""

import random
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
import trio.testing

from edge.core.attempt import AttemptOutcome, outcome_of_error
from edge.core.breaker import BreakerLimits
from edge.core.fleet import ProviderSpec, Route, RoutePolicy, Target
from edge.core.pool import Pool, PoolLimits
from edge.errors import NoPath, Overloaded, ProviderRefused, ProviderUnreachable
from edge.providers.port import (
    ByteStream,
    ChunkStream,
    Provider,
    ProviderRequest,
    TunnelRequest,
)
from edge.runs.dispatch import Dispatcher, Lease

DOWN = outcome_of_error(ProviderUnreachable("x"), attempt=1)
FINE = AttemptOutcome(attempt=1, status="success")


class NamedProvider:
    """A provider that is only ever asked for its name."""

    can_tunnel = True

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, request: ProviderRequest) -> AbstractAsyncContextManager[ChunkStream]:
        raise NotImplementedError

    def open_tunnel(self, request: TunnelRequest) -> AbstractAsyncContextManager[ByteStream]:
        raise NotImplementedError

    async def list_models(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    async def aclose(self) -> None:
        raise NotImplementedError


def dispatcher_of(
    slots: Mapping[str, int],
    *,
    policy: RoutePolicy = "ordered",
    failures: int = 1,
    patience_s: float = 1.5,
    rng: random.Random | None = None,
) -> Dispatcher:
    """One route ``m`` over providers with these slots, in order."""
    providers: dict[str, Provider] = {name: NamedProvider(name) for name in slots}
    pool = Pool(
        [ProviderSpec(name=name, max_concurrent=count) for name, count in slots.items()],
        [Route(model="m", targets=tuple(Target(provider=name) for name in slots), policy=policy)],
        PoolLimits(
            patience_s=patience_s,
            breaker=BreakerLimits(failures=failures, first_pause_s=1.0, longest_pause_s=60.0),
        ),
    )
    return Dispatcher(pool, providers, rng=rng)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a test that repeats itself


async def test_a_lease_names_whom_to_ask() -> None:
    providers: dict[str, Provider] = {"a": NamedProvider("a")}
    pool = Pool(
        [ProviderSpec(name="a")],
        [Route(model="m", targets=(Target(provider="a", model="x"),))],
    )
    dispatcher = Dispatcher(pool, providers)

    lease = await dispatcher.lease("m")

    assert lease.provider is providers["a"]
    assert (lease.provider_name, lease.model, lease.target) == ("a", "x", "a/x")
    assert dispatcher.targets("m") == (Target(provider="a", model="x"),)
    assert dispatcher.route_for("m") == "m"
    assert dispatcher.can_serve("m")


async def test_releasing_twice_gives_back_once() -> None:
    dispatcher = dispatcher_of({"a": 1})
    lease = await dispatcher.lease("m")

    lease.release(FINE)
    lease.release(None)

    assert dispatcher.statistics().providers[0].busy == 0


async def test_weighted_draws_from_the_given_randomness() -> None:
    dispatcher = dispatcher_of({"a": 0, "b": 0}, policy="weighted", rng=seeded(1))
    same = seeded(1)

    drawn = [(await dispatcher.lease("m")).provider_name for _ in range(20)]

    assert drawn == ["a" if same.random() < 0.5 else "b" for _ in range(20)]


async def test_those_who_wait_are_served_in_order(autojump_clock: trio.testing.MockClock) -> None:
    dispatcher = dispatcher_of({"a": 1})
    first = await dispatcher.lease("m")
    served: list[int] = []

    async def wait(number: int) -> None:
        await trio.sleep(number)
        lease = await dispatcher.lease("m")
        served.append(number)
        lease.release(FINE)

    async with trio.open_nursery() as nursery:
        for number in (3, 1, 2):
            nursery.start_soon(wait, number)
        await trio.sleep(10)
        assert served == []
        assert dispatcher.statistics().waiting == 3
        first.release(FINE)

    assert served == [1, 2, 3]


async def test_whoever_is_cancelled_while_waiting_has_left_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dispatcher = dispatcher_of({"a": 1})
    await dispatcher.lease("m")

    with trio.move_on_after(5) as scope:
        await dispatcher.lease("m")

    assert scope.cancelled_caught
    assert dispatcher.statistics().waiting == 0


async def test_a_slot_granted_in_the_moment_of_cancellation_goes_on() -> None:
    dispatcher = dispatcher_of({"a": 1})
    held = await dispatcher.lease("m")
    leases: list[Lease] = []

    async def wait(scope: trio.CancelScope) -> None:
        with scope:
            leases.append(await dispatcher.lease("m"))

    leaving, staying = trio.CancelScope(), trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, leaving)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(wait, staying)
        await trio.testing.wait_all_tasks_blocked()
        leaving.cancel()
        held.release(FINE)

    assert len(leases) == 1
    assert dispatcher.statistics().providers[0].busy == 1


async def test_a_task_that_is_cancelled_takes_no_slot() -> None:
    dispatcher = dispatcher_of({"a": 1})

    with trio.CancelScope() as scope:
        scope.cancel()
        await dispatcher.lease("m")

    assert scope.cancelled_caught
    assert dispatcher.statistics().providers[0].busy == 0


async def test_a_short_pause_is_waited_out_and_ends_with_one_probe(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dispatcher = dispatcher_of({"a": 5})
    (await dispatcher.lease("m")).release(DOWN)
    began = trio.current_time()
    served_at: list[float] = []

    async def attempt() -> None:
        lease = await dispatcher.lease("m")
        served_at.append(trio.current_time() - began)
        await trio.sleep(10)
        lease.release(FINE)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(attempt)

    assert served_at == [1.0, 11.0, 11.0]


async def test_growing_pauses_end_in_a_refusal_that_says_when(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dispatcher = dispatcher_of({"a": 5})
    (await dispatcher.lease("m")).release(DOWN)
    (await dispatcher.lease("m")).release(DOWN)  # the probe, after a second: two more to wait

    with pytest.raises(Overloaded) as refusal:
        await dispatcher.lease("m")

    assert refusal.value.retry_after_s == 2
    assert not dispatcher.can_serve("m")
    await trio.sleep(2)
    (await dispatcher.lease("m")).release(FINE)
    assert dispatcher.statistics().providers[0].health == "closed"


async def test_those_who_wait_are_refused_when_the_provider_asks_for_a_long_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dispatcher = dispatcher_of({"a": 1})
    held = await dispatcher.lease("m")
    refusals: list[Overloaded] = []

    async def wait() -> None:
        try:
            await dispatcher.lease("m")
        except Overloaded as refusal:
            refusals.append(refusal)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.sleep(1)
        busy = ProviderRefused("x", upstream_status=429, retry_after_s=20)
        held.release(outcome_of_error(busy, attempt=1))

    assert [refusal.retry_after_s for refusal in refusals] == [20, 20]
    assert dispatcher.statistics().waiting == 0


async def test_no_path_is_refused_without_a_time() -> None:
    pool = Pool(
        [ProviderSpec(name="a", normalized=False)],
        [Route(model="m", targets=(Target(provider="a"),))],
    )
    dispatcher = Dispatcher(pool, {"a": NamedProvider("a")})

    with pytest.raises(NoPath) as refusal:
        await dispatcher.lease("m")

    assert (refusal.value.status, refusal.value.code) == (404, "no_path")


async def test_saturation_is_as_many_waiting_as_there_are_slots() -> None:
    dispatcher = dispatcher_of({"a": 2})
    async with trio.open_nursery() as nursery:
        for count in range(1, 5):
            nursery.start_soon(dispatcher.lease, "m")
            await trio.testing.wait_all_tasks_blocked()
            assert dispatcher.saturated("m") == (count == 4)
        nursery.cancel_scope.cancel()

    assert not dispatcher.saturated("m")


async def test_a_storm_of_cancellations_leaves_the_pool_exact(
    autojump_clock: trio.testing.MockClock,
) -> None:
    dispatcher = dispatcher_of({"a": 3, "b": 2}, policy="least_busy", failures=3)
    rng = seeded(11)

    async def client() -> None:
        await trio.sleep(rng.random())
        with trio.move_on_after(rng.random()):
            for _ in range(3):
                try:
                    lease = await dispatcher.lease("m")
                except Overloaded:
                    continue
                outcome: AttemptOutcome | None = None
                try:
                    await trio.sleep(rng.random() / 10)
                    outcome = rng.choice([FINE, FINE, DOWN])
                finally:
                    lease.release(outcome)

    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(client)

    statistics = dispatcher.statistics()
    assert statistics.waiting == 0
    assert [(each.busy, each.waiting) for each in statistics.providers] == [(0, 0), (0, 0)]
