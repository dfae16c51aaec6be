"""Attempts as the runs API and the mirror show them; times in seconds."""

from typing import Any

from edge.core.run_events import AttemptEnded, AttemptStarted, Usage


def attempt_summary(row: AttemptEnded, *, judged: bool = True) -> dict[str, Any]:
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
        "constrained": row.constrained,
        "feedback": row.feedback,
        "first_token_s": row.first_token_s,
        "held_s": row.held_s,
        "total_s": row.total_s,
        "usage": usage_summary(row.usage),
    }


def running_attempt(started: AttemptStarted, now: float) -> dict[str, Any]:
    """An attempt that is under way; ``now`` is on the clock of ``started.at``."""
    return {
        "attempt": started.attempt,
        "provider": started.provider,
        "model": started.model,
        "path": started.path,
        "status": "running",
        "constrained": started.constrained,
        "total_s": round(now - started.at, 3),
    }


def usage_summary(usage: Usage) -> dict[str, Any]:
    """Token counts."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "reported": usage.reported,
    }


def _verdict(row: AttemptEnded) -> str | None:
    if row.path == "tunnel":
        return None
    if row.status == "success":
        if row.category:
            return "invalid"  # observed, and delivered all the same
        return "repaired" if row.repairs else "valid"
    return "invalid" if row.status == "validation_failed" else None
