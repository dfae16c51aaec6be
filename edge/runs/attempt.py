"""One attempt: a slot, a request, the provider's answer, and the verdict on it.

The attempt's row is written on every way out, and the slot goes back in a ``finally`` that does
not wait, after the provider's connection has been closed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from edge.core.collect import Collector
from edge.core.collected import CollectedOutput
from edge.core.constrain import constrained_request, with_strict_tools
from edge.core.contract import Contract
from edge.core.feedback import retry_messages
from edge.core.normalize import Normalizer
from edge.core.reread import read_calls
from edge.core.retry import Again
from edge.core.stream_events import StreamEvent, TextDelta
from edge.core.validate import holds_text, judge
from edge.core.verdict import Invalid, Reason, Verdict
from edge.errors import EdgeError, ProviderProtocolError
from edge.providers.port import ChunkStream, ProviderRequest
from edge.runs.answer import Answer
from edge.runs.books import AttemptRecord, interruption
from edge.runs.deadlines import AttemptDeadline, AttemptTimeouts
from edge.runs.dispatch import Dispatcher, Lease
from edge.runs.drain import Drained, Drainer, DrainTerms
from edge.runs.observers import Observers
from edge.runs.registry import ChatRun, Run
from edge.wire.openai_chat import provider_body
from edge.wire.openai_chunks import Chunk, says_something, whole_chunk

ReadBack: TypeAlias = Callable[[CollectedOutput], CollectedOutput]

NO_TOOLS = Contract()

MAX_ANSWER_CHARS = 64 * 1024 * 1024
"""Bound of an answer that leaves as it comes: what has been shown is kept too, to be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderOptions:
    """What the runs need to know of a provider beside how to reach it.

    Attributes:
        strict_tools: ask for constrained arguments.
        send_metadata: put what a retry carries into the body's ``metadata`` too.
        ask_usage: ask for usage where a tunnelled client did not.
        continuous_usage: ask that usage be told with every chunk, for answers that are broken off.
        drain: how far an answer is read on after its client has gone; None: not at all.
    """

    timeouts: AttemptTimeouts = AttemptTimeouts()
    strict_tools: bool = False
    send_metadata: bool = False
    ask_usage: bool = True
    continuous_usage: bool = False
    drain: DrainTerms | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPlan:
    """How an attempt is to be made.

    Attributes:
        number: 1 for the first attempt of the run.
        how: what the retry decision asked for; empty for the first attempt.
        failed: the verdict that the model is told about, if it is to be told.
        because: category of the failure before, for ``x-edge-retry-reason``.
    """

    number: int = 1
    how: Again = field(default_factory=Again)
    failed: Invalid | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class _Question:
    """A request as it goes out, and how its answer is to be read."""

    request: ProviderRequest
    contract: Contract
    read_back: ReadBack | None = None


