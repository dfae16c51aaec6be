"""A pool that takes the place of another: what it keeps, and what runs of the old one still get."""

from edge.core.attempt import AttemptOutcome, outcome_of_error
from edge.core.breaker import BreakerLimits
from edge.core.fleet import ProviderSpec, Route, Target
from edge.core.pool import Pool, PoolLimits
from edge.core.pool_member import NoneLeft, Slot, Wait
from edge.errors import ProviderUnreachable

DOWN = outcome_of_error(ProviderUnreachable("x"), attempt=1)
LIMITS = PoolLimits(patience_s=0, breaker=BreakerLimits(failures=1))
ONE_SLOT = ProviderSpec(name="a", max_concurrent=1)


def route(model: str, *providers: str) -> Route:
    return Route(model=model, targets=tuple(Target(provider=name) for name in providers))


def before() -> Pool:
    return Pool([ONE_SLOT], [route("m", "a")], LIMITS)


def after(old: Pool, *, model: str = "m") -> Pool:
    return Pool([ONE_SLOT], [route(model, "a")], LIMITS, before=old, kept={"a"})


def slot(answer: object) -> Slot:
    assert isinstance(answer, Slot)
    return answer


def wait(answer: object) -> Wait:
    assert isinstance(answer, Wait)
    return answer


def test_a_slot_of_the_old_pool_is_taken_in_the_new_one() -> None:
    old = before()
    held = slot(old.take("m", 0))
    new = after(old)

    waiting = wait(new.take("m", 0))
    old.give_back(held, None, 1)

    assert new.woken() == [waiting]
    assert slot(waiting.slot).target.provider == "a"
    assert new.statistics(1).waiting == 0


def test_who_waited_at_the_old_pool_is_served_first_though_its_route_is_gone() -> None:
    old = before()
    held = slot(old.take("m", 0))
    earlier = wait(old.take("m", 0))
    new = after(old, model="other")
    later = wait(new.take("other", 0))
    assert new.statistics(0).waiting == 2

    new.give_back(held, None, 1)

    assert new.woken() == [earlier]
    assert later.slot is None
    assert slot(earlier.slot).target.provider == "a"


def test_who_waits_at_the_old_pool_hears_that_the_provider_went_down() -> None:
    old = before()
    held = slot(old.take("m", 0))
    waiting = wait(old.take("m", 0))
    new = after(old, model="other")

    new.give_back(held, DOWN, 1)

    assert new.woken() == [waiting]
    assert isinstance(waiting.refused, NoneLeft)
    assert "'m'" in waiting.refused.why


def test_health_and_records_are_kept() -> None:
    old = before()
    failed = AttemptOutcome(attempt=1, status="success", made_calls=True)
    old.give_back(slot(old.take("m", 0)), failed, 0)
    old.give_back(slot(old.take("m", 0)), DOWN, 0)
    new = after(old)

    assert isinstance(new.take("m", 0.5), NoneLeft)
    assert new.statistics(1).targets == old.statistics(1).targets


def test_a_provider_that_is_not_kept_begins_anew() -> None:
    old = before()
    slot(old.take("m", 0))
    new = Pool([ONE_SLOT], [route("m", "a")], LIMITS, before=old)

    assert slot(new.take("m", 0)).target.provider == "a"
    assert old.statistics(0).providers[0].busy == 1


def test_whether_a_provider_is_replaceable_is_told_by_the_new_routes() -> None:
    old = before()
    both = [ONE_SLOT, ProviderSpec(name="b")]
    new = Pool(both, [route("m", "a", "b")], LIMITS, before=old, kept={"a"})
    refused = AttemptOutcome(attempt=1, status="upstream_error", category="http_5xx")

    new.give_back(slot(new.take("m", 0, avoid=frozenset({"b"}))), refused, 0)

    assert new.statistics(0).providers[0].health == "open"
