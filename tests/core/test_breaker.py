"""When a provider is left alone."""

import pytest

from edge.core.attempt import AttemptOutcome, AttemptStatus, outcome_of_error
from edge.core.breaker import Breaker, BreakerLimits
from edge.errors import EdgeError, ProviderRefused, ProviderTimeout, ProviderUnreachable

LIMITS = BreakerLimits(failures=3, first_pause_s=1.0, longest_pause_s=5.0)
DOWN = outcome_of_error(ProviderUnreachable("x"), attempt=1)
FINE = AttemptOutcome(attempt=1, status="success")


def refused(status: int, retry_after_s: float | None = None) -> AttemptOutcome:
    error = ProviderRefused("x", upstream_status=status, retry_after_s=retry_after_s)
    return outcome_of_error(error, attempt=1)


def opened(now: float = 0.0) -> Breaker:
    breaker = Breaker(LIMITS)
    for _ in range(LIMITS.failures):
        breaker.end(DOWN, probe=breaker.start(), now=now)
    return breaker


def test_failures_in_a_row_open_it() -> None:
    breaker = Breaker(LIMITS)

    for _ in range(2):
        breaker.end(DOWN, probe=breaker.start(), now=0)
    assert breaker.allows(0)
    assert breaker.state(0) == "closed"

    breaker.end(DOWN, probe=breaker.start(), now=0)
    assert not breaker.allows(0.9)
    assert breaker.state(0.9) == "open"


def test_a_success_between_starts_the_count_again() -> None:
    breaker = Breaker(LIMITS)

    for outcome in (DOWN, DOWN, FINE, DOWN, DOWN):
        breaker.end(outcome, probe=breaker.start(), now=0)

    assert breaker.allows(0)


def test_an_invalid_answer_comes_from_a_provider_that_works() -> None:
    breaker = Breaker(LIMITS)
    wrong = AttemptOutcome(attempt=1, status="validation_failed", category="schema")

    for outcome in (DOWN, DOWN, wrong, DOWN, DOWN):
        breaker.end(outcome, probe=breaker.start(), now=0)

    assert breaker.allows(0)


def test_after_the_pause_a_single_probe_is_let_through() -> None:
    breaker = opened()

    assert breaker.allows(1.0)
    assert breaker.state(1.0) == "probing"
    assert breaker.start()
    assert not breaker.allows(1.0)
    assert not breaker.allows(100.0)


def test_the_probes_success_closes_it() -> None:
    breaker = opened()

    breaker.end(FINE, probe=breaker.start(), now=1.0)

    assert breaker.state(1.0) == "closed"
    assert not breaker.start()


def test_each_failed_probe_doubles_the_pause_up_to_the_bound() -> None:
    breaker = opened()
    now, pauses = 0.0, []

    for _ in range(5):
        pauses.append(breaker.resumes_at - now)
        now = breaker.resumes_at
        breaker.end(DOWN, probe=breaker.start(), now=now)

    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_success_brings_the_first_pause_back() -> None:
    breaker = opened()
    breaker.end(DOWN, probe=breaker.start(), now=1.0)
    breaker.end(FINE, probe=breaker.start(), now=3.0)

    for _ in range(LIMITS.failures):
        breaker.end(DOWN, probe=breaker.start(), now=3.0)

    assert breaker.resumes_at == 4.0


@pytest.mark.parametrize("probe_ended_as", [None, "cancelled", "drained", "client error"])
def test_a_probe_that_says_nothing_makes_the_next_attempt_the_probe(
    probe_ended_as: str | None,
) -> None:
    breaker = opened()
    outcome: AttemptOutcome | None = None
    if probe_ended_as == "client error":
        outcome = refused(400)
    elif probe_ended_as is not None:
        status: AttemptStatus = "cancelled" if probe_ended_as == "cancelled" else "drained"
        outcome = AttemptOutcome(attempt=1, status=status)

    breaker.end(outcome, probe=breaker.start(), now=1.0)

    assert breaker.allows(1.0)
    assert breaker.start()


def test_what_was_under_way_when_it_opened_changes_nothing() -> None:
    breaker = Breaker(LIMITS)
    old = [breaker.start() for _ in range(10)]
    for probe in old[:3]:
        breaker.end(DOWN, probe=probe, now=0)

    for probe in old[3:]:
        breaker.end(DOWN, probe=probe, now=0.5)
    breaker.end(FINE, probe=False, now=0.5)

    assert breaker.resumes_at == 1.0
    assert breaker.state(0.5) == "open"


@pytest.mark.parametrize("status", [400, 404, 409, 413, 422])
def test_client_errors_never_count(status: int) -> None:
    breaker = Breaker(LIMITS)

    for _ in range(10):
        breaker.end(refused(status), probe=breaker.start(), now=0)

    assert breaker.allows(0)
    assert breaker.failures == 0


@pytest.mark.parametrize("status", ["cancelled", "drained", "rejected"])
def test_give_ups_never_count(status: AttemptStatus) -> None:
    breaker = Breaker(LIMITS)

    for _ in range(10):
        breaker.end(AttemptOutcome(attempt=1, status=status), probe=breaker.start(), now=0)
        breaker.end(None, probe=breaker.start(), now=0)

    assert breaker.failures == 0


def test_the_end_of_a_runs_time_is_no_failure_of_the_provider() -> None:
    breaker = Breaker(LIMITS)
    late = AttemptOutcome(attempt=1, status="timeout", category="run_timeout")

    for _ in range(10):
        breaker.end(late, probe=breaker.start(), now=0)

    assert breaker.failures == 0


@pytest.mark.parametrize(
    "error",
    [
        ProviderUnreachable("x"),
        ProviderTimeout("x", code="first_token_timeout"),
        ProviderTimeout("x", code="idle_timeout"),
        ProviderRefused("x", upstream_status=500),
        ProviderRefused("x", upstream_status=429),
        ProviderRefused("x", upstream_status=401),
    ],
)
def test_what_a_provider_is_to_blame_for_counts(error: EdgeError) -> None:
    breaker = Breaker(LIMITS)

    breaker.end(outcome_of_error(error, attempt=1), probe=breaker.start(), now=0)

    assert breaker.failures == 1


def test_a_retry_after_is_respected_and_needs_no_probe() -> None:
    breaker = Breaker(LIMITS)

    breaker.end(refused(429, 3.0), probe=breaker.start(), now=10.0)

    assert not breaker.allows(12.9)
    assert breaker.state(12.9) == "paused"
    assert breaker.allows(13.0)
    assert not breaker.start()
    assert breaker.allows(13.0)


def test_a_retry_after_is_bounded_and_never_shortens_a_pause() -> None:
    breaker = Breaker(LIMITS)

    breaker.end(refused(429, 1e9), probe=breaker.start(), now=0)
    breaker.end(refused(429, 0.5), probe=False, now=0)

    assert breaker.resumes_at == LIMITS.longest_pause_s


def test_without_an_alternative_only_silence_opens_it() -> None:
    breaker = Breaker(LIMITS, irreplaceable=True)

    for _ in range(10):
        breaker.end(refused(500), probe=breaker.start(), now=0)
    assert breaker.allows(0)

    for _ in range(LIMITS.failures):
        breaker.end(DOWN, probe=breaker.start(), now=0)
    assert not breaker.allows(0)
