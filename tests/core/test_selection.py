"""Which of several targets with a free slot is taken."""

from collections import Counter

from edge.core.attempt import AttemptOutcome
from edge.core.breaker import Breaker, BreakerLimits
from edge.core.call_validity import CallValidity
from edge.core.fleet import ProviderSpec, Target
from edge.core.pool_member import Candidate, Member
from edge.core.selection import choose
from edge.core.verdict import Reason

BAD_CALL = AttemptOutcome(
    attempt=1, status="validation_failed", reasons=(Reason("schema", "x"),), made_calls=True
)


def candidate(name: str, *, slots: int = 0, busy: int = 0, weight: float = 1.0) -> Candidate:
    member = Member(ProviderSpec(name=name, max_concurrent=slots), Breaker(BreakerLimits()))
    member.busy = busy
    return Candidate(Target(provider=name, weight=weight), member, CallValidity())


def test_ordered_takes_the_first() -> None:
    first, second = candidate("a", busy=9), candidate("b")

    assert choose("ordered", [first, second], now=0, pick=0.9) is first


def test_weighted_draws_in_proportion() -> None:
    all_of_them = [
        candidate("a", weight=1),
        candidate("b", weight=3),
        candidate("c", weight=0),
        candidate("d", weight=4),
    ]

    drawn = Counter(
        choose("weighted", all_of_them, now=0, pick=step / 800).name for step in range(800)
    )

    assert drawn == {"a": 100, "b": 300, "d": 400}


def test_weighted_falls_back_on_stand_ins_in_order() -> None:
    stand_ins = [candidate("a", weight=0), candidate("b", weight=0)]

    assert choose("weighted", stand_ins, now=0, pick=0.99).name == "a"


def test_least_busy_goes_by_the_share_of_slots_taken() -> None:
    big, small = candidate("big", slots=100, busy=10), candidate("small", slots=4, busy=1)

    assert choose("least_busy", [small, big], now=0, pick=0) is big


def test_least_busy_counts_the_weight_as_more_slots() -> None:
    light, heavy = (
        candidate("light", slots=8, busy=2),
        candidate("heavy", slots=8, busy=3, weight=2),
    )

    assert choose("least_busy", [light, heavy], now=0, pick=0) is heavy


def test_equals_take_turns() -> None:
    one, other = candidate("one"), candidate("other")
    one.last_taken = 1

    assert choose("least_busy", [one, other], now=0, pick=0) is other


def test_a_target_whose_calls_keep_failing_is_preferred_less() -> None:
    faultless, faulty = candidate("faultless", slots=10, busy=2), candidate("faulty", slots=10)
    for _ in range(7):
        faulty.validity.note(BAD_CALL, 0)

    # Penalty of 0.9 ** 7 is about 4.4: worth four busy slots, not five.
    assert choose("least_busy", [faulty, faultless], now=0, pick=0) is faultless
    faultless.member.busy = 4
    assert choose("least_busy", [faulty, faultless], now=0, pick=0) is faulty


def test_a_mere_stand_in_comes_last() -> None:
    stand_in, busy = candidate("stand-in", weight=0), candidate("busy", slots=100, busy=99)

    assert choose("least_busy", [stand_in, busy], now=0, pick=0) is busy
