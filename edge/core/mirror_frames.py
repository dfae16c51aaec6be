"""What a mirror tells of a run: its pieces as JSON text, one text a frame.

Every frame is ``{"type", "run_id", "seq", "at", …}``: ``seq`` counts the frames of a run from 1,
``at`` is in seconds since 1970. Chunks are the bytes that the client got, put between braces and
not read; only the other frames are made as JSON, and they are few.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunStarted
from edge.core.run_summary import attempt_summary, usage_summary
from edge.core.stream_events import ReasoningDelta, TextDelta, ToolCallDelta
from edge.wire.sse import DONE, DONE_PAYLOAD, SseDecoder
from edge.wire.strict_json import encode

CHUNK = "chunk"
FINISHED = "run.finished"
TRACED = frozenset({"request", "received", "held"})
"""Types that are told of traced runs only, and only to keys with the right ``trace``."""

TYPES = TRACED | {"run.started", "attempt.started", "attempt.failed", CHUNK, "answer", FINISHED}
"""All types but ``gap``, which nobody can do without."""

NOTE_BYTES = 512
"""What a note counts for in a replay buffer."""

Saying: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta

_DATA = b"data: "
_DONE_EVENT = b"data: [DONE]"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run's answer is judged by: ``facts`` is the inside of a JSON object."""

    facts: bytes


@dataclass(frozen=True, slots=True)
class Received:
    """What a provider sent: ``chunks`` is a JSON array; ``live`` where its text may be shown."""

    attempt: int
    live: bool
    chunks: bytes


@dataclass(frozen=True, slots=True)
class Held:
    """Stream events that were not shown to the client when they came."""

    attempt: int
    events: tuple[Saying, ...]
    chars: int


@dataclass(frozen=True, slots=True)
class Answered:
    """The body of an answer that is not streamed, as the client got it; empty if it is no JSON."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Passed:
    """Whole SSE events of a stream that passed through; whose they are, nobody here knows."""

    events: bytes


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a run and of all its attempts; ``judged`` unless its answers never were."""

    run: RunEnded
    attempts: tuple[AttemptEnded, ...] = ()
    judged: bool = True


Note: TypeAlias = (
    RunStarted | Asked | AttemptStarted | Received | AttemptEnded | Held | Answered | Finished
)
Piece: TypeAlias = bytes | Passed | Note
"""Whole SSE events as the emitter writes them, or as they passed through, or a note."""

_TYPE_OF: dict[type, str] = {
    bytes: CHUNK,
    Passed: CHUNK,
    RunStarted: "run.started",
    Asked: "request",
    AttemptStarted: "attempt.started",
    Received: "received",
    AttemptEnded: "attempt.failed",
    Held: "held",
    Answered: "answer",
    Finished: FINISHED,
}


_PINNED = frozenset({RunStarted, AttemptStarted, AttemptEnded})

PINNED_REQUEST_BYTES = 32 * 1024
"""A longer request leaves the replay buffer in its turn, as anything else does."""


def type_of(piece: Piece) -> str:
    """The type of the frames that a piece makes."""
    return _TYPE_OF[type(piece)]


def size_of(piece: Piece) -> int:
    """What a piece counts for, in bytes."""
    kind = type(piece)
    if kind is bytes:
        return len(piece)  # type: ignore[arg-type]
    if kind is Passed:
        return len(piece.events)  # type: ignore[union-attr]
    if kind is Answered:
        return NOTE_BYTES + len(piece.body)  # type: ignore[union-attr]
    if kind is Received:
        return NOTE_BYTES + len(piece.chunks)  # type: ignore[union-attr]
    if kind is Asked:
        return NOTE_BYTES + len(piece.facts)  # type: ignore[union-attr]
    if kind is Held:
        return NOTE_BYTES + piece.chars  # type: ignore[union-attr]
    return NOTE_BYTES


def frame_count(piece: Piece) -> int:
    """How many frames a piece makes."""
    if type(piece) is Passed:
        return len(_payloads(piece))
    if type(piece) is not bytes:
        return 1
    # The emitter writes no line feed but the two behind an event.
    return (piece.count(10) >> 1) - piece.endswith(DONE)


