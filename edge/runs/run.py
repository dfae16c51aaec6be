"""READ THIS FIRST: one run, from its admission to the last byte of its answer.

The run is one straight coroutine in the task of its request. A client that leaves cancels that
task, wherever it is: in the queue, at the provider, in a pause, while writing. ``run.scope`` is
the run's own cancel scope, with its deadline; cancelling a run by its id cancels it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

import trio

from edge.core.attempt import AttemptOutcome
from edge.core.retry import Accept, Again, Fail, RetryPolicy, decide, nothing_offered
from edge.core.verdict import Invalid, Verdict
from edge.errors import EdgeError, Overloaded, RunTimeout
from edge.runs.admission import Admission
from edge.runs.answer import StreamedAnswer, open_answer
from edge.runs.attempt import AttemptPlan, Attempts
from edge.runs.books import AttemptRecord, RunBook
from edge.runs.dispatch import Dispatcher
from edge.runs.heartbeats import Heartbeats
from edge.runs.observers import Observers
from edge.runs.registry import ChatRun, Registry, Run
from edge.runs.reply import ClientGone, Reply

MakeAttempt: TypeAlias = Callable[[AttemptPlan], Awaitable[tuple[AttemptRecord, Verdict | None]]]
"""Makes one attempt of a run; a sound answer has been delivered when it returns."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What all runs of a gateway share; ``jitter`` gives numbers in [0, 1)."""

    registry: Registry
    observers: Observers
    admission: Admission
    dispatcher: Dispatcher
    attempts: Attempts
    heartbeats: Heartbeats
    jitter: Callable[[], float]


async def carry_run(run: ChatRun, reply: Reply, desk: Desk) -> None:
    """Carry a chat run to its end; its answer has been sent when this returns.

    Raises:
        EdgeError: what the client must be told; nothing of the run follows it.
        ClientGone: the client has left, or stopped reading.
    """
    answer = open_answer(run, reply, desk.observers)

    async def attempt(plan: AttemptPlan) -> tuple[AttemptRecord, Verdict | None]:
        return await desk.attempts.make(run, plan, answer)

    heart = answer if isinstance(answer, StreamedAnswer) else None
    await carry(run, desk, retry_policy(run, desk.dispatcher), attempt, heart=heart)


async def carry(
    run: Run,
    desk: Desk,
    retries: RetryPolicy,
    attempt: MakeAttempt,
    *,
    heart: StreamedAnswer | None = None,
) -> None:
    """Carry a run of any kind to its end; what an attempt is, is the kind's affair.

    Args:
        run: with its policy, its scope and its rows.
        desk: what all runs share.
        retries: what may be done about a failed attempt.
        attempt: makes one.
        heart: keeps the client's connection alive while it waits; None lets it wait.

    Raises:
        EdgeError: what the client must be told.
        ClientGone: the client has left, or stopped reading.
    """
    with RunBook(run, desk.registry, desk.observers):
        run.scope.deadline = run.started_at + run.policy.run_timeout_s
        failure: EdgeError | ClientGone | None = None
        with run.scope, _kept_alive(run, desk, heart):
            failure = await _admitted(run, desk, retries, attempt)
        if run.scope.cancelled_caught and not run.delivered:
            failure = _why_cancelled(run)
        if failure is not None:
            raise failure


def _kept_alive(run: Run, desk: Desk, heart: StreamedAnswer | None) -> AbstractContextManager[None]:
    """A streaming client is kept alive while it waits, and one that is not there is noticed."""
    if heart is None:
        return nullcontext()
    return desk.heartbeats.keep(heart, run.policy.heartbeat_s)


def _why_cancelled(run: Run) -> EdgeError | ClientGone:
    """Who cancelled the run's own scope, or that its time is over."""
    if run.found_gone:
        return ClientGone()
    late = RunTimeout(f"the run took longer than {run.policy.run_timeout_s:g} s", spent=True)
    return run.decided or run.stopped_by or late


async def _admitted(
    run: Run, desk: Desk, retries: RetryPolicy, attempt: MakeAttempt
) -> EdgeError | ClientGone | None:
    try:
        async with desk.admission.admit(run.key, run.key_limit):
            await _attempt_until_sound(run, desk, retries, attempt)
    except (EdgeError, ClientGone) as failure:
        return failure
    return None


async def _attempt_until_sound(
    run: Run, desk: Desk, retries: RetryPolicy, attempt: MakeAttempt
) -> None:
    """The attempt loop: ask, judge, and ask again while that makes sense."""
    records: list[AttemptRecord] = []
    plan = AttemptPlan()
    while True:
        try:
            record, verdict = await attempt(plan)
        except Overloaded as nothing:
            run.decided = nothing_offered(_outcomes(records), nothing)
            if run.decided is nothing:
                raise
            raise run.decided from nothing
        records.append(record)
        decision = decide(
            _outcomes(records),
            retries,
            saturated=desk.dispatcher.saturated(run.route),
            jitter=desk.jitter(),
        )
        match decision:
            case Accept():
                return
            case Fail(error):
                run.decided = error
                raise error
            case Again(after_s=pause):
                run.phase = "retrying"
                await trio.sleep(pause)
                plan = _next_plan(plan, decision, record, verdict)


def retry_policy(run: ChatRun, dispatcher: Dispatcher) -> RetryPolicy:
    """What a chat run may do about a failed attempt."""
    policy = run.policy
    return RetryPolicy(
        max_attempts=policy.max_attempts,
        feedback=policy.feedback,
        constrain_last_attempt=policy.constrain_last_attempt,
        offers_tools=bool(run.compiled.contract.tools),
        targets=dispatcher.targets(run.route, need_normalized=True),
    )


def _next_plan(
    plan: AttemptPlan, how: Again, record: AttemptRecord, verdict: Verdict | None
) -> AttemptPlan:
    told = verdict if how.feedback and isinstance(verdict, Invalid) else None
    outcome = record.outcome
    return AttemptPlan(
        number=plan.number + 1,
        how=how,
        failed=told,
        because=outcome.category if outcome else "",
    )


def _outcomes(records: list[AttemptRecord]) -> list[AttemptOutcome]:
    return [record.outcome for record in records if record.outcome is not None]
