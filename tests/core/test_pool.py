"""Slots, queues and refusals."""

import pytest

from edge.core.attempt import AttemptOutcome, outcome_of_error
from edge.core.breaker import BreakerLimits
from edge.core.fleet import ProviderSpec, Route, RoutePolicy, Target
from edge.core.pool import Pool, PoolLimits
from edge.core.pool_member import NEVER, NoneLeft, Slot, Wait
from edge.core.verdict import Reason
from edge.errors import ProviderRefused, ProviderUnreachable

DOWN = outcome_of_error(ProviderUnreachable("x"), attempt=1)
FINE = AttemptOutcome(attempt=1, status="success")
QUICK = PoolLimits(
    patience_s=1.5, breaker=BreakerLimits(failures=1, first_pause_s=1.0, longest_pause_s=60)
)


def pool_of(
    *providers: ProviderSpec,
    policy: RoutePolicy = "ordered",
    targets: tuple[Target, ...] = (),
    limits: PoolLimits | None = None,
) -> Pool:
    """One route ``m`` over all providers, in order."""
    targets = targets or tuple(Target(provider=spec.name) for spec in providers)
    return Pool(providers, [Route(model="m", targets=targets, policy=policy)], limits)


def spec(
    name: str, slots: int = 0, *, normalized: bool = True, tunnel: bool = True
) -> ProviderSpec:
    return ProviderSpec(name=name, max_concurrent=slots, normalized=normalized, tunnel=tunnel)


def taken(answer: object) -> Slot:
    assert isinstance(answer, Slot)
    return answer


def waiting(answer: object) -> Wait:
    assert isinstance(answer, Wait)
    return answer


def none_left(answer: object) -> NoneLeft:
    assert isinstance(answer, NoneLeft)
    return answer


def paused(retry_after_s: float) -> AttemptOutcome:
    error = ProviderRefused("x", upstream_status=429, retry_after_s=retry_after_s)
    return outcome_of_error(error, attempt=1)


class TestRoutes:
    def test_a_route_is_found_by_its_name_or_takes_every_model(self) -> None:
        target = (Target(provider="a"),)
        named = Route(model="coder", targets=target)

        assert Pool([spec("a")], [named]).route_for("coder") == "coder"
        assert Pool([spec("a")], [named]).route_for("other") is None
        everything = Pool([spec("a")], [named, Route(model="*", targets=target)])
        assert everything.route_for("other") == "*"
        assert everything.targets("*") == target


class TestTaking:
    def test_ordered_spills_over_when_the_first_is_full(self) -> None:
        pool = pool_of(spec("a", 1), spec("b", 1))

        assert taken(pool.take("m", 0)).target.provider == "a"
        assert taken(pool.take("m", 0)).target.provider == "b"
        assert isinstance(pool.take("m", 0), Wait)

    def test_a_provider_without_a_cap_always_has_room(self) -> None:
        pool = pool_of(spec("a"))

        for _ in range(1000):
            taken(pool.take("m", 0))

    def test_an_avoided_target_is_used_when_no_other_is_up(self) -> None:
        pool = pool_of(spec("a", 2), spec("b", 2), limits=QUICK)
        avoid = frozenset({"a"})

        slot = taken(pool.take("m", 0, avoid=avoid))
        assert slot.target.provider == "b"
        pool.give_back(slot, DOWN, 0)
        assert taken(pool.take("m", 0, avoid=avoid)).target.provider == "a"

    def test_an_avoided_target_is_not_used_because_the_other_is_full(self) -> None:
        pool = pool_of(spec("a", 1), spec("b", 1))
        taken(pool.take("m", 0, avoid=frozenset({"a"})))

        assert isinstance(pool.take("m", 0, avoid=frozenset({"a"})), Wait)

    def test_one_model_of_a_provider_can_be_avoided(self) -> None:
        targets = (Target(provider="a", model="x"), Target(provider="a", model="y"))
        pool = pool_of(spec("a"), targets=targets)

        assert taken(pool.take("m", 0, avoid=frozenset({"a/x"}))).target.model == "y"
        assert taken(pool.take("m", 0, avoid=frozenset({"a"}))).target.model == "x"

    def test_a_target_of_weight_0_stands_in_for_those_that_are_down(self) -> None:
        targets = (Target(provider="a", weight=0), Target(provider="b"))
        pool = pool_of(spec("a"), spec("b"), targets=targets, limits=QUICK)

        slot = taken(pool.take("m", 0))
        assert slot.target.provider == "b"
        pool.give_back(slot, DOWN, 0)
        assert taken(pool.take("m", 0)).target.provider == "a"

    def test_only_a_provider_with_the_needed_path_is_taken(self) -> None:
        pool = pool_of(spec("raw", normalized=False), spec("own", tunnel=False))

        assert taken(pool.take("m", 0)).target.provider == "own"
        tunnelled = pool.take("m", 0, need_normalized=False, need_tunnel=True)
        assert taken(tunnelled).target.provider == "raw"

    def test_where_no_provider_has_the_path_time_will_not_help(self) -> None:
        pool = pool_of(spec("raw", normalized=False))

        assert none_left(pool.take("m", 0)).retry_after_s is None

    def test_a_slot_is_given_back_once(self) -> None:
        pool = pool_of(spec("a", 1))
        slot = taken(pool.take("m", 0))
        pool.give_back(slot, FINE, 0)

        with pytest.raises(RuntimeError):
            pool.give_back(slot, FINE, 0)
        assert pool.statistics(0).providers[0].busy == 0


