"""Runs recovery and validation over recorded answers again, and tells each decision.

The very parts that a run goes through (normalizer, collector, judge, retry decision) are asked
again, so what they decide now is told, which may differ from what an older version decided then.
Each decision is a kind, a sentence, and the values in it.
"""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from edge.core.attempt import MODEL_FAILURE, AttemptOutcome, outcome_of_error
from edge.core.collect import Collector
from edge.core.collected import CollectedOutput
from edge.core.constrain import constrained_request
from edge.core.contract import Contract
from edge.core.fleet import Target
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.core.recording import RecordedAttempt, RecordedRun
from edge.core.request_contract import contract_of
from edge.core.reread import read_calls
from edge.core.retry import Accept, Again, Fail, RetryPolicy, decide
from edge.core.schemas import CompiledContract, compile_contract
from edge.core.stream_events import Finish, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from edge.core.validate import judge
from edge.core.verdict import OUTPUT_CATEGORIES, Category, Invalid, Reason
from edge.errors import EdgeError, ProviderError, ProviderProtocolError
from edge.wire.openai_chat import chat_request
from edge.wire.openai_chunks import chunk_error

_RECORDED = "recorded"
_SHOWN = 120
_IN_WORDS = {"feedback": "with feedback", "constrained": "constrained to a schema"}


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that was decided.

    Attributes:
        kind: ``run``, ``attempt``, ``then`` (what was decided when it was recorded), ``missing``
            (what the recording lacks), ``held``, ``released``, ``call``, ``finish``, ``repair``,
            ``valid``, ``invalid``, ``error``, ``retry``.
        message: a sentence.
        details: its values, for JSON.
    """

    kind: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


def replay_run(
    run: RecordedRun, *, request: Mapping[str, Any] | None = None, output: str = ""
) -> Iterator[Decision]:
    """Every decision about a recorded run, in order.

    Args:
        run: what was recorded.
        request: the client's body, in the place of the recorded one.
        output: overrides of the output policy, as in ``x-edge-output``.

    Raises:
        InvalidRequest: the request, or the overrides, would be refused.
    """
    asked = run.request if request is None else request
    body = _body(asked)
    chat = chat_request(body)
    policy = apply_overrides(run.policy, header=output, metadata=chat.metadata)
    compiled = compile_contract(
        contract_of(chat, strict=policy.strict, xml_completion_tool=policy.xml_completion_tool)
    )
    tools = ", ".join(compiled.contract.tools) or "no tools"
    yield Decision("run", f"{run.name}: {tools} offered", {"run": run.name})
    if asked is None:
        yield Decision("missing", "the request was not recorded: no tools are known of it")
    if run.missed:
        yield _missing(run.missed)
    retries = RetryPolicy(
        max_attempts=policy.max_attempts,
        feedback=policy.feedback,
        constrain_last_attempt=policy.constrain_last_attempt,
        offers_tools=bool(compiled.contract.tools),
        targets=(Target(provider=_RECORDED),),
    )
    outcomes: list[AttemptOutcome] = []
    for attempt in run.attempts:
        replayed = _Replayed(attempt, compiled, policy, body)
        yield from replayed.decisions()
        outcomes.append(replayed.outcome)
        yield _next(outcomes, retries)


class _Replayed:
    """One attempt."""

    def __init__(
        self,
        attempt: RecordedAttempt,
        compiled: CompiledContract,
        policy: OutputPolicy,
        body: Mapping[str, Any],
    ) -> None:
        self._attempt = attempt
        self._compiled = compiled
        self._policy = policy
        self._body = body
        self.outcome = AttemptOutcome(attempt=attempt.number, status="success")

    def decisions(self) -> Iterator[Decision]:
        attempt = self._attempt
        number = attempt.number
        how = " (constrained)" if attempt.constrained else ""
        yield Decision("attempt", f"attempt {number}{how}", {"attempt": number})
        if attempt.missed:
            yield _missing(attempt.missed)
        if attempt.failed is not None:
            category, reason = attempt.failed.get("category"), attempt.failed.get("reason")
            told = {"category": category, "reason": reason}
            yield Decision("then", f"it was recorded as failed: {category}: {reason}", told)
        failed = attempt.failed or {}
        unjudged = failed.get("status") not in (None, "validation_failed")
        nothing = not (attempt.chunks or attempt.held or attempt.shown)
        if nothing and failed.get("status"):
            yield from self._broke_off(failed)
            return
        try:
            output = yield from self._read()
        except EdgeError as error:
            self.outcome = outcome_of_error(error, attempt=number, provider=_RECORDED)
            yield Decision("error", error.message, {"category": self.outcome.category})
            return
        if unjudged:
            yield from self._broke_off(failed)
        elif self._policy.validate == "off":
            yield Decision("valid", "it was not judged: validate is off", {"judged": False})
        else:
            yield from self._judge(output)

    def _broke_off(self, failed: Mapping[str, Any]) -> Iterator[Decision]:
        """What came from outside cannot come again: it is taken as it was recorded."""
        status, category = failed["status"], str(failed.get("category"))
        reason = str(failed.get("reason") or category)
        told = f"no answer to judge; taken as it was recorded: {status}"
        if status == "validation_failed" and category != MODEL_FAILURE:
            told += " (answers are recorded of traced runs)"
        yield Decision("error", told, {"category": category})
        self.outcome = AttemptOutcome(
            attempt=self._attempt.number,
            provider=_RECORDED,
            status=status,
            category=category,
            error=ProviderError(reason, provider=_RECORDED),
            reasons=_reasons(category, reason) if status == "validation_failed" else (),
            made_calls=status == "validation_failed" and category not in OUTPUT_CATEGORIES,
            committed=self._is_shown(),
        )

    def _is_shown(self) -> bool:
        """Whether the client had been given something that cannot be taken back."""
        return self._policy.buffer == "off" and self._attempt.live and bool(self._attempt.chunks)

    def _read(self) -> Generator[Decision, None, CollectedOutput]:
        if not self._attempt.chunks:
            return (yield from self._read_events())
        contract, read_back = self._compiled.contract, None
        if self._attempt.constrained:
            _, read_back = constrained_request(self._body, contract)
            contract = Contract()
        normalizer = Normalizer(contract, self._policy, live=self._attempt.live)
        collector = Collector()
        narrator = _Narrator()
        for number, chunk in enumerate(self._attempt.chunks, 1):
            fault = chunk_error(chunk)
            if fault is not None:
                raise fault
            events = normalizer.feed(chunk)
            collector.feed(events)
            yield from narrator.fed(number, normalizer.read_chars, events)
        if not normalizer.has_finish:
            yield Decision("finish", "the recording ends without a finish reason")
        events = normalizer.finish()
        collector.feed(events)
        yield from narrator.ended(events)
        output = collector.output()
        if read_back is None:
            return output
        read = read_calls(read_back(output), self._compiled.contract, self._policy)
        for before, after in zip(output.choices, read.choices, strict=True):
            if not before.calls:
                yield from map(_call, after.calls)
        return read

    def _read_events(self) -> Generator[Decision, None, CollectedOutput]:
        """From a mirror's frames: the reading was done then, the judging is done again."""
        attempt = self._attempt
        events = [*attempt.held, *attempt.shown]
        if not events:
            raise ProviderProtocolError("nothing of its answer was recorded")
        collector = Collector()
        collector.feed(events)
        yield from _Narrator().ended(events)
        return collector.output()

    def _judge(self, output: CollectedOutput) -> Iterator[Decision]:
        verdict = judge(output, self._compiled, self._policy)
        if isinstance(verdict, Invalid):
            for reason in verdict.reasons:
                details = {"category": reason.category, "param": reason.param}
                where = f" (at {reason.param})" if reason.param else ""
                yield Decision("invalid", f"{reason.category}{where}: {reason.message}", details)
            if self._policy.validate == "observe":
                return  # it is counted, and delivered all the same
            self.outcome = AttemptOutcome(
                attempt=self._attempt.number,
                provider=_RECORDED,
                status="validation_failed",
                category=verdict.reasons[0].category,
                reasons=verdict.reasons,
                committed=self._is_shown(),
                made_calls=any(choice.calls for choice in output.choices),
            )
            return
        for name in verdict.repairs:
            yield Decision("repair", f"the text was repaired: {name}", {"repair": name})
        for choice in verdict.output.choices:
            for at, call in enumerate(choice.calls):
                for name in call.repairs:
                    told = f"call {at} was repaired: {name}"
                    yield Decision("repair", told, {"repair": name, "call": at})
                yield Decision(
                    "valid",
                    f"call {at} is sound: {call.name}({call.arguments})",
                    {"name": call.name, "arguments": call.arguments, "choice": choice.index},
                )
            if choice.content or not choice.calls:
                told = f"text: {_shown(choice.content)}"
                yield Decision("valid", told, {"content": choice.content, "choice": choice.index})


