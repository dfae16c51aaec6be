"""Whether a provider is fit to be asked, judged by how its attempts ended.

    closed ──(limit failures in a row)──▶ open ──(pause over)──▶ probing ──success──▶ closed
                                           ▲                        │
                                           └──(pause twice as long)─┘ failure

While open nobody is sent there. After the pause one attempt is let through, the probe: its success
closes the breaker, its failure opens it again for longer, and a probe whose client gave up says
nothing, so the next attempt is the probe. What was under way when the breaker opened changes
nothing any more: it started in another time.

A provider that some route has no alternative to is judged less strictly: only silence (no
connection, a deadline that passed) opens its breaker. While it answers, errors included, refusing
everybody would make one client's poisonous request the failure of all.

A provider that names a time itself (``Retry-After``) is left alone until then, without a probe
afterwards: it is well and merely busy.
"""

from dataclasses import dataclass

from edge.core.attempt import AttemptOutcome

_NOT_ITS_FAULT = frozenset({"http_4xx", "stream_4xx", "http_409", "too_large"})
"""Categories in which a provider works, and this request or its answer is too much for us."""

_SILENCE = frozenset({"connect", "connect_timeout", "first_token_timeout", "idle_timeout"})
"""Categories in which nothing was heard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerLimits:
    """When to leave a provider alone, and for how long.

    Attributes:
        failures: so many in a row open the breaker.
        first_pause_s: the first pause; each failed probe doubles it.
        longest_pause_s: no pause is longer, a ``Retry-After`` included.
    """

    failures: int = 5
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0


class Breaker:
    """The health of one provider; ``now`` is in seconds of any steady clock."""

    __slots__ = (
        "_limits",
        "_open",
        "_pause_s",
        "_probe_out",
        "failures",
        "irreplaceable",
        "resumes_at",
    )

    def __init__(self, limits: BreakerLimits, *, irreplaceable: bool = False) -> None:
        self._limits = limits
        self.irreplaceable = irreplaceable
        self._open = False
        self._probe_out = False
        self._pause_s = limits.first_pause_s
        self.failures = 0
        self.resumes_at = 0.0
        """Nobody is sent before this time."""

    def is_paused(self, now: float) -> bool:
        """Whether the provider is to be left alone now."""
        return now < self.resumes_at

    def allows(self, now: float) -> bool:
        """Whether an attempt may start now, slots apart."""
        return now >= self.resumes_at and not (self._open and self._probe_out)

    def start(self) -> bool:
        """An attempt starts; returns whether it is the probe."""
        self._probe_out = self._open
        return self._open

    def end(self, outcome: AttemptOutcome | None, *, probe: bool, now: float) -> None:
        """An attempt ended; None for one that says nothing."""
        if probe:
            self._probe_out = False
        if outcome is None:
            return
        if outcome.retry_after_s is not None and outcome.status == "upstream_error":
            pause_s = min(max(outcome.retry_after_s, 0.0), self._limits.longest_pause_s)
            self.resumes_at = max(self.resumes_at, now + pause_s)
        if self._open and not probe:
            return
        if speaks_well(outcome):
            self._close()
        elif speaks_ill(outcome) and (not self.irreplaceable or outcome.category in _SILENCE):
            self._count(now)

    def state(self, now: float) -> str:
        """``closed``, ``open``, ``probing`` or ``paused`` (by the provider's own word)."""
        if self._open:
            return "open" if self.is_paused(now) else "probing"
        return "paused" if self.is_paused(now) else "closed"

    def _close(self) -> None:
        self._open = False
        self.failures = 0
        self._pause_s = self._limits.first_pause_s

    def _count(self, now: float) -> None:
        self.failures += 1
        if self._open or self.failures >= self._limits.failures:
            self._open = True
            self.resumes_at = max(self.resumes_at, now + self._pause_s)
            self._pause_s = min(self._pause_s * 2, self._limits.longest_pause_s)


def speaks_well(outcome: AttemptOutcome) -> bool:
    """Whether the outcome shows a provider that works: a whole answer, sound or not."""
    return outcome.status in ("success", "validation_failed")


def speaks_ill(outcome: AttemptOutcome) -> bool:
    """Whether the outcome counts against the provider: not for give-ups and client errors."""
    if outcome.status == "timeout":
        return outcome.category != "run_timeout"
    return outcome.status == "upstream_error" and outcome.category not in _NOT_ITS_FAULT