class TestWaiting:
    def test_a_slot_that_comes_back_goes_to_the_head_of_the_queue(self) -> None:
        pool = pool_of(spec("a", 1))
        slot = taken(pool.take("m", 0))
        first, second = waiting(pool.take("m", 0)), waiting(pool.take("m", 0))

        pool.give_back(slot, FINE, 1)

        assert pool.woken() == [first]
        assert first.slot is not None
        assert not second.is_settled
        assert pool.woken() == []

    def test_nobody_slips_in_before_the_queue(self) -> None:
        pool = pool_of(spec("a", 1))
        slot = taken(pool.take("m", 0))
        waiting(pool.take("m", 0))
        pool.give_back(slot, FINE, 1)

        assert isinstance(pool.take("m", 1), Wait)

    def test_whoever_frees_first_serves(self) -> None:
        pool = pool_of(spec("a", 1), spec("b", 1))
        taken(pool.take("m", 0))
        on_b = taken(pool.take("m", 0))
        wait = waiting(pool.take("m", 0))

        pool.give_back(on_b, FINE, 1)

        assert wait.slot is not None
        assert wait.slot.target.provider == "b"
        assert [each.waiting for each in pool.statistics(1).providers] == [0, 0]

    def test_leaving_takes_one_out_of_every_queue(self) -> None:
        pool = pool_of(spec("a", 1), spec("b", 1))
        slots = [taken(pool.take("m", 0)) for _ in range(2)]
        gone, next_one = waiting(pool.take("m", 0)), waiting(pool.take("m", 0))

        pool.leave(gone, 1)

        assert pool.statistics(1).waiting == 1
        assert [each.waiting for each in pool.statistics(1).providers] == [1, 1]
        pool.give_back(slots[0], FINE, 1)
        assert next_one.slot is not None

    def test_a_slot_granted_to_one_who_has_left_goes_on(self) -> None:
        pool = pool_of(spec("a", 1))
        slot = taken(pool.take("m", 0))
        gone, next_one = waiting(pool.take("m", 0)), waiting(pool.take("m", 0))
        pool.give_back(slot, FINE, 1)

        pool.leave(gone, 1)

        assert next_one.slot is not None
        assert pool.statistics(1).providers[0].busy == 1

    def test_routes_share_a_providers_queue_in_the_order_of_coming(self) -> None:
        target = (Target(provider="a"),)
        pool = Pool(
            [spec("a", 1)], [Route(model="m", targets=target), Route(model="n", targets=target)]
        )
        slot = taken(pool.take("m", 0))
        on_n, on_m = waiting(pool.take("n", 0)), waiting(pool.take("m", 0))

        pool.give_back(slot, FINE, 1)

        assert on_n.slot is not None
        assert not on_m.is_settled


