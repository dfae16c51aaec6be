"""What was recorded of runs, read from any of the forms in which it is found.

    {"request": …, "chunks": […]}      a client's request and the provider's chunks
    {"request": …, "upstream": {"deltas": […], "finish_reason": …}}     a conformance case
    {"choices": […]}                   a chunk, or a whole answer of a provider
    {"type": …, "run_id": …}           a frame of the mirror

one object, or one a line, or chunks as the events of an SSE stream. Chunks that stand alone are one
attempt together; frames are put together by run and attempt.

Of a traced run the mirror tells all that its answers are read and judged by: what the provider
sent, and the question (:func:`question_of`). Of other runs it tells what their clients got.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from edge.core.output_keys import OUTPUT_KEYS
from edge.core.output_policy import OutputPolicy
from edge.core.stream_events import (
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from edge.wire.openai_chunks import completion_to_chunks
from edge.wire.sse import DONE_PAYLOAD, SseDecoder
from edge.wire.strict_json import parse

_ASKED = (
    *("tools", "functions", "tool_choice", "function_call", "parallel_tool_calls"),
    *("response_format", "stream"),
)
"""Keys of a chat request that its answer is judged by."""

_SAYING = (TextDelta, ReasoningDelta)
_SSE_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")


class NoRecording(ValueError):
    """It is nothing that can be replayed; the message says where it ends to be."""


@dataclass(slots=True, eq=False)
class RecordedAttempt:
    """One answer.

    Attributes:
        chunks: as the provider sent them; empty where only a mirror's frames are known.
        live: whether the answer's text was shown as it came.
        held: of a mirror: what was read out of the chunks and not shown when it came.
        shown: of a mirror: what was shown at once, and how the answer ended.
        constrained: it was asked for through a JSON Schema.
        failed: the mirror's ``attempt.failed``.
        missed: frames that are missing in it.
    """

    number: int = 1
    chunks: list[dict[str, Any]] = field(default_factory=list)
    held: list[StreamEvent] = field(default_factory=list)
    shown: list[StreamEvent] = field(default_factory=list)
    constrained: bool = False
    failed: Mapping[str, Any] | None = None
    live: bool = True
    missed: int = 0


@dataclass(slots=True, eq=False)
class RecordedRun:
    """A run.

    Attributes:
        request: the client's body, as far as it matters; None where it was not recorded.
        policy: how the run's answers were held back, judged and asked for again.
        missed: frames that are missing before its first attempt.
        ended: its end was recorded.
    """

    name: str
    request: Mapping[str, Any] | None = None
    attempts: list[RecordedAttempt] = field(default_factory=list)
    policy: OutputPolicy = OutputPolicy()
    missed: int = 0
    ended: bool = False


def question_of(request: Mapping[str, Any], policy: OutputPolicy) -> dict[str, Any]:
    """What the answers of a run are judged by, as its recording holds it.

    Of the messages only those of the system are kept, and only where tools are described in them.
    """
    asked = {key: request[key] for key in _ASKED if request.get(key) is not None}
    if policy.xml_completion_tool:
        told = request.get("messages") or ()
        asked["messages"] = [each for each in told if each.get("role") in ("system", "developer")]
    return {"request": asked, "output": asdict(policy)}


def read_recording(data: bytes) -> list[RecordedRun]:
    """The runs in a file, at least one.

    Raises:
        NoRecording: there is none.
        ProviderStreamError, ProviderProtocolError: a whole answer is an error, or none.
    """
    runs: dict[str, RecordedRun] = {}
    for number, item in _items(data):
        _add(runs, item, number)
    if not runs:
        raise NoRecording("the file holds nothing")
    return list(runs.values())


def _items(data: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file, with their lines' (or events') numbers."""
    if data.lstrip(b"\xef\xbb\xbf\r\n \t").startswith(_SSE_BEGINNINGS):
        decoder = SseDecoder()
        payloads = [*decoder.feed(data), *decoder.finish()]
        texts = [payload for payload in payloads if payload != DONE_PAYLOAD]
    elif (whole := _parsed(data)) is not None:
        yield 1, whole
        return
    else:
        texts = data.splitlines()
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        item = _parsed(text)
        if item is None:
            raise NoRecording(f"line or event {number} is no JSON object")
        yield number, item


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _add(runs: dict[str, RecordedRun], item: dict[str, Any], number: int) -> None:
    if isinstance(item.get("run_id"), str) and isinstance(item.get("type"), str):
        run = runs.setdefault(item["run_id"], RecordedRun(item["run_id"]))
        _add_frame(run, item)
    elif item.get("type") == "gap":
        # Of whose frames they are, nobody knows: of any that was under way.
        for run in runs.values():
            if not run.ended:
                _add_frame(run, item)
    elif "upstream" in item or "chunks" in item:
        name = str(item.get("id") or f"line {number}")
        chunks = item["chunks"] if "chunks" in item else _chunks_of_case(item["upstream"])
        if not isinstance(chunks, list) or not all(isinstance(each, dict) for each in chunks):
            raise NoRecording(f"{name}: chunks is no list of objects")
        runs[f"{number} {name}"] = RecordedRun(
            name, item.get("request"), [RecordedAttempt(chunks=chunks)]
        )
    elif "choices" in item or "error" in item:
        run = runs.setdefault("", RecordedRun("the answer", None, [RecordedAttempt()]))
        run.attempts[0].chunks += _as_chunks(item)
    else:
        raise NoRecording(f"line or event {number} is no chunk, no frame and no recorded run")


