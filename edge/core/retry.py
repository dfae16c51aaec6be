"""What to do after an attempt: a pure function of the attempts so far.

One budget, ``max_attempts``, covers transport failures and invalid answers together. Nothing
follows an attempt that was committed, and nothing is tried again while the pool is saturated.

*A transport failure* (no connection, 408, 409, 429, 5xx, an error object inside a 200, a broken
stream, a first-token or idle deadline) moves the run to a target of another provider, at once. If
none is left, the failed ones are asked again after a pause that grows; a provider's
``Retry-After`` is waited for up to a bound, and beyond it the run ends. Credentials that a
provider refuses (401, 403) are worth another provider only. Any other 4xx speaks about the
request: the run ends with the provider's own status and body.

*An invalid answer* climbs a ladder, without pauses: again with feedback; on another target; the
last attempt constrained to a JSON Schema over the offered tools, provided it was the calls that
were wrong; then a typed error that names the place. With a budget of three the second and third
rung are one attempt.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from edge.core.attempt import MODEL_FAILURE, AttemptOutcome
from edge.core.fleet import Target
from edge.core.verdict import OUTPUT_CATEGORIES, Category, Reason
from edge.errors import (
    EdgeError,
    GatewayFault,
    OutputValidationError,
    ProviderError,
    ToolValidationError,
    ToolValidationRetryError,
)

_TRANSPORT_FAILURES = ("upstream_error", "timeout")

_ABOUT_THE_REQUEST = frozenset({"http_4xx", "stream_4xx"})
"""Categories of refusals that every provider would repeat."""

_NOT_FOR_A_SCHEMA: frozenset[Category] = OUTPUT_CATEGORIES | {"empty", "too_large", "xml_tool"}
"""Faults that a demanded call would hide instead of mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Pauses before a provider that failed is asked again.

    Attributes:
        first_s: pause after the first transport failure, in seconds.
        factor: growth per further failure.
        longest_s: no pause is longer, a provider's ``Retry-After`` included.
    """

    first_s: float = 0.25
    factor: float = 2.0
    longest_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """What one run may do about a failed attempt.

    Attributes:
        max_attempts: attempts in all, transport and validation together.
        feedback: tell the model what was wrong.
        constrain_last_attempt: ask for the last attempt through a JSON Schema.
        offers_tools: whether the request offers tools at all.
        targets: the route's targets (``Dispatcher.targets``).
    """

    max_attempts: int = 3
    feedback: bool = True
    constrain_last_attempt: bool = True
    offers_tools: bool = False
    targets: tuple[Target, ...] = ()
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Accept:
    """The last attempt's answer is the run's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Try once more.

    Attributes:
        feedback: add the last invalid answer and its reasons to the conversation.
        avoid: names of targets to be used only if nothing else can.
        constrained: ask through a JSON Schema over the offered tools.
        after_s: seconds to wait first.
    """

    feedback: bool = False
    avoid: frozenset[str] = frozenset()
    constrained: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fail:
    """The run ends with this error; its ``spent`` is set once attempts of ours were spent."""

    error: EdgeError


Decision: TypeAlias = Accept | Again | Fail


def decide(
    attempts: Sequence[AttemptOutcome],
    policy: RetryPolicy,
    *,
    saturated: bool,
    jitter: float = 0.5,
) -> Decision:
    """What follows the last of ``attempts``.

    Args:
        attempts: the run's outcomes so far, in order, at least one.
        policy: the run's share of the settings.
        saturated: whether the route has no room for more attempts (``Dispatcher.saturated``).
        jitter: a random number in [0, 1]; a pause is between half and the whole of its length.
    """
    last = attempts[-1]
    if last.status == "success":
        return Accept()
    if last.committed:
        return Fail(_error_of(last))
    if last.status == "validation_failed":
        if saturated or len(attempts) >= policy.max_attempts:
            return Fail(_spent(_error_of(last)))
        return _again(attempts, policy)
    if last.status in _TRANSPORT_FAILURES:
        return _after_transport(attempts, policy, saturated=saturated, jitter=jitter)
    return Fail(_error_of(last))


def nothing_offered(attempts: Sequence[AttemptOutcome], cause: EdgeError) -> EdgeError:
    """The run's error where an attempt was due and no provider could be had for it.

    Args:
        attempts: the run's outcomes so far, possibly none.
        cause: what the dispatcher raised.
    """
    if not attempts:
        return cause
    last = attempts[-1]
    if last.status != "validation_failed":
        return _spent(_error_of(last))
    return ToolValidationRetryError(
        f"no provider could take another attempt ({cause.message}) after an invalid answer:"
        f" {_error_of(last).message}",
        param=_error_of(last).param,
        spent=True,
    )


def _after_transport(
    attempts: Sequence[AttemptOutcome], policy: RetryPolicy, *, saturated: bool, jitter: float
) -> Decision:
    last = attempts[-1]
    error = _error_of(last)
    if not error.again or last.category in _ABOUT_THE_REQUEST:
        return Fail(error)
    elsewhere = _has_other_provider(attempts, policy)
    if last.category == "http_auth" and not elsewhere:
        return Fail(_spent(_credentials_refused(last)))
    if saturated or len(attempts) >= policy.max_attempts:
        return Fail(_spent(error))
    if elsewhere:
        return _again(attempts, policy)
    asked_s = last.retry_after_s or 0.0
    if asked_s > policy.backoff.longest_s:
        # The client may well come back then; that is not ours to forbid, so nothing is "spent".
        return Fail(error)
    return _again(attempts, policy, after_s=max(asked_s, _pause(attempts, policy.backoff, jitter)))


def _again(
    attempts: Sequence[AttemptOutcome], policy: RetryPolicy, *, after_s: float = 0.0
) -> Again:
    verdicts = [attempt for attempt in attempts if attempt.status == "validation_failed"]
    is_last = len(attempts) + 1 >= policy.max_attempts
    return Again(
        feedback=policy.feedback and bool(verdicts),
        avoid=_failed_providers(attempts, policy) | _failed_models(verdicts, policy),
        constrained=is_last
        and policy.constrain_last_attempt
        and policy.offers_tools
        and bool(verdicts)
        and all(_mended_by_schema(verdict) for verdict in verdicts),
        after_s=after_s,
    )


def _failed_providers(attempts: Sequence[AttemptOutcome], policy: RetryPolicy) -> frozenset[str]:
    """Every target of a provider that failed: what broke is shared by its models."""
    failed = [attempt for attempt in attempts if attempt.status in _TRANSPORT_FAILURES]
    providers = {attempt.provider for attempt in failed}
    names = {target.name for target in policy.targets if target.provider in providers}
    return frozenset(names | {attempt.target or attempt.provider for attempt in failed})


def _failed_models(verdicts: Sequence[AttemptOutcome], policy: RetryPolicy) -> frozenset[str]:
    """The targets whose answers were invalid, once feedback has had its try."""
    if policy.feedback and len(verdicts) < 2:
        return frozenset()
    return frozenset(verdict.target or verdict.provider for verdict in verdicts)


def _has_other_provider(attempts: Sequence[AttemptOutcome], policy: RetryPolicy) -> bool:
    failed = _failed_providers(attempts, policy)
    return any(target.name not in failed for target in policy.targets)


def _mended_by_schema(verdict: AttemptOutcome) -> bool:
    if verdict.category == MODEL_FAILURE:
        return True
    return all(reason.category not in _NOT_FOR_A_SCHEMA for reason in verdict.reasons)


def _pause(attempts: Sequence[AttemptOutcome], backoff: Backoff, jitter: float) -> float:
    failures = sum(attempt.status in _TRANSPORT_FAILURES for attempt in attempts)
    whole = min(backoff.first_s * backoff.factor ** (failures - 1), backoff.longest_s)
    return whole * (0.5 + jitter / 2)


def _error_of(outcome: AttemptOutcome) -> EdgeError:
    if outcome.status == "validation_failed" and outcome.reasons:
        return _error_of_reasons(outcome.reasons)
    return outcome.error or GatewayFault("the attempt ended without an answer")


def _error_of_reasons(reasons: tuple[Reason, ...]) -> EdgeError:
    """Faults of the calls come first: they are what the client cannot work around."""
    of_calls = [reason for reason in reasons if reason.category not in OUTPUT_CATEGORIES]
    first = of_calls[0] if of_calls else reasons[0]
    kind = ToolValidationError if of_calls else OutputValidationError
    message = "; ".join(reason.message for reason in reasons)
    return kind(message, param=first.param, code=first.category)


def _credentials_refused(outcome: AttemptOutcome) -> EdgeError:
    return ProviderError(
        f"provider {outcome.provider} refuses the gateway's credentials",
        provider=outcome.provider,
        code="provider_credentials",
    )


def _spent(error: EdgeError) -> EdgeError:
    error.spent = True
    return error
