"""What to do after an attempt: a pure function of the attempts so far.

PLACEHOLDER
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from edge.core.attempt import AttemptOutcome
from edge.errors import EdgeError


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
        targets: names of the route's targets (``Dispatcher.targets``).
    """

    max_attempts: int = 3
    feedback: bool = True
    constrain_last_attempt: bool = True
    offers_tools: bool = False
    targets: tuple[str, ...] = ()
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True)
class Accept:
    """The last attempt's answer is the run's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """Try once more.

    Attributes:
        feedback: add the last invalid answer and its reasons to the conversation.
        avoid: targets and providers to be used only if nothing else can.
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
    """What follows the last of ``attempts`` (at least one, in order)."""
    raise NotImplementedError


def nothing_offered(attempts: Sequence[AttemptOutcome], cause: EdgeError) -> EdgeError:
    """The run's error where an attempt was due and no provider could be had for it."""
    raise NotImplementedError