def _as_chunks(item: dict[str, Any]) -> list[dict[str, Any]]:
    whole = item.get("object") == "chat.completion"
    return completion_to_chunks(item) if whole else [item]


def _chunks_of_case(upstream: Any) -> list[dict[str, Any]]:
    if not isinstance(upstream, dict) or not isinstance(upstream.get("deltas"), list):
        raise NoRecording("upstream holds no list of deltas")
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in upstream["deltas"]]
    end: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": upstream.get("finish_reason")}
    return [*chunks, {"choices": [end]}]


def _add_frame(run: RecordedRun, frame: Mapping[str, Any]) -> None:
    kind = frame["type"]
    if kind == "attempt.started":
        number, constrained = int(frame["attempt"]), bool(frame.get("constrained"))
        run.attempts.append(RecordedAttempt(number, constrained=constrained))
    elif kind == "request":
        run.request, run.policy = frame.get("request"), _policy_of(frame.get("output"))
    elif kind == "gap":
        holder = run.attempts[-1] if run.attempts else run
        holder.missed += int(frame.get("missed") or 0)
    elif kind == "run.finished":
        run.ended = True
    elif kind == "attempt.failed" and frame.get("attempt") not in _numbers(run):
        run.attempts.append(RecordedAttempt(int(frame.get("attempt") or 0), failed=frame))
    elif run.attempts:
        _add_to_attempt(run.attempts[-1], frame)


def _numbers(run: RecordedRun) -> set[int]:
    return {attempt.number for attempt in run.attempts}


def _policy_of(output: Any) -> OutputPolicy:
    """The policy of a run; keys that this version does not know are passed over."""
    told = output if isinstance(output, dict) else {}
    try:
        return OutputPolicy(
            **{name: key.check(told[name]) for name, key in OUTPUT_KEYS.items() if name in told}  # type: ignore[arg-type]
        )
    except ValueError as error:
        raise NoRecording(f"a run's output policy cannot be read: {error}") from None


def _add_to_attempt(attempt: RecordedAttempt, frame: Mapping[str, Any]) -> None:
    kind = frame["type"]
    if kind == "attempt.failed":
        attempt.failed = frame
    elif kind == "received":
        attempt.chunks += [each for each in frame.get("chunks") or () if isinstance(each, dict)]
        attempt.live = frame.get("live") is not False
    elif kind == "held":
        held = [event for each in frame.get("held") or () if (event := _held(each)) is not None]
        attempt.held += held
    elif kind == "chunk" and isinstance(frame.get("chunk"), dict):
        _add_shown(attempt, [frame["chunk"]])
    elif kind == "answer" and isinstance(frame.get("answer"), dict):
        _add_shown(attempt, completion_to_chunks(frame["answer"]))


def _held(event: Mapping[str, Any]) -> StreamEvent | None:
    choice = int(event.get("choice") or 0)
    match event.get("kind"):
        case "content":
            return TextDelta(str(event.get("text")), choice)
        case "reasoning":
            return ReasoningDelta(str(event.get("text")), choice)
        case "tool_call":
            return ToolCallDelta(
                str(event.get("name")),
                str(event.get("arguments")),
                origin=str(event.get("origin")),
                fault=str(event.get("fault") or ""),
                choice=choice,
            )
    return None


def _add_shown(attempt: RecordedAttempt, chunks: Sequence[Mapping[str, Any]]) -> None:
    """What left for the client and was not held before: text that went straight through."""
    held = {(type(event), event.choice) for event in attempt.held if isinstance(event, _SAYING)}
    for chunk in chunks:
        for entry in chunk.get("choices") or ():
            index, said = entry.get("index") or 0, entry.get("delta") or {}
            content, reasoning = said.get("content"), said.get("reasoning_content")
            if reasoning and (ReasoningDelta, index) not in held:
                attempt.shown.append(ReasoningDelta(reasoning, index))
            if content and (TextDelta, index) not in held:
                attempt.shown.append(TextDelta(content, index))
            if not any(isinstance(event, ToolCallDelta) for event in attempt.held):
                calls = (call.get("function") or {} for call in said.get("tool_calls") or ())
                attempt.shown += [_delivered(call, index) for call in calls]
            if entry.get("finish_reason"):
                # A call's presence made the reason truthful; the provider's own may have differed.
                attempt.shown.append(Finish(entry["finish_reason"], index))


def _delivered(function: Mapping[str, Any], index: int) -> ToolCallDelta:
    """A call as the client got it: of an untraced run nothing else is known."""
    name, arguments = str(function.get("name")), str(function.get("arguments"))
    return ToolCallDelta(name, arguments, origin="delivered", choice=index)