def is_pinned(piece: Piece) -> bool:
    """Whether a piece says how the run or an attempt began or failed."""
    kind = type(piece)
    if kind is Asked:
        return len(piece.facts) <= PINNED_REQUEST_BYTES  # type: ignore[union-attr]
    return kind in _PINNED


def frames_of(piece: Piece, run_id: str, seq: int, at: float) -> Iterator[bytes]:
    """The frames of a piece.

    Args:
        piece: what happened.
        run_id: to which run.
        seq: number of the first frame.
        at: seconds since 1970.
    """
    if type(piece) is bytes:
        chunks = [
            event[6:]
            for event in piece.split(b"\n\n")
            if event.startswith(_DATA) and event != _DONE_EVENT
        ]
    elif type(piece) is Passed:
        chunks = [_as_json(payload) for payload in _payloads(piece)]
    else:
        told = {"type": type_of(piece), "run_id": run_id, "seq": seq, "at": round(at, 6)}
        yield _note_frame(piece, told)  # type: ignore[arg-type]
        return
    head = b'{"type":"chunk","run_id":"%b","seq":' % run_id.encode()
    for number, chunk in enumerate(chunks, seq):
        yield b'%b%d,"at":%.6f,"chunk":%b}' % (head, number, at, chunk)


def gap_frame(missed: int, *, run_id: str | None, seq: int | None, at: float) -> bytes:
    """So many frames were not told; ``seq`` is the last one's number where that says something."""
    told = {"type": "gap", "run_id": run_id, "seq": seq, "at": round(at, 6), "missed": missed}
    return orjson.dumps(told)


def _payloads(piece: Passed) -> list[bytes]:
    payloads = SseDecoder().feed(piece.events)
    return [payload for payload in payloads if payload != DONE_PAYLOAD]


def _as_json(payload: bytes) -> bytes:
    """A payload as a JSON value: itself, or its text where it is none."""
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return orjson.dumps(payload.decode("utf-8", "replace"))
    return payload


def _note_frame(note: Note, told: dict[str, Any]) -> bytes:
    if isinstance(note, Answered):
        return encode(told)[:-1] + b',"answer":%b}' % (note.body or b"null")
    if isinstance(note, Asked):
        return encode(told)[:-1] + b",%b}" % note.facts
    if isinstance(note, Received):
        told |= {"attempt": note.attempt, "live": note.live}
        return encode(told)[:-1] + b',"chunks":%b}' % note.chunks
    return encode({**told, **_facts(note)})


def _facts(note: Note) -> Mapping[str, Any]:
    match note:
        case RunStarted():
            return {
                "request_id": note.request_id,
                "key": note.key,
                "route": note.route,
                "model": note.model,
                "stream": note.streamed,
            }
        case AttemptStarted():
            return {
                "attempt": note.attempt,
                "provider": note.provider,
                "model": note.model,
                "path": note.path,
                "constrained": note.constrained,
            }
        case AttemptEnded():
            return attempt_summary(note)
        case Held():
            return {"attempt": note.attempt, "held": [*map(_held, note.events)]}
        case Finished():
            return _end(note)
        case _:
            return {}


def _held(event: Saying) -> dict[str, Any]:
    match event:
        case TextDelta():
            return {"kind": "content", "text": event.text, "choice": event.choice}
        case ReasoningDelta():
            return {"kind": "reasoning", "text": event.text, "choice": event.choice}
        case ToolCallDelta():
            return {
                "kind": "tool_call",
                "name": event.name,
                "arguments": event.arguments,
                "origin": event.origin,
                "fault": event.fault,
                "choice": event.choice,
            }


def _end(note: Finished) -> dict[str, Any]:
    run, attempts = note.run, note.attempts
    last = attempts[-1] if attempts else None
    return {
        "status": run.status,
        "error_type": run.error_type or None,
        "attempts": [attempt_summary(row, judged=note.judged) for row in attempts],
        "usage": usage_summary(last.usage) if last else None,
        "timings": {
            "total_s": run.total_s,
            "first_token_s": last.first_token_s if last else None,
            "held_s": last.held_s if last else 0.0,
        },
    }
