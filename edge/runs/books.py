"""Writes runs and attempts into the books: one row per attempt, on every path.

Two context managers stand around what they record, so that no way out is forgotten. How an
attempt was interrupted is read off the run's scope: cancelled with a reason (by its id, at the
end of a drain), past its deadline, or neither, which means that the client has gone.
"""

import time
from functools import partial
from types import TracebackType
from typing import Any, Self

import trio

from edge.core.attempt import AttemptOutcome, AttemptStatus, outcome_of_error
from edge.core.collected import CollectedOutput
from edge.core.output_policy import OutputPolicy
from edge.core.run_events import (
    AttemptEnded,
    AttemptStarted,
    CallRead,
    Path,
    ResponseMode,
    RunEnded,
    RunStarted,
    Usage,
)
from edge.errors import EdgeError, RunCancelled, RunTimeout, forget_frames
from edge.runs.dispatch import Lease
from edge.runs.observers import Observers
from edge.runs.registry import Registry, Run

CHARS_PER_TOKEN = 4
"""For counts that a provider did not report: the usual rule of thumb for English text."""


class RunBook:
    """Keeps a run in the registry while it lives, and closes its books when it ends."""

    def __init__(self, run: Run, registry: Registry, observers: Observers) -> None:
        self._run = run
        self._registry = registry
        self._observers = observers

    def __enter__(self) -> Self:
        run = self._run
        self._registry.add(run)
        self._observers.tell(
            RunStarted(
                run_id=run.id,
                request_id=run.request_id,
                key=run.key,
                route=run.route,
                model=run.model,
                streamed=run.stream,
                operation=run.operation,
                at=run.started_at,
                time=time.time(),
            )
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._run.draining:
            # The drain's end writes the last row, and then closes this book.
            self._run.phase = "draining"
            self._run.on_drained = partial(self._close, exc)
        else:
            self._close(exc)

    def _close(self, exc: BaseException | None) -> None:
        run = self._run
        if not run.rows or (exc is not None and not self._is_booked(exc)):
            # It ended between attempts (in the queue, in a pause) or before the first one.
            with AttemptRecord(run, self._observers, number=len(run.rows) + 1) as record:
                if isinstance(exc, EdgeError):
                    record.fail(exc)
        run.decided = None  # its traceback knows the run
        last = run.rows[-1]
        run.status = last.status
        run.phase = "done"
        run.ended_at = trio.current_time()
        self._registry.remove(run)
        self._observers.tell(
            RunEnded(
                run_id=run.id,
                request_id=run.request_id,
                key=run.key,
                route=run.route,
                model=run.model,
                provider=last.provider,
                status=run.status,
                attempts=len(run.rows),
                at=run.ended_at,
                total_s=run.ended_at - run.started_at,
                error_type=exc.type if isinstance(exc, EdgeError) else "",
                response_mode=last.response_mode,
                content_chars=last.content_chars,
                reasoning_chars=last.reasoning_chars,
                calls=last.calls,
                policy=_in_words(run.policy),
            )
        )

    def _is_booked(self, exc: BaseException) -> bool:
        """Whether the last row already says how the run ended."""
        if not self._run.rows:
            return False
        if self._run.delivered or self._run.decided is not None:
            return True
        last = self._run.rows[-1].status
        if isinstance(exc, EdgeError) and not isinstance(exc, RunTimeout | RunCancelled):
            return last != "success"
        return last in ("cancelled", "timeout", "drained")


class AttemptRecord:
    """Collects what is known of one attempt and writes its row on the way out.

    Attributes:
        outcome: set by :meth:`succeed`, :meth:`fail` or :meth:`end`; without it the attempt was
            interrupted.
        usage: the provider's own count, the last one it told.
        received_chars: of an answer that did not come to its end; for a guess at its tokens.
        is_handed_over: the answer is being drained, and the row is written at the drain's end.
    """

    def __init__(
        self,
        run: Run,
        observers: Observers,
        *,
        number: int,
        feedback: bool = False,
        constrained: bool = False,
        path: Path = "none",
    ) -> None:
        self._run = run
        self._observers = observers
        self.number = number
        self._feedback = feedback
        self._constrained = constrained
        self._path: Path = path
        self._began = trio.current_time()
        self._first_chunk_at: float | None = None
        self._released_at: float | None = None
        self.provider = ""
        self.model = ""
        self.target = ""
        self.output: CollectedOutput | None = None
        self.text_repairs: tuple[str, ...] = ()
        self.usage: dict[str, Any] | None = None
        self.received_chars = 0
        self.bytes_out = 0
        self.outcome: AttemptOutcome | None = None
        self.is_handed_over = False
        self._phase = ""
        self._call_validity: float | None = None
        self._drained_tokens = 0

    def __enter__(self) -> Self:
        return self

    def started(self, lease: Lease, model: str, path: Path) -> None:
        """The attempt has a slot; times count from here."""
        self.provider, self.model, self.target = lease.provider_name, model, lease.target
        self._path, self._call_validity = path, lease.call_validity
        self._began = trio.current_time()
        self._run.under_way = AttemptStarted(
            run_id=self._run.id,
            attempt=self.number,
            provider=self.provider,
            model=model,
            path=path,
            at=self._began,
            call_validity=lease.call_validity,
            constrained=self._constrained,
            operation=self._run.operation,
        )
        self._observers.tell(self._run.under_way)

    def chunk_came(self) -> None:
        """Content came; the first time is the first token's."""
        if self._first_chunk_at is None:
            self._first_chunk_at = trio.current_time()

    def released(self) -> None:
        """Something of this answer has left for the client; holding it back is over."""
        if self._released_at is None:
            self._released_at = trio.current_time()

    def fail(self, error: EdgeError, *, committed: bool = False, made_calls: bool = False) -> None:
        """The attempt ended in an error."""
        forget_frames(error)
        self.outcome = outcome_of_error(
            error,
            attempt=self.number,
            provider=self.provider,
            model=self.model,
            target=self.target,
            committed=committed,
            made_calls=made_calls,
        )

    def end(self, status: AttemptStatus, **details: Any) -> AttemptOutcome:
        """The attempt ended with this status; ``details`` are fields of the outcome."""
        self.outcome = AttemptOutcome(
            attempt=self.number,
            provider=self.provider,
            model=self.model,
            target=self.target,
            status=status,
            **details,
        )
        return self.outcome

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.is_handed_over:
            return
        if self.outcome is None:
            if isinstance(exc, EdgeError):
                self.fail(exc)
            else:
                status, category = interruption(self._run)
                self.end(status, category=category)
        self._write()

    def hand_over(self) -> None:
        """The client has gone and the answer is read on: :meth:`close_drained` writes the row."""
        self.is_handed_over = True
        self._phase = self._run.phase
        self._run.draining = True

    def close_drained(self, ended_by: str, *, usage: dict[str, Any] | None, tokens: int) -> None:
        """The drain has ended; ``tokens`` is a guess for a provider that reported no usage."""
        run = self._run
        self.usage = usage or self.usage
        self._drained_tokens = tokens
        self.end("drained", category="give_up" if ended_by == "end" else ended_by)
        self._write()
        run.draining = False
        if run.on_drained is not None:
            run.on_drained()
            run.on_drained = None

    def _write(self) -> None:
        row = self._row()
        self._run.rows.append(row)
        self._run.under_way = None
        self._observers.tell(row)

    def _row(self) -> AttemptEnded:
        run, outcome, output = self._run, self.outcome, self.output
        assert outcome is not None  # noqa: S101 - set on the way out, above
        now = trio.current_time()
        first = self._first_chunk_at
        choices = output.choices if output else ()
        calls = [call for choice in choices for call in choice.calls]
        return AttemptEnded(
            run_id=run.id,
            attempt=self.number,
            time=time.time(),
            key=run.key,
            route=run.route,
            provider=self.provider,
            model=self.model,
            path=self._path,
            response_mode=response_mode(run, self._path),
            status=outcome.status,
            category=outcome.category,
            param=_param(outcome),
            reason=_reason(outcome),
            upstream_status=getattr(outcome.error, "upstream_status", 0),
            phase=self._interrupted_in(),
            calls=tuple(call.name for call in calls),
            calls_read=tuple(CallRead(call.origin, bool(call.repairs)) for call in calls),
            forms=tuple(sorted({call.origin for call in calls})),
            repairs=(*self.text_repairs, *(each for call in calls for each in call.repairs)),
            constrained=self._constrained,
            feedback=self._feedback,
            usage=self._usage(),
            content_chars=sum(len(choice.content) for choice in choices),
            reasoning_chars=sum(len(choice.reasoning) for choice in choices),
            bytes_out=self.bytes_out,
            first_token_s=None if first is None else first - self._began,
            held_s=0.0 if first is None else (self._released_at or now) - first,
            total_s=now - self._began,
            cancel_s=self._cancel_s(now),
            operation=run.operation,
            call_validity=self._call_validity,
        )

    def _cancel_s(self, now: float) -> float | None:
        since = self._run.cancelled_at
        was_cancelled = self.outcome is not None and self.outcome.status == "cancelled"
        return now - since if was_cancelled and since is not None else None

    def _interrupted_in(self) -> str:
        if self.is_handed_over:
            return self._phase
        status = self.outcome.status if self.outcome else ""
        return self._run.phase if status in ("cancelled", "timeout") else ""

    def _usage(self) -> Usage:
        output = self.output
        usage = self.usage or (output.usage if output else None)
        if usage:
            return reported_usage(usage)
        if output is None:
            guess = -(-self.received_chars // CHARS_PER_TOKEN)
            return Usage(output_tokens=self._drained_tokens or guess)
        chars = sum(
            len(choice.content)
            + len(choice.reasoning)
            + sum(len(call.arguments) for call in choice.calls)
            for choice in output.choices
        )
        return Usage(output_tokens=-(-chars // CHARS_PER_TOKEN), reported=False)


def interruption(run: Run) -> tuple[AttemptStatus, str]:
    """Status and category of what was cut short, read off the run's scope."""
    if run.stopped_by is not None:
        return "cancelled", run.stopped_by.type
    if run.scope.cancel_called and not run.found_gone:
        return "timeout", "run_timeout"
    return "cancelled", "give_up"


def response_mode(run: Run, path: Path) -> ResponseMode:
    """How the client is being answered."""
    if path == "tunnel":
        return "tunnel"
    return run.policy.buffer if run.stream else "whole"


def reported_usage(usage: dict[str, Any]) -> Usage:
    """The OpenAI ``usage`` object as counts; what is missing or odd counts as 0."""
    prompt = usage.get("prompt_tokens_details") or {}
    completion = usage.get("completion_tokens_details") or {}
    return Usage(
        input_tokens=_count(usage, "prompt_tokens"),
        output_tokens=_count(usage, "completion_tokens"),
        cached_tokens=_count(prompt, "cached_tokens"),
        reasoning_tokens=_count(completion, "reasoning_tokens"),
        reported=True,
    )


def _in_words(policy: OutputPolicy) -> str:
    words = [f"buffer={policy.buffer}", f"validate={policy.validate}"]
    words += ["strict"] if policy.strict else []
    if policy.xml_completion_tool:
        words.append(f"xml_completion_tool={policy.xml_completion_tool}")
    return " ".join(words)


def _count(holder: object, name: str) -> int:
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if type(value) is int and value >= 0 else 0


def _param(outcome: AttemptOutcome) -> str:
    if outcome.reasons:
        return outcome.reasons[0].param or ""
    return (outcome.error.param if outcome.error else None) or ""


def _reason(outcome: AttemptOutcome) -> str:
    if outcome.reasons:
        return "; ".join(reason.message for reason in outcome.reasons)
    return outcome.error.message if outcome.error else ""
