"""What a mirror tells of each piece of a run."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.emit import ChunkEmitter, Identity
from edge.core.mirror_frames import (
    NOTE_BYTES,
    PINNED_REQUEST_BYTES,
    TYPES,
    Answered,
    Asked,
    Finished,
    Held,
    Passed,
    Piece,
    Received,
    frame_count,
    frames_of,
    gap_frame,
    is_pinned,
    size_of,
    type_of,
)
from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunStarted, Usage
from edge.core.stream_events import Finish, ReasoningDelta, TextDelta, ToolCallDelta

STARTED = RunStarted(
    run_id="run_1", request_id="r", key="k", route="*", model="m", streamed=True, at=0.0, time=5.0
)
ATTEMPT = AttemptStarted(
    run_id="run_1", attempt=1, provider="gpu1", model="m", path="normalized", at=0.0
)
FAILED = AttemptEnded(
    run_id="run_1", attempt=1, time=5.0, key="k", route="*", provider="gpu1", model="m",
    path="normalized", response_mode="tool_calls", status="validation_failed", category="schema",
    reason="city is missing",
)  # fmt: skip
SOUND = AttemptEnded(
    run_id="run_1", attempt=2, time=5.0, key="k", route="*", provider="gpu1", model="m",
    path="normalized", response_mode="tool_calls", status="success",
    usage=Usage(output_tokens=7, reported=True), repairs=("trailing_comma",), first_token_s=0.5,
    held_s=0.25, total_s=1.0,
)  # fmt: skip
ENDED = RunEnded(run_id="run_1", status="success", attempts=2, at=1.0, total_s=1.5)
HELD = Held(1, (TextDelta("te"), ReasoningDelta("r"), ToolCallDelta("f", "{}", fault="x")), 5)
ASKED = Asked(b'"request":{"tools":[]},"output":{"strict":true}')
RECEIVED = Received(2, False, b'[{"choices":[]}]')
NOTES: list[Piece] = [
    STARTED, ASKED, ATTEMPT, RECEIVED, FAILED, HELD, Answered(b'{"a":1}'),
    Finished(ENDED, (FAILED, SOUND)),
]  # fmt: skip

texts = st.text(max_size=20)
events = st.lists(
    st.builds(TextDelta, texts, st.integers(0, 2))
    | st.builds(ReasoningDelta, texts)
    | st.builds(ToolCallDelta, st.just("f"), st.just('{"a":"\\n\\n"}'))
    | st.builds(Finish, st.sampled_from(["stop", "length", None])),
    max_size=12,
)


def frames(piece: Piece, seq: int = 1) -> list[Any]:
    return [orjson.loads(frame) for frame in frames_of(piece, "run_1", seq, 1.5)]


@given(events, st.booleans())
def test_chunks_are_told_as_they_were_sent_and_counted_without_being_read(
    said: list[Any], last: bool
) -> None:
    emitter = ChunkEmitter(Identity("chatcmpl-run_1", 1, "m"), include_usage=True)
    data = emitter.feed(said) + (emitter.finish({"total_tokens": 1}) if last else b"")
    sent = [
        orjson.loads(event[6:])
        for event in data.split(b"\n\n")
        if event and event != b"data: [DONE]"
    ]

    told = frames(data, 7)

    assert [frame["chunk"] for frame in told] == sent
    assert [frame["seq"] for frame in told] == list(range(7, 7 + len(sent)))
    assert frame_count(data) == len(sent)


def test_what_passed_through_is_told_as_json_or_as_text() -> None:
    piece = Passed(b': note\n\nevent: x\ndata: {"a":1}\n\ndata: caf\xe9 "\n\ndata: [DONE]\n\n')

    assert [frame["chunk"] for frame in frames(piece, 3)] == [{"a": 1}, 'caf\ufffd "']
    assert [frame["seq"] for frame in frames(piece, 3)] == [3, 4]
    assert frame_count(piece) == 2
    assert size_of(piece) == len(piece.events)


@pytest.mark.parametrize("note", NOTES, ids=type_of)
def test_every_note_is_one_frame_of_a_known_type(note: Piece) -> None:
    (frame,) = frames(note, 3)

    assert frame_count(note) == 1
    assert frame["type"] == type_of(note)
    assert frame["type"] in TYPES
    assert (frame["run_id"], frame["seq"], frame["at"]) == ("run_1", 3, 1.5)
    assert size_of(note) >= NOTE_BYTES


def test_beginnings_and_failures_are_pinned() -> None:
    pinned = [type_of(note) for note in NOTES if is_pinned(note)]
    assert pinned == ["run.started", "request", "attempt.started", "attempt.failed"]


def test_a_request_is_pinned_unless_it_is_long() -> None:
    assert not is_pinned(Asked(b" " * (PINNED_REQUEST_BYTES + 1)))


def test_what_a_run_was_asked_and_what_came_are_told_as_they_are() -> None:
    (asked,), (received,) = frames(ASKED), frames(RECEIVED)

    assert (asked["request"], asked["output"]) == ({"tools": []}, {"strict": True})
    assert (received["attempt"], received["live"]) == (2, False)
    assert received["chunks"] == [{"choices": []}]


def test_the_end_of_a_run_tells_its_attempts_usage_and_times() -> None:
    (end,) = frames(Finished(ENDED, (FAILED, SOUND)))

    assert end["status"] == "success"
    assert end["error_type"] is None
    assert [each["verdict"] for each in end["attempts"]] == ["invalid", "repaired"]
    assert end["usage"]["output_tokens"] == 7
    assert end["timings"] == {"total_s": 1.5, "first_token_s": 0.5, "held_s": 0.25}


def test_a_run_without_attempts_ends_too() -> None:
    (end,) = frames(Finished(ENDED))

    assert (end["attempts"], end["usage"]) == ([], None)


def test_what_is_held_is_told_piece_by_piece() -> None:
    (frame,) = frames(HELD)

    assert [said["kind"] for said in frame["held"]] == ["content", "reasoning", "tool_call"]
    assert frame["held"][2]["fault"] == "x"


def test_a_gap_says_how_much_is_missing() -> None:
    gap = orjson.loads(gap_frame(3, run_id=None, seq=None, at=1.0))

    assert gap == {"type": "gap", "run_id": None, "seq": None, "at": 1.0, "missed": 3}
