"""Runs and attempts as the runs API and the mirror show them; times in seconds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, TypedDict

from edge.core.run_events import AttemptEnd, AttemptEnded, AttemptStarted, Path, Usage

RUNNING: Final = "running"

RunStatus: TypeAlias = Literal["running"] | AttemptEnd
Verdict: TypeAlias = Literal["valid", "repaired", "invalid"]


class UsageSummary(TypedDict):
    """Token counts of an attempt."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    reported: Annotated[bool, "Whether the provider reported them; else they are estimated."]


class AttemptSummary(TypedDict):
    """An attempt that has ended."""

    attempt: Annotated[int, "1, 2, 3…; 0 where the run ended before it was sent anywhere."]
    provider: str
    model: Annotated[str, "The provider's name for the model."]
    path: Annotated[Path, "How its answer travelled; `none` where it was not sent."]
    status: AttemptEnd
    verdict: Annotated[Verdict | None, "Null where no answer was judged."]
    category: Annotated[str, "Why it failed, in a word; empty for a success without faults."]
    reason: Annotated[str, "The same in words."]
    phase: Annotated[str, "Where it was when it was cut short."]
    calls: Annotated[list[str], "The tools that were called."]
    forms: Annotated[list[str], "The forms that the calls were read from."]
    repairs: Annotated[list[str], "The lossless repairs that were made."]
    call_validity: Annotated[
        float | None, "Measured share of sound tool calls of its target, when that was chosen."
    ]
    constrained: Annotated[bool, "Whether it was asked for through a schema."]
    feedback: Annotated[bool, "Whether it was told why the one before it failed."]
    first_token_s: Annotated[float | None, "From dispatch to the first chunk; null without one."]
    held_s: Annotated[float, "How long the answer was held back after its first chunk."]
    total_s: Annotated[float, "From dispatch to the end."]
    usage: UsageSummary


class RunningAttempt(TypedDict):
    """An attempt that is under way."""

    attempt: int
    provider: str
    model: str
    path: Path
    status: Literal["running"]
    call_validity: float | None
    constrained: bool
    total_s: Annotated[float, "From dispatch until now."]


class RunSummary(TypedDict):
    """A run, live or ended; what has no number of its own is its last attempt's."""

    id: str
    object: Literal["edge.run"]
    request_id: str
    created: Annotated[int, "Seconds since 1970."]
    model: Annotated[str, "The client's name for the model."]
    key: Annotated[str, "The name of the key; empty where the gateway asks for none."]
    route: Annotated[str, "The route's `model`."]
    stream: bool
    status: RunStatus
    phase: Annotated[str, "Where the run is now."]
    provider: str | None
    path: Path | None
    age_s: Annotated[float, "How long it has taken, so far or in all."]
    first_token_s: float | None
    held_s: float | None
    usage: UsageSummary | None
    attempts: list[AttemptSummary | RunningAttempt]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What is known of a run at some moment.

    Attributes:
        number: runs are numbered in the order in which they began.
        created: seconds since 1970.
        status: ``running``, or that of its last attempt.
        phase: where it is.
        age_s: how long it has taken, so far or in all.
        rows: its attempts that have ended.
        under_way: the attempt that has not, and how long it has been going.
        judged: whether its answers are validated.
    """

    number: int
    id: str
    request_id: str
    created: int
    model: str
    key: str
    route: str
    stream: bool
    status: RunStatus
    phase: str
    age_s: float
    rows: tuple[AttemptEnded, ...] = ()
    under_way: tuple[AttemptStarted, float] | None = None
    judged: bool = True

    @property
    def providers(self) -> list[str]:
        """The providers that were asked, in order."""
        asked = [row.provider for row in self.rows if row.provider]
        return [*asked, self.under_way[0].provider] if self.under_way else asked


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs are asked for; None asks for all.

    Attributes:
        status: ``running``, or a status of the ledger.
        provider: one that was asked.
        since: created then or later, in seconds since 1970.
    """

    status: str | None = None
    route: str | None = None
    provider: str | None = None
    key: str | None = None
    since: float | None = None

    def matches(self, run: RunFacts) -> bool:
        """Whether this run is one of them."""
        return (
            (self.status is None or run.status == self.status)
            and (self.route is None or run.route == self.route)
            and (self.key is None or run.key == self.key)
            and (self.since is None or run.created >= self.since)
            and (self.provider is None or self.provider in run.providers)
        )


def run_summary(run: RunFacts) -> RunSummary:
    """A run; ``usage``, ``provider``, ``path`` and the timings are its last attempt's."""
    attempts: list[AttemptSummary | RunningAttempt] = [
        attempt_summary(row, judged=run.judged) for row in run.rows
    ]
    if run.under_way is not None:
        attempts.append(running_attempt(*run.under_way))
    last: Mapping[str, Any] = attempts[-1] if attempts else {}
    return {
        "id": run.id,
        "object": "edge.run",
        "request_id": run.request_id,
        "created": run.created,
        "model": run.model,
        "key": run.key,
        "route": run.route,
        "stream": run.stream,
        "status": run.status,
        "phase": run.phase,
        "provider": last.get("provider") or None,
        "path": last.get("path"),
        "age_s": round(run.age_s, 3),
        "first_token_s": last.get("first_token_s"),
        "held_s": last.get("held_s"),
        "usage": last.get("usage"),
        "attempts": attempts,
    }


def attempt_summary(row: AttemptEnded, *, judged: bool = True) -> AttemptSummary:
    """An attempt that has ended.

    ``verdict`` is ``valid``, ``repaired`` (valid after lossless repairs), ``invalid``, or None
    where no answer came as far as being judged. ``judged`` is false for runs whose answers are
    delivered without being looked at.
    """
    return {
        "attempt": row.attempt,
        "provider": row.provider,
        "model": row.model,
        "path": row.path,
        "status": row.status,
        "verdict": _verdict(row) if judged else None,
        "category": row.category,
        "reason": row.reason,
        "phase": row.phase,
        "calls": list(row.calls),
        "forms": list(row.forms),
        "repairs": list(row.repairs),
        "call_validity": _rounded(row.call_validity),
        "constrained": row.constrained,
        "feedback": row.feedback,
        "first_token_s": row.first_token_s,
        "held_s": row.held_s,
        "total_s": row.total_s,
        "usage": usage_summary(row.usage),
    }


def running_attempt(started: AttemptStarted, age_s: float) -> RunningAttempt:
    """An attempt that is under way."""
    return {
        "attempt": started.attempt,
        "provider": started.provider,
        "model": started.model,
        "path": started.path,
        "status": RUNNING,
        "call_validity": _rounded(started.call_validity),
        "constrained": started.constrained,
        "total_s": round(age_s, 3),
    }


def usage_summary(usage: Usage) -> UsageSummary:
    """Token counts."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "reported": usage.reported,
    }


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _verdict(row: AttemptEnded) -> Verdict | None:
    if row.path == "tunnel":
        return None
    if row.status == "success":
        if row.category:
            return "invalid"  # observed, and delivered all the same
        return "repaired" if row.repairs else "valid"
    return "invalid" if row.status == "validation_failed" else None
