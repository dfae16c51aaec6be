"""Recorded answers are read and judged again, and every decision is told."""

from typing import Any

import orjson
import pytest

from edge.core.recording import NoRecording, read_recording
from edge.core.replay_run import Decision, replay_run
from tests.conformance.cases import CASES, IDS, request_of

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
REQUEST = {"tools": [LOOK]}
HERMES = ["so <b> ", '<tool_call>{"name": "look", "argu', 'ments": {"n": 1,}}</tool_call>']


def chunk(content: str | None = None, finish: str | None = None) -> dict[str, Any]:
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def recorded(*pieces: str, finish: str = "stop", **fields: Any) -> bytes:
    chunks = [*map(chunk, pieces), chunk(finish=finish)]
    return orjson.dumps({"request": REQUEST, "chunks": chunks, **fields})


def decided(data: bytes, **fields: Any) -> list[Decision]:
    return [each for run in read_recording(data) for each in replay_run(run, **fields)]


def kinds(decisions: list[Decision]) -> list[str]:
    return [each.kind for each in decisions]


def only(kind: str, decisions: list[Decision]) -> Decision:
    (found,) = [each for each in decisions if each.kind == kind]
    return found


def test_what_is_held_read_repaired_and_decided_is_told_in_order() -> None:
    told = decided(recorded(*HERMES))

    assert kinds(told)[:3] == ["run", "attempt", "held"]
    assert only("call", told).details["form"] == "hermes"
    assert "trailing_comma" in only("repair", told).message
    assert only("retry", told).details == {"decision": "accept"}


def test_text_that_was_held_for_nothing_is_told_as_released() -> None:
    told = decided(recorded("a <tool_", "box> b"))

    assert only("held", told).details["chunk"] == 1
    assert only("released", told).details["chunk"] == 2
    assert "call" not in kinds(told)


def test_a_refused_call_is_told_with_its_reason_place_and_what_follows() -> None:
    text = '<tool_call>{"name": "look", "arguments": {"n": "many"}}</tool_call>'
    told = decided(recorded(text))

    invalid = only("invalid", told)
    assert invalid.details == {"category": "schema", "param": "tool_calls[0].arguments.n"}
    assert only("retry", told).details == {"decision": "again", "how": ["feedback"]}


def test_the_output_policy_can_be_changed() -> None:
    told = decided(recorded(*HERMES), output="recover=false; max_attempts=1")

    assert "call" not in kinds(told)


def test_an_error_inside_the_stream_is_told() -> None:
    told = decided(orjson.dumps({"request": REQUEST, "chunks": [{"error": {"message": "oh"}}]}))

    assert only("error", told).message == "oh"
    assert only("retry", told).details["decision"] == "again"


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_the_cases_of_the_conformance_suite_end_as_they_say(case: dict[str, Any]) -> None:
    told = decided(orjson.dumps({**case, "request": request_of(case)}))

    accepted = told[-1].details["decision"] == "accept"
    assert accepted == (case["expect"]["outcome"] != "invalid")
    if accepted:
        calls = [each for each in told if each.kind == "valid" and "arguments" in each.details]
        assert [each.details["name"] for each in calls] == [
            call["name"] for call in case["expect"]["tool_calls"]
        ]


SSE = b"".join(
    b"data: " + orjson.dumps(each) + b"\n\n" for each in [*map(chunk, HERMES), chunk(finish="stop")]
)
LINES = b"\n".join(orjson.dumps(each) for each in [*map(chunk, HERMES), chunk(finish="stop")])
WHOLE = orjson.dumps(
    {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"content": "".join(HERMES)}, "finish_reason": "stop"}],
    }
)


@pytest.mark.parametrize("data", [SSE + b"data: [DONE]\n\n", b": hi\n\n" + SSE, LINES, WHOLE])
def test_every_form_of_an_answer_is_the_same_answer(data: bytes) -> None:
    told = decided(data, request=REQUEST)

    assert only("call", told).details["name"] == "look"
    assert only("retry", told).details == {"decision": "accept"}


def frames(*told: dict[str, Any]) -> bytes:
    return b"\n".join(orjson.dumps({"run_id": "run_1", "seq": 1, **each}) for each in told)


STARTED = {"type": "run.started", "model": "m"}
BAD = {"kind": "tool_call", "name": "look", "arguments": '{"n": "x"}', "origin": "hermes"}
MIRRORED = frames(
    STARTED,
    {"type": "attempt.started", "attempt": 1},
    {"type": "held", "attempt": 1, "held": [BAD]},
    {"type": "attempt.failed", "attempt": 1, "category": "schema", "reason": "then"},
    {"type": "attempt.started", "attempt": 2},
    {"type": "held", "attempt": 2, "held": [{**BAD, "arguments": '{"n": 1}'}]},
    {"type": "chunk", "chunk": chunk("so")},
    {"type": "chunk", "chunk": chunk(finish="tool_calls")},
)


def test_a_recording_of_the_mirror_is_judged_again_attempt_by_attempt() -> None:
    told = decided(MIRRORED, request=REQUEST)

    assert only("then", told).details == {"category": "schema", "reason": "then"}
    assert only("invalid", told).details["param"] == "tool_calls[0].arguments.n"
    assert [each.details["decision"] for each in told if each.kind == "retry"] == [
        "again",
        "accept",
    ]


def test_runs_of_one_recording_are_told_apart() -> None:
    other = MIRRORED.replace(b"run_1", b"run_2")

    assert [run.name for run in read_recording(MIRRORED + b"\n" + other)] == ["run_1", "run_2"]


def test_an_attempt_of_which_nothing_was_recorded_is_said_so() -> None:
    told = decided(frames(STARTED, {"type": "attempt.started", "attempt": 1}))

    assert only("error", told).message == "nothing of its answer was recorded"


@pytest.mark.parametrize("data", [b"", b"hello", b"[]", b'{"a": 1}', b'{"chunks": [1]}'])
def test_what_is_no_recording_is_refused(data: bytes) -> None:
    with pytest.raises(NoRecording):
        read_recording(data)