class Attempts:
    """Makes attempts for runs; what all runs share."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        observers: Observers,
        options: Mapping[str, ProviderOptions],
        drainer: Drainer,
    ) -> None:
        self._dispatcher = dispatcher
        self._observers = observers
        self._options = options
        self._drainer = drainer

    async def make(
        self, run: ChatRun, plan: AttemptPlan, answer: Answer
    ) -> tuple[AttemptRecord, Verdict | None]:
        """Make one attempt; a sound answer has been delivered when this returns.

        Returns the attempt's record, whose ``outcome`` says how it ended, and the verdict, if an
        answer came that far.

        Raises:
            Overloaded: no slot of the route can be had.
            ClientGone: while writing.
        """
        record = AttemptRecord(
            run,
            self._observers,
            number=plan.number,
            feedback=plan.failed is not None,
            constrained=plan.how.constrained,
        )
        verdict: Verdict | None = None
        with record:
            run.phase = "queued"
            lease = await self._dispatcher.lease(run.route, avoid=plan.how.avoid)
            try:
                model = lease.model or run.request.model
                # Told first: a tracer sets here what trace the provider is to continue.
                record.started(lease, model, "normalized")
                question = self._question(run, plan, lease)
                answer.begin(record, hold_text=plan.how.constrained or _holds_text(run))
                output = await self._receive(run, lease, question, record, answer)
                verdict = await self._settle(run, output, record, answer)
            except EdgeError as error:
                record.fail(error, committed=answer.committed)
            finally:
                if not record.is_handed_over:
                    lease.release(record.outcome)
        return record, verdict

    async def _receive(
        self, run: ChatRun, lease: Lease, question: _Question, record: AttemptRecord, answer: Answer
    ) -> CollectedOutput:
        """Read the provider's answer to its end, showing what may be shown on the way."""
        timeouts = self._options[lease.provider_name].timeouts
        deadline = AttemptDeadline(timeouts, provider=lease.provider_name)
        intake = _Intake(run, question, record, answer, deadline)
        run.phase = "connecting"
        with deadline:
            try:
                async with self._open(run, lease, question.request, record, deadline) as stream:
                    run.phase = "waiting"
                    await intake.take_all(stream)
            finally:
                # What an interrupted answer has cost so far.
                record.usage, record.received_chars = intake.usage, intake.chars
        return await intake.finish()

    def _open(
        self,
        run: ChatRun,
        lease: Lease,
        request: ProviderRequest,
        record: AttemptRecord,
        deadline: AttemptDeadline,
    ) -> AbstractAsyncContextManager[ChunkStream]:
        terms = self._options[lease.provider_name].drain
        if terms is None:
            return lease.provider.open(request)
        custody = _Custody(run, lease, record, deadline)
        return self._drainer.open(lease.provider, request, terms, custody)

    async def _settle(
        self, run: ChatRun, output: CollectedOutput, record: AttemptRecord, answer: Answer
    ) -> Verdict | None:
        """Judge a whole answer and, if it may leave, deliver the rest of it."""
        run.phase = "validating"
        record.output = output
        verdict: Verdict | None = None
        reasons: tuple[Reason, ...] = ()
        if run.policy.validate != "off":
            verdict = judge(output, run.compiled, run.policy)
            record.output = verdict.output
            if isinstance(verdict, Invalid):
                reasons = verdict.reasons
                await answer.settle()  # what was offered last has left, whatever becomes of it
            else:
                record.text_repairs = verdict.repairs
        if reasons and run.policy.validate == "enforce":
            record.end(
                "validation_failed",
                category=reasons[0].category,
                reasons=reasons,
                committed=run.policy.buffer == "off" and answer.committed,
                made_calls=any(choice.calls for choice in output.choices),
            )
            return verdict
        run.phase = "writing"
        await answer.deliver(verdict.output if verdict else output)
        # Observed faults stay in the row of an answer that was delivered all the same.
        record.end(
            "success",
            category=reasons[0].category if reasons else "",
            reasons=reasons,
            made_calls=any(choice.calls for choice in output.choices),
        )
        return verdict

    def _question(self, run: ChatRun, plan: AttemptPlan, lease: Lease) -> _Question:
        options = self._options[lease.provider_name]
        chat = run.request
        facts = _attempt_facts(run, plan)
        messages = run.messages
        if plan.failed is not None:
            messages = [*messages, *retry_messages(plan.failed.output, plan.failed.reasons)]
        body = provider_body(
            chat,
            model=lease.model or chat.model,
            messages=messages,
            metadata=facts if options.send_metadata else {},
        )
        if options.continuous_usage:
            body["stream_options"]["continuous_usage_stats"] = True
        if options.strict_tools and body.get("tools"):
            body["tools"] = with_strict_tools(body["tools"])
        contract, read_back = run.compiled.contract, None
        if plan.how.constrained:
            body, read_back = constrained_request(body, contract)
            contract = NO_TOOLS
        request = ProviderRequest(
            body=body,
            model=body["model"],
            attempt=plan.number,
            run_id=run.id,
            headers={**facts, **run.trace_headers},
        )
        return _Question(request, contract, read_back)


class _Custody:
    """Keeps slot and row of an attempt whose answer is drained, until the drain has ended."""

    def __init__(
        self, run: Run, lease: Lease, record: AttemptRecord, deadline: AttemptDeadline
    ) -> None:
        self._run = run
        self._lease = lease
        self._record = record
        self._deadline = deadline

    def gave_up(self) -> bool:
        """See :class:`~edge.runs.drain.Custodian`."""
        return not self._deadline.expired and interruption(self._run)[1] == "give_up"

    def hand_over(self) -> None:
        """See :class:`~edge.runs.drain.Custodian`."""
        self._record.hand_over()

    def drained(self, result: Drained) -> None:
        """See :class:`~edge.runs.drain.Custodian`."""
        self._record.close_drained(result.ended_by, usage=result.usage, tokens=result.chunks)
        self._lease.release(self._record.outcome)