class _Narrator:
    """Tells what the reader of text held back, and what became of it."""

    def __init__(self) -> None:
        self._read = 0
        self._out = 0
        self._holds = False

    def fed(self, number: int, read: int, events: list[StreamEvent]) -> Iterator[Decision]:
        """A chunk was fed; ``read`` characters of text came so far."""
        self._out += _chars(events)
        self._read = read
        held = read - self._out
        if held > 0 and not self._holds:
            told = f"chunk {number}: {held} characters are held: they may begin a call"
            yield Decision("held", told, {"chunk": number, "chars": held})
        elif held <= 0 and self._holds:
            text = "".join(event.text for event in events if isinstance(event, TextDelta))
            told = f"chunk {number}: what was held is text: {_shown(text)}"
            yield Decision("released", told, {"chunk": number, "text": text})
        self._holds = held > 0

    def ended(self, events: list[StreamEvent]) -> Iterator[Decision]:
        """The answer has ended, and all was read."""
        for event in events:
            if isinstance(event, ToolCallDelta):
                yield _call(event)
            elif isinstance(event, Finish):
                told = f"choice {event.choice} finished: {event.reason or 'without a reason'}"
                yield Decision("finish", told, {"reason": event.reason, "choice": event.choice})


def _call(call: ToolCallDelta) -> Decision:
    fault = f"; at fault: {call.fault}" if call.fault else ""
    repairs = f"; repaired: {', '.join(call.repairs)}" if call.repairs else ""
    told = f"a call was read as {call.origin}: {call.name}({call.arguments}){repairs}{fault}"
    return Decision(
        "call",
        told,
        {
            "form": call.origin,
            "name": call.name,
            "arguments": call.arguments,
            "repairs": list(call.repairs),
            "fault": call.fault,
            "choice": call.choice,
        },
    )


