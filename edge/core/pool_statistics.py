"""What the pool shows of itself, for ``/metrics`` and ``GET /v1/providers``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderStatistics:
    """One provider.

    Attributes:
        max_concurrent: its slots, 0 for no cap.
        busy: slots taken.
        waiting: runs that would take one of its slots.
        health: ``closed``, ``open``, ``probing`` or ``paused`` (``core.breaker``).
        failures: failures in a row.
        resumes_in_s: seconds until it is asked again, 0 where it is not paused.
    """

    name: str
    max_concurrent: int
    busy: int
    waiting: int
    health: str
    failures: int
    resumes_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetStatistics:
    """One target (a provider, with the model it is asked for).

    Attributes:
        call_validity: measured share of sound tool calls (``core.call_validity``).
        judged: answers this rests on.
        penalty: the factor on its ``least_busy`` score.
    """

    name: str
    provider: str
    model: str | None
    call_validity: float
    judged: int
    penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolStatistics:
    """The pool; ``waiting`` counts runs, each once, however many queues it stands in."""

    waiting: int
    providers: tuple[ProviderStatistics, ...]
    targets: tuple[TargetStatistics, ...]
