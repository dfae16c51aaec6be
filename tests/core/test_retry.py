"""What follows an attempt."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.attempt import AttemptOutcome, AttemptStatus, outcome_of_error
from edge.core.fleet import Target
from edge.core.retry import (
    Accept,
    Again,
    Backoff,
    Decision,
    Fail,
    RetryPolicy,
    decide,
    nothing_offered,
)
from edge.core.verdict import Category, Reason
from edge.errors import (
    EdgeError,
    InvalidRequest,
    OutputValidationError,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderRefused,
    ProviderStreamError,
    ProviderTimeout,
    ProviderUnreachable,
    RunTimeout,
    ToolValidationError,
    ToolValidationRetryError,
)

A, B = Target(provider="a"), Target(provider="b")
A_OTHER = Target(provider="a", model="other")


def refused(status: int, retry_after_s: float | None = None) -> ProviderRefused:
    return ProviderRefused("no", upstream_status=status, retry_after_s=retry_after_s)


def transport(
    error: EdgeError, attempt: int = 1, provider: str = "a", *, committed: bool = False
) -> AttemptOutcome:
    return outcome_of_error(error, attempt=attempt, provider=provider, committed=committed)


def invalid(
    attempt: int = 1, provider: str = "a", category: Category = "schema", target: str = ""
) -> AttemptOutcome:
    return AttemptOutcome(
        attempt=attempt,
        provider=provider,
        target=target,
        status="validation_failed",
        category=category,
        reasons=(Reason(category, f"{category} is wrong", "tool_calls[0].arguments.limit"),),
        made_calls=True,
    )


def policy(
    *targets: Target,
    max_attempts: int = 3,
    offers_tools: bool = True,
    feedback: bool = True,
    constrain: bool = True,
) -> RetryPolicy:
    return RetryPolicy(
        max_attempts=max_attempts,
        offers_tools=offers_tools,
        feedback=feedback,
        constrain_last_attempt=constrain,
        targets=targets or (A,),
    )


def after(
    *attempts: AttemptOutcome, given: RetryPolicy | None = None, saturated: bool = False
) -> Decision:
    return decide(attempts, given or policy(), saturated=saturated)


def again(decision: Decision) -> Again:
    assert isinstance(decision, Again)
    return decision


def failure(decision: Decision) -> EdgeError:
    assert isinstance(decision, Fail)
    return decision.error


def test_a_sound_answer_is_accepted() -> None:
    assert Accept() == after(AttemptOutcome(attempt=1, status="success"))
    assert Accept() == after(AttemptOutcome(attempt=1, status="success", committed=True))


@pytest.mark.parametrize(
    "error",
    [
        ProviderUnreachable("x"),
        ProviderTimeout("x"),
        ProviderTimeout("x", code="first_token_timeout"),
        ProviderTimeout("x", code="idle_timeout"),
        refused(408),
        refused(409),
        refused(429),
        refused(500),
        refused(503),
        ProviderStreamError("overloaded"),
        ProviderProtocolError("HTML"),
        refused(401),
        refused(403),
    ],
)
def test_a_provider_that_fails_is_left_for_another_at_once(error: EdgeError) -> None:
    decision = again(after(transport(error), given=policy(A, A_OTHER, B)))

    assert frozenset({"a", "a/other"}) == decision.avoid
    assert decision.after_s == 0
    assert not decision.feedback
    assert not decision.constrained


@pytest.mark.parametrize("status", [400, 404, 405, 413, 415, 422])
def test_a_refusal_that_speaks_about_the_request_ends_the_run_as_it_is(status: int) -> None:
    error = refused(status)

    assert error is failure(after(transport(error), given=policy(A, B)))
    assert not error.spent


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_a_fault_of_the_gateway(status: int) -> None:
    error = failure(after(transport(refused(status)), given=policy(A, A_OTHER)))

    assert ProviderError is type(error)
    assert error.status == 502
    assert error.spent
    assert "a" in error.message


def test_the_only_provider_is_asked_again_after_a_pause_that_grows() -> None:
    attempts: list[AttemptOutcome] = []
    pauses: list[float] = []
    for attempt in range(1, 9):
        attempts.append(transport(ProviderUnreachable("x"), attempt))
        decision = decide(attempts, policy(max_attempts=9), saturated=False, jitter=1.0)
        pauses.append(again(decision).after_s)

    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_jitter_takes_up_to_half_of_a_pause() -> None:
    failed = [transport(ProviderUnreachable("x"))]

    shortest = again(decide(failed, policy(), saturated=False, jitter=0.0)).after_s
    longest = again(decide(failed, policy(), saturated=False, jitter=1.0)).after_s

    assert (shortest, longest) == (0.125, 0.25)


def test_a_retry_after_is_waited_for_within_bounds() -> None:
    assert again(after(transport(refused(429, 5.0)))).after_s == 5.0
    assert again(after(transport(refused(429, 5.0)), given=policy(A, B))).after_s == 0


def test_a_retry_after_beyond_the_bound_is_left_to_the_client() -> None:
    error = failure(after(transport(refused(429, 60.0))))

    assert error.retry_after_s == 60.0
    assert not error.spent


def test_the_budget_is_one_for_transport_and_validation() -> None:
    attempts = [invalid(1), transport(ProviderUnreachable("x"), 2), invalid(3)]

    error = failure(after(*attempts, given=policy(A, B)))

    assert isinstance(error, ToolValidationError)
    assert error.spent


def test_the_last_error_of_a_spent_budget_is_told() -> None:
    last = ProviderUnreachable("x")
    attempts = [transport(ProviderUnreachable("y"), 1), transport(last, 2)]

    assert last is failure(after(*attempts, given=policy(max_attempts=2)))
    assert last.spent


def test_nothing_is_tried_again_while_the_pool_is_saturated() -> None:
    assert failure(after(transport(ProviderUnreachable("x")), saturated=True)).spent
    error = failure(after(invalid(), saturated=True))
    assert isinstance(error, ToolValidationError)
    assert error.spent


def test_nothing_follows_a_committed_attempt() -> None:
    error = ProviderProtocolError("it died")

    assert error is failure(after(transport(error, committed=True), given=policy(A, B)))
    committed = replace(invalid(), committed=True)
    assert isinstance(failure(after(committed)), ToolValidationError)


@pytest.mark.parametrize("error", [InvalidRequest("x"), RunTimeout("x"), Overloaded("x")])
def test_what_is_no_providers_fault_is_not_tried_again(error: EdgeError) -> None:
    assert error is failure(after(transport(error), given=policy(A, B)))


@pytest.mark.parametrize("status", ["cancelled", "drained", "rejected"])
def test_an_attempt_that_was_cut_short_is_the_end(status: AttemptStatus) -> None:
    assert isinstance(after(AttemptOutcome(attempt=1, status=status)), Fail)


def test_the_ladder_of_an_invalid_answer() -> None:
    """Feedback, another target, a schema, and then the error that names the place."""
    rungs = policy(A, B, max_attempts=4)

    second = again(after(invalid(1), given=rungs))
    third = again(after(invalid(1), invalid(2), given=rungs))
    fourth = again(after(invalid(1), invalid(2), invalid(3, "b"), given=rungs))
    end = failure(after(invalid(1), invalid(2), invalid(3, "b"), invalid(4), given=rungs))

    assert Again(feedback=True) == second
    assert Again(feedback=True, avoid=frozenset({"a"})) == third
    assert Again(feedback=True, avoid=frozenset({"a", "b"}), constrained=True) == fourth
    assert isinstance(end, ToolValidationError)
    assert end.param == "tool_calls[0].arguments.limit"
    assert end.code == "schema"
    assert end.spent


def test_with_three_attempts_the_last_is_elsewhere_and_constrained() -> None:
    third = again(after(invalid(1), invalid(2), given=policy(A, B)))

    assert Again(feedback=True, avoid=frozenset({"a"}), constrained=True) == third


def test_another_model_of_the_same_provider_is_another_target() -> None:
    attempts = [invalid(1, target="a/other"), invalid(2, target="a/other")]

    decision = again(after(*attempts, given=policy(A_OTHER, A)))

    assert frozenset({"a/other"}) == decision.avoid


def test_without_feedback_the_second_attempt_is_elsewhere() -> None:
    decision = again(after(invalid(1), given=policy(A, B, feedback=False)))

    assert Again(avoid=frozenset({"a"})) == decision


@pytest.mark.parametrize("category", ["response_format", "strict", "empty", "xml_tool"])
def test_what_a_demanded_call_cannot_mend_is_not_constrained(category: Category) -> None:
    decision = after(invalid(1, category=category), invalid(2, category=category))

    assert not again(decision).constrained


def test_only_offered_tools_make_a_constrained_attempt() -> None:
    attempts = (invalid(1), invalid(2))

    assert not again(after(*attempts, given=policy(offers_tools=False))).constrained
    assert not again(after(*attempts, given=policy(constrain=False))).constrained
    assert not again(after(*attempts, given=policy(max_attempts=4))).constrained
    assert again(after(*attempts)).constrained


def test_feedback_outlives_a_transport_failure_between() -> None:
    decision = again(after(invalid(1), transport(ProviderUnreachable("x"), 2)))

    assert decision.feedback
    assert decision.constrained


def test_an_unparsed_call_of_a_model_server_is_asked_again_as_a_verdict() -> None:
    error = ProviderRefused(
        "500", upstream_status=500, upstream_body=b'{"error": "error parsing tool call: x"}'
    )

    assert Again(feedback=True) == after(transport(error))
    assert again(after(transport(error, 1), transport(error, 2))).constrained
    end = failure(after(*(transport(error, n) for n in (1, 2, 3))))
    assert isinstance(end, ToolValidationError)


def test_a_fault_of_the_text_is_an_output_validation_error() -> None:
    end = failure(after(invalid(category="response_format"), given=policy(max_attempts=1)))

    assert isinstance(end, OutputValidationError)


def test_faults_of_calls_are_named_before_faults_of_the_text() -> None:
    both = replace(
        invalid(),
        reasons=(
            Reason("strict", "text beside the call", "content"),
            Reason("schema", "limit is no number", "tool_calls[0].arguments.limit"),
        ),
    )

    end = failure(after(both, given=policy(max_attempts=1)))

    assert isinstance(end, ToolValidationError)
    assert end.param == "tool_calls[0].arguments.limit"
    assert end.message == "text beside the call; limit is no number"


class TestNothingOffered:
    cause = Overloaded("all full", retry_after_s=3.0)

    def test_before_any_attempt_the_cause_is_told(self) -> None:
        assert self.cause is nothing_offered([], self.cause)

    def test_after_a_transport_failure_that_failure_is_told(self) -> None:
        error = ProviderUnreachable("x")

        assert error is nothing_offered([transport(error)], self.cause)
        assert error.spent

    def test_after_an_invalid_answer_the_missing_retry_is_told(self) -> None:
        error = nothing_offered([invalid()], self.cause)

        assert isinstance(error, ToolValidationRetryError)
        assert "all full" in error.message
        assert "schema is wrong" in error.message
        assert error.spent


ERRORS: list[EdgeError] = [
    ProviderUnreachable("x"),
    ProviderTimeout("x", code="idle_timeout"),
    ProviderStreamError("x"),
    refused(400),
    refused(401),
    refused(429, 2.0),
    refused(429, 99.0),
    refused(500),
]

providers = st.sampled_from(["a", "b", "c"])
failures = st.one_of(
    st.builds(
        transport,
        st.sampled_from(ERRORS),
        provider=providers,
        committed=st.booleans(),
    ),
    st.builds(
        invalid,
        provider=providers,
        category=st.sampled_from(["schema", "response_format", "empty"]),
    ),
)
policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 5),
    feedback=st.booleans(),
    constrain_last_attempt=st.booleans(),
    offers_tools=st.booleans(),
    targets=st.lists(st.sampled_from([A, B, A_OTHER]), min_size=1, unique=True).map(tuple),
)


class TestLaws:
    @given(st.lists(failures, min_size=1, max_size=6), policies, st.booleans(), st.floats(0, 1))
    def test_attempts_stay_within_the_budget(
        self,
        attempts: Sequence[AttemptOutcome],
        given: RetryPolicy,
        saturated: bool,
        jitter: float,
    ) -> None:
        decision = decide(attempts, given, saturated=saturated, jitter=jitter)

        if isinstance(decision, Again):
            assert len(attempts) < given.max_attempts
            assert not saturated
            assert not attempts[-1].committed
            assert attempts[-1].category != "http_4xx"
            assert 0 <= decision.after_s <= given.backoff.longest_s

    @given(st.lists(failures, min_size=2, max_size=6), policies)
    def test_a_worse_history_never_turns_an_end_into_another_attempt(
        self, attempts: Sequence[AttemptOutcome], given: RetryPolicy
    ) -> None:
        """Dropping an earlier failure can only leave more to try."""
        if isinstance(decide(attempts, given, saturated=False), Again):
            assert isinstance(decide(attempts[1:], given, saturated=False), Again)

    @given(st.lists(failures, min_size=1, max_size=6), policies, st.floats(0, 1))
    def test_a_decision_does_not_depend_on_having_been_made(
        self, attempts: Sequence[AttemptOutcome], given: RetryPolicy, jitter: float
    ) -> None:
        def kind() -> object:
            decision = decide(attempts, given, saturated=False, jitter=jitter)
            return decision if isinstance(decision, Again) else type(decision)

        assert kind() == kind()

    @given(st.integers(1, 8), st.floats(0.01, 2), st.floats(1, 4), st.floats(2, 20))
    def test_pauses_without_jitter_never_shrink(
        self, count: int, first_s: float, factor: float, longest_s: float
    ) -> None:
        given = replace(
            policy(max_attempts=20),
            backoff=Backoff(first_s=first_s, factor=factor, longest_s=longest_s),
        )
        attempts = [transport(ProviderUnreachable("x"), n) for n in range(1, count + 2)]
        pauses = [
            again(decide(attempts[:n], given, saturated=False)).after_s for n in range(1, count + 2)
        ]

        assert sorted(pauses) == pauses
        assert all(pause <= longest_s for pause in pauses)