def _next(outcomes: list[AttemptOutcome], retries: RetryPolicy) -> Decision:
    match decide(outcomes, retries, saturated=False):
        case Accept():
            return Decision("retry", "accepted", {"decision": "accept"})
        case Again() as again:
            how = [name for name in ("feedback", "constrained") if getattr(again, name)]
            elsewhere = ["on another target, if there is one"] if again.avoid else []
            words = [_IN_WORDS[name] for name in how]
            told = ", ".join(["asked again", *words, *elsewhere])
            return Decision("retry", told, {"decision": "again", "how": how})
        case Fail(error):
            told = f"the run ends: {error.type}: {error.message}"
            return Decision("retry", told, {"decision": "fail", "error": error.type})


def _reasons(category: str, reason: str) -> tuple[Reason, ...]:
    """What was wrong, as far as its recording tells."""
    known: tuple[Category, ...] = get_args(Category)
    return (Reason(next((each for each in known if each == category), "not_json"), reason),)


def _missing(frames: int) -> Decision:
    told = f"{frames} frames were missed when it was recorded: what follows may differ"
    return Decision("missing", told, {"frames": frames})


def _body(request: Mapping[str, Any] | None) -> dict[str, Any]:
    """The request, with what a recording may leave out."""
    asked = [{"role": "user", "content": "-"}]
    return {"model": _RECORDED, "messages": asked, **(request or {})}


def _chars(events: list[StreamEvent]) -> int:
    return sum(len(each.text) for each in events if isinstance(each, TextDelta | ReasoningDelta))


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…")
