"""How the validity of a target's tool calls is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.attempt import AttemptOutcome
from edge.core.call_validity import CallValidity
from edge.core.verdict import Category, Reason


def sound() -> AttemptOutcome:
    return AttemptOutcome(attempt=1, status="success", made_calls=True)


def unsound(category: Category = "schema") -> AttemptOutcome:
    return AttemptOutcome(
        attempt=1,
        status="validation_failed",
        reasons=(Reason(category, "x"),),
        made_calls=True,
    )


def test_it_is_the_documented_mean() -> None:
    validity = CallValidity()

    validity.note(unsound(), 0)
    assert validity.value(0) == pytest.approx(0.9)
    validity.note(unsound(), 0)
    assert validity.value(0) == pytest.approx(0.81)
    validity.note(sound(), 0)
    assert validity.value(0) == pytest.approx(0.829)
    assert validity.judged == 3


def test_what_is_held_against_it_fades_by_half_in_300_seconds() -> None:
    validity = CallValidity()
    validity.note(unsound(), 100)

    assert validity.value(400) == pytest.approx(0.95)
    assert validity.value(700) == pytest.approx(0.975)


def test_the_penalty_is_the_inverse_square_with_a_bound() -> None:
    validity = CallValidity()
    assert validity.penalty(0) == 1.0

    validity.note(unsound(), 0)
    assert validity.penalty(0) == pytest.approx(1 / 0.9**2)

    for _ in range(100):
        validity.note(unsound(), 0)
    assert validity.penalty(0) == pytest.approx(400)


def test_answers_without_calls_say_nothing() -> None:
    validity = CallValidity()

    validity.note(AttemptOutcome(attempt=1, status="success"), 0)
    validity.note(AttemptOutcome(attempt=1, status="cancelled", made_calls=True), 0)
    validity.note(unsound("response_format"), 0)

    assert validity.judged == 0
    assert validity.value(0) == 1.0


def test_faults_that_are_only_observed_count_too() -> None:
    validity = CallValidity()
    observed = AttemptOutcome(
        attempt=1, status="success", made_calls=True, reasons=(Reason("schema", "x"),)
    )

    validity.note(observed, 0)

    assert validity.value(0) == pytest.approx(0.9)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1e4))))
def test_it_stays_between_0_and_1(history: list[tuple[bool, float]]) -> None:
    validity, now = CallValidity(), 0.0
    for was_sound, later in history:
        now += later
        validity.note(sound() if was_sound else unsound(), now)

        assert 0 <= validity.value(now) <= 1
        assert validity.value(now) <= validity.value(now + 1)
        assert 1 <= validity.penalty(now) <= 400
