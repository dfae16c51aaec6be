"""READ THIS FIRST: one run, from its admission to the last byte of its answer.

The run is one straight coroutine in the task of its request. A client that leaves cancels that
task, wherever it is: in the queue, at the provider, in a pause, while writing. ``run.scope`` is
the run's own cancel scope, with its deadline; cancelling a run by its id cancels it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import trio

from edge.core.attempt import AttemptOutcome
from edge.core.retry import Accept, Again, Fail, RetryPolicy, decide, nothing_offered
from edge.core.verdict import Invalid, Verdict
from edge.errors import EdgeError, Overloaded, RunTimeout
from edge.runs.admission import Admission
from edge.runs.answer import StreamedAnswer, WholeAnswer, open_answer
from edge.runs.attempt import AttemptPlan, Attempts
from edge.runs.books import AttemptRecord, RunBook
from edge.runs.dispatch import Dispatcher
from edge.runs.observers import Observers
from edge.runs.registry import Registry, Run
from edge.runs.reply import ClientGone, Reply


@dataclass(frozen=True, slots=True)
class Desk:
    """What all runs of a gateway share; ``jitter`` gives numbers in [0, 1)."""

    registry: Registry
    observers: Observers
    admission: Admission
    dispatcher: Dispatcher
    attempts: Attempts
    jitter: Callable[[], float]


async def carry_run(run: Run, reply: Reply, desk: Desk) -> None:
    """Carry one run to its end; its answer has been sent when this returns.

    Raises:
        EdgeError: what the client must be told; nothing of the run follows it.
        ClientGone: the client has left, or stopped reading.
    """
    answer = open_answer(run, reply, desk.observers)
    with RunBook(run, desk.registry, desk.observers):
        run.scope.deadline = run.started_at + run.policy.run_timeout_s
        failure: EdgeError | ClientGone | None = None
        with run.scope:
            failure = await _with_heartbeats(run, answer, desk)
        if run.scope.cancelled_caught:
            failure = run.stopped_by or RunTimeout(
                f"the run took longer than {run.policy.run_timeout_s:g} s", spent=True
            )
        if failure is not None:
            raise failure


async def _with_heartbeats(
    run: Run, answer: StreamedAnswer | WholeAnswer, desk: Desk
) -> EdgeError | ClientGone | None:
    """Let the run through; a streaming client is kept alive while it waits.

    Failures are returned, since a nursery would wrap them in a group.
    """
    if isinstance(answer, WholeAnswer):
        return await _admitted(run, answer, desk)
    failure: EdgeError | ClientGone | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(answer.beat, nursery.cancel_scope)
        failure = await _admitted(run, answer, desk)
        nursery.cancel_scope.cancel()
    return ClientGone() if answer.client_gone else failure


async def _admitted(
    run: Run, answer: StreamedAnswer | WholeAnswer, desk: Desk
) -> EdgeError | ClientGone | None:
    try:
        async with desk.admission.admit(run.key, run.key_limit):
            await _attempt_until_sound(run, answer, desk)
    except (EdgeError, ClientGone) as failure:
        return failure
    return None


async def _attempt_until_sound(run: Run, answer: StreamedAnswer | WholeAnswer, desk: Desk) -> None:
    """The attempt loop: ask, judge, and ask again while that makes sense."""
    policy = retry_policy(run, desk.dispatcher)
    records: list[AttemptRecord] = []
    plan = AttemptPlan()
    while True:
        try:
            record, verdict = await desk.attempts.make(run, plan, answer)
        except Overloaded as nothing:
            raise nothing_offered(_outcomes(records), nothing) from nothing
        records.append(record)
        decision = decide(
            _outcomes(records),
            policy,
            saturated=desk.dispatcher.saturated(run.route),
            jitter=desk.jitter(),
        )
        match decision:
            case Accept():
                return
            case Fail(error):
                raise error
            case Again(after_s=pause):
                run.phase = "retrying"
                await trio.sleep(pause)
                plan = _next_plan(plan, decision, record, verdict)


def retry_policy(run: Run, dispatcher: Dispatcher) -> RetryPolicy:
    """What this run may do about a failed attempt."""
    policy = run.policy
    return RetryPolicy(
        max_attempts=policy.max_attempts,
        feedback=policy.feedback,
        constrain_last_attempt=policy.constrain_last_attempt,
        offers_tools=bool(run.compiled.contract.tools),
        targets=dispatcher.targets(run.route),
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