class TestPauses:
    def test_a_short_pause_is_waited_out(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        pool.give_back(taken(pool.take("m", 0)), DOWN, 0)

        wait = waiting(pool.take("m", 0.5))
        assert wait.until == 1.0
        pool.poll(wait, 1.0)

        assert wait.slot is not None
        assert wait.slot.probe

    def test_a_long_pause_is_refused_with_its_length(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        pool.give_back(taken(pool.take("m", 0)), paused(20.0), 0)

        refusal = none_left(pool.take("m", 5.0))

        assert refusal.retry_after_s == 15.0
        assert "'m'" in refusal.why
        assert "a" in refusal.why

    def test_those_who_wait_are_refused_when_it_comes_to_that(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        slot = taken(pool.take("m", 0))
        waits = [waiting(pool.take("m", 0)) for _ in range(3)]

        pool.give_back(slot, paused(20.0), 0)

        assert pool.woken() == waits
        assert all(wait.refused is not None for wait in waits)
        assert pool.statistics(0).waiting == 0

    def test_those_who_wait_are_told_when_to_look_again(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        slot = taken(pool.take("m", 0))
        wait = waiting(pool.take("m", 0))
        assert wait.until == NEVER

        pool.give_back(slot, DOWN, 0)

        assert pool.woken() == [wait]
        assert wait.until == 1.0
        assert not wait.is_settled

    def test_those_who_avoid_a_target_turn_to_it_when_the_other_goes_down(self) -> None:
        pool = pool_of(spec("a", 1), spec("b", 1), limits=QUICK)
        slot = taken(pool.take("m", 0, avoid=frozenset({"a"})))
        wait = waiting(pool.take("m", 0, avoid=frozenset({"a"})))

        pool.give_back(slot, DOWN, 0)

        assert wait.slot is not None
        assert wait.slot.target.provider == "a"

    def test_a_pause_that_ends_serves_the_queue_before_a_newcomer(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        pool.give_back(taken(pool.take("m", 0)), DOWN, 0)
        first = waiting(pool.take("m", 0.5))

        newcomer = pool.take("m", 1.0)

        assert first.slot is not None
        assert isinstance(newcomer, Wait)

    def test_all_wait_for_the_probe_and_go_when_it_succeeds(self) -> None:
        pool = pool_of(spec("a", 3), limits=QUICK)
        pool.give_back(taken(pool.take("m", 0)), DOWN, 0)
        probe = taken(pool.take("m", 1.0))
        waits = [waiting(pool.take("m", 1.0)) for _ in range(4)]

        pool.give_back(probe, FINE, 2.0)

        assert pool.woken() == waits[:3]
        assert not any(wait.slot.probe for wait in waits[:3] if wait.slot is not None)

    def test_a_route_can_be_served_while_a_provider_is_up(self) -> None:
        pool = pool_of(spec("a"), spec("b"), limits=QUICK)
        for _ in range(2):
            assert pool.can_serve("m", 0)
            pool.give_back(taken(pool.take("m", 0)), DOWN, 0)

        assert not pool.can_serve("m", 0)
        assert pool.can_serve("m", 1.0)


class TestSaturation:
    def test_it_begins_when_as_many_wait_as_there_are_slots(self) -> None:
        pool = pool_of(spec("a", 2))
        for _ in range(3):
            pool.take("m", 0)
        assert not pool.is_saturated("m", 0)

        pool.take("m", 0)
        assert pool.is_saturated("m", 0)

    def test_a_provider_with_room_ends_it(self) -> None:
        pool = pool_of(spec("a", 1), spec("b"))
        taken(pool.take("m", 0))
        waiting(pool.take("m", 0, avoid=frozenset({"b"})))

        assert not pool.is_saturated("m", 0)

    def test_providers_that_are_down_do_not_matter(self) -> None:
        pool = pool_of(spec("a", 1), limits=QUICK)
        pool.give_back(taken(pool.take("m", 0)), paused(9.0), 0)

        assert not pool.is_saturated("m", 0)


def test_statistics_show_slots_health_and_validity() -> None:
    pool = pool_of(spec("a", 2), targets=(Target(provider="a", model="x"),), limits=QUICK)
    bad_call = AttemptOutcome(
        attempt=1, status="validation_failed", reasons=(Reason("schema", "x"),), made_calls=True
    )
    pool.give_back(taken(pool.take("m", 0)), bad_call, 0)
    pool.give_back(taken(pool.take("m", 0)), DOWN, 0)

    statistics = pool.statistics(0.25)

    (provider,), (target,) = statistics.providers, statistics.targets
    assert (provider.name, provider.max_concurrent, provider.busy) == ("a", 2, 0)
    assert (provider.health, provider.failures, provider.resumes_in_s) == ("open", 1, 0.75)
    assert (target.name, target.provider, target.model, target.judged) == ("a/x", "a", "x", 1)
    assert target.call_validity == pytest.approx(0.9, abs=1e-3)
    assert target.penalty == pytest.approx(1 / 0.9**2, abs=1e-2)
