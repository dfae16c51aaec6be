"""The pool against a simple model, over any history of takes, ends, departures and pauses."""

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    precondition,
    rule,
)

from edge.core.attempt import AttemptOutcome, outcome_of_error
from edge.core.breaker import BreakerLimits
from edge.core.fleet import ProviderSpec, Route, Target
from edge.core.pool import Pool, PoolLimits
from edge.core.pool_member import NoneLeft, Slot, Wait
from edge.errors import ProviderRefused, ProviderUnreachable

SLOTS = {"a": 2, "b": 1, "c": 0, "d": 1}
ROUTES = {
    "ordered": ("a", "b"),
    "weighted": ("b", "d"),
    "least_busy": ("a", "d"),
    "single": ("b",),
    "roomy": ("c", "a"),
}
PAUSE = ProviderRefused("x", upstream_status=429, retry_after_s=3.0)
OUTCOMES: list[AttemptOutcome | None] = [
    None,
    AttemptOutcome(attempt=1, status="success"),
    AttemptOutcome(attempt=1, status="cancelled"),
    outcome_of_error(ProviderUnreachable("x"), attempt=1),
    outcome_of_error(ProviderRefused("x", upstream_status=400), attempt=1),
    outcome_of_error(PAUSE, attempt=1),
]


class PoolMachine(RuleBasedStateMachine):
    """Model: the slots that are out, and who waits, in order."""

    slots = Bundle("slots")

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(
            [ProviderSpec(name=name, max_concurrent=slots) for name, slots in SLOTS.items()],
            [
                Route(
                    model=name,
                    targets=tuple(Target(provider=provider) for provider in providers),
                    policy="weighted" if name == "weighted" else "least_busy",
                )
                for name, providers in ROUTES.items()
            ],
            PoolLimits(
                patience_s=2.0,
                breaker=BreakerLimits(failures=2, first_pause_s=1.0, longest_pause_s=8.0),
            ),
        )
        self.now = 0.0
        self.out: list[Slot] = []
        self.waits: list[Wait] = []

    def granted(self) -> list[Slot]:
        """Take note of whom the pool has woken, as a shell would."""
        slots = []
        for wait in self.pool.woken():
            if not wait.is_settled or wait not in self.waits:
                continue
            if wait.slot is not None:
                self.assert_its_turn(wait)
                self.out.append(wait.slot)
                slots.append(wait.slot)
            self.waits.remove(wait)
        return slots

    def assert_its_turn(self, wait: Wait) -> None:
        """Nobody with the same needs may still wait who came before."""
        place = self.waits.index(wait)
        for earlier in self.waits[:place]:
            alike = earlier.route is wait.route and earlier.avoid == wait.avoid
            assert not alike or earlier.is_settled

    @rule(
        target=slots,
        route=st.sampled_from(sorted(ROUTES)),
        avoid=st.frozensets(st.sampled_from(sorted(SLOTS)), max_size=2),
        pick=st.floats(0, 1, exclude_max=True),
        later=st.sampled_from([0.0, 0.0, 1.5]),
    )
    def take(self, route: str, avoid: frozenset[str], pick: float, later: float) -> object:
        self.now += later  # a pause may have ended, and nobody has looked yet
        answer = self.pool.take(route, self.now, avoid=avoid, pick=pick)
        slots = self.granted()
        if isinstance(answer, Slot):
            assert answer.target.provider in ROUTES[route]
            assert not any(
                wait.route.model == route and wait.avoid == avoid for wait in self.waits
            ), "it came later than these"
            self.out.append(answer)
            slots.append(answer)
        elif isinstance(answer, Wait):
            self.waits.append(answer)
        else:
            self.assert_all_paused(route, answer)
        return multiple(*slots, *self.look_again())

    @rule(target=slots, slot=consumes(slots), outcome=st.sampled_from(OUTCOMES))
    def give_back(self, slot: Slot, outcome: AttemptOutcome | None) -> object:
        self.pool.give_back(slot, outcome, self.now)
        self.out.remove(slot)
        return multiple(*self.granted())

    @precondition(lambda self: self.waits)
    @rule(target=slots, data=st.data())
    def leave(self, data: st.DataObject) -> object:
        wait = data.draw(st.sampled_from(self.waits))
        self.waits.remove(wait)
        self.pool.leave(wait, self.now)
        return multiple(*self.granted())

    @rule(target=slots, seconds=st.floats(0.1, 4))
    def time_passes(self, seconds: float) -> object:
        self.now += seconds
        return multiple(*self.look_again())

    def look_again(self) -> list[Slot]:
        """Poll for those whose time has come, as a shell would."""
        for wait in list(self.waits):
            if not wait.is_settled and wait.until <= self.now:
                self.pool.poll(wait, self.now)
        assert all(wait.is_settled or wait.until > self.now for wait in self.waits)
        return self.granted()

    def assert_all_paused(self, route: str, answer: NoneLeft) -> None:
        assert answer.retry_after_s is not None
        assert answer.retry_after_s > 2.0
        health = {each.name: each.resumes_in_s for each in self.pool.statistics(self.now).providers}
        assert min(health[name] for name in ROUTES[route]) == answer.retry_after_s

    @invariant()
    def slots_are_what_is_out(self) -> None:
        for provider in self.pool.statistics(self.now).providers:
            out = [slot for slot in self.out if slot.target.provider == provider.name]
            assert provider.busy == len(out)
            assert not SLOTS[provider.name] or len(out) <= SLOTS[provider.name]
            assert sum(slot.probe for slot in out) <= 1

    @invariant()
    def the_queue_is_who_waits(self) -> None:
        statistics = self.pool.statistics(self.now)
        assert statistics.waiting == len(self.waits)
        for provider in statistics.providers:
            here = [
                wait
                for wait in self.waits
                if provider.name in {each.target.provider for each in wait.candidates}
            ]
            assert provider.waiting == len(here)

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        for wait in self.waits:
            assert not wait.is_settled
            assert not any(each.member.has_room(self.now) for each in wait.candidates)

    @invariant()
    def nobody_waits_for_a_long_pause(self) -> None:
        health = {each.name: each.resumes_in_s for each in self.pool.statistics(self.now).providers}
        for wait in self.waits:
            assert min(health[name] for name in ROUTES[wait.route.model]) <= 2.0

    @invariant()
    def nobody_waits_for_ever(self) -> None:
        """Somebody will give back a slot there, or a pause will end."""
        for wait in self.waits:
            busy = any(each.member.busy for each in wait.candidates)
            assert busy or self.now < wait.until < float("inf")


TestPool = PoolMachine.TestCase