class _Intake:
    """Takes an answer in: normalizes, collects, and offers the client what may leave."""

    def __init__(
        self,
        run: ChatRun,
        question: _Question,
        record: AttemptRecord,
        answer: Answer,
        deadline: AttemptDeadline,
    ) -> None:
        self._run = run
        self._record = record
        self._answer = answer
        self._deadline = deadline
        self._read_back = question.read_back
        self._live = answer.is_live
        self._traced = run.policy.trace
        self._normalizer = Normalizer(question.contract, run.policy, live=self._live)
        self._collector = Collector()
        self._max_held = run.policy.max_held_bytes
        self._complete = False

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage reported so far: the last one, where the provider counts along."""
        return self._normalizer.usage

    @property
    def chars(self) -> int:
        """Characters of text and calls so far."""
        return self._normalizer.read_chars + self._normalizer.held_chars

    async def take_all(self, stream: ChunkStream) -> None:
        """Read the stream to its end."""
        while chunks := await stream.receive():
            if self._take(chunks):
                await stream.receive_each(self._take)
            await self._answer.settle()
        self._complete = stream.complete

    async def finish(self) -> CollectedOutput:
        """The whole answer."""
        if not self._complete and not self._normalizer.has_finish:
            raise ProviderProtocolError(
                "the provider's stream ended without a finish reason and without [DONE]",
                provider=self._record.provider,
            )
        self._take_events(self._normalizer.finish(), last=True)
        output = self._collector.output()
        if self._read_back is None:
            return output
        # A server that passed over the schema has answered as it always does.
        run = self._run
        return read_calls(self._read_back(output), run.compiled.contract, run.policy)

    def _take(self, chunks: Sequence[Chunk]) -> bool:
        """Take what one read brought; returns whether nothing waits for the client.

        Nearly all chunks are a piece of text in mid-answer: those take the short way, on which no
        event is made.
        """
        now = self._deadline.progress()
        if self._traced and self._run.mirror is not None:
            self._run.mirror.received([*map(whole_chunk, chunks)], live=self._live)
        if self._run.phase == "waiting" and any(map(says_something, chunks)):
            self._run.phase = "streaming"
            self._record.chunk_came()
        pass_on = self._normalizer.pass_on
        texts: list[str] = []
        for chunk in chunks:
            text = pass_on(chunk) if isinstance(chunk, str) else None
            if text is None:
                return self._take_events(self._events(texts, chunks))
            texts.append(text)
        self._collector.feed_texts(texts)
        goes_on = self._answer.offer_texts(texts, now)
        self._bound()
        return goes_on

    def _events(self, texts: list[str], chunks: Sequence[Chunk]) -> list[StreamEvent]:
        """The events of one read, whose first chunks have passed on already, as these texts."""
        feed = self._normalizer.feed
        events: list[StreamEvent] = [TextDelta(text) for text in texts if text]
        for chunk in chunks[len(texts) :]:
            events += feed(chunk)
        return events

    def _take_events(self, events: list[StreamEvent], *, last: bool = False) -> bool:
        goes_on = True
        if events:
            self._collector.feed(events)
            goes_on = self._answer.offer(events, last=last)
        self._bound()
        return goes_on

    def _bound(self) -> None:
        collector = self._collector
        held = collector.chars - self._answer.shown_chars + self._normalizer.held_chars
        if collector.chars + collector.beside > MAX_ANSWER_CHARS:
            raise ProviderProtocolError(
                f"the answer is longer than {MAX_ANSWER_CHARS} characters",
                provider=self._record.provider,
                code="too_large",
            )
        if held > self._max_held:
            raise ProviderProtocolError(
                f"the answer is longer than the {self._max_held} bytes that may be held",
                provider=self._record.provider,
                code="too_large",
            )


def _holds_text(run: ChatRun) -> bool:
    """Whether text that the request makes demands on waits for the verdict."""
    policy = run.policy
    judged_first = policy.validate == "enforce" and policy.buffer != "off"
    return judged_first and holds_text(run.compiled)


def _attempt_facts(run: Run, plan: AttemptPlan) -> dict[str, str]:
    """What a provider is told of an attempt: never model text, only a category."""
    facts = {"x-edge-run-id": run.id, "x-edge-attempt": str(plan.number)}
    if plan.number > 1:
        facts["x-edge-failed-attempt"] = f"{run.id}.{plan.number - 1}"
        facts["x-edge-retry-reason"] = plan.because
    return facts
