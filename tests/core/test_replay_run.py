"""Recorded answers are read and judged again, and every decision is told."""

from typing import Any

import orjson
import pytest

from edge.core.output_policy import OutputPolicy
from edge.core.recording import NoRecording, question_of, read_recording
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


UNSOUND = '<tool_call>{"name": "look", "arguments": {"n": "x"}}</tool_call>'


def traced(*attempts: list[dict[str, Any]], **policy: Any) -> bytes:
    """What a mirror tells of a traced run whose provider sent this."""
    question = question_of(REQUEST, OutputPolicy(**policy))
    told: list[dict[str, Any]] = [STARTED, {"type": "request", **question}]
    for number, frames_of_it in enumerate(attempts, 1):
        told += [{"type": "attempt.started", "attempt": number}, *frames_of_it]
    return frames(*told, {"type": "run.finished", "attempts": []})


def sent(*pieces: str, live: bool = True) -> dict[str, Any]:
    chunks = [*map(chunk, pieces), chunk(finish="stop")]
    return {"type": "received", "live": live, "chunks": chunks}


def test_what_the_provider_of_a_traced_run_sent_is_read_again() -> None:
    told = decided(traced([sent(UNSOUND)], [sent(*HERMES)]))

    assert [each.details["form"] for each in told if each.kind == "call"] == ["hermes", "hermes"]
    assert only("invalid", told).details["param"] == "tool_calls[0].arguments.n"
    assert "trailing_comma" in only("repair", told).message
    assert [each.details["decision"] for each in told if each.kind == "retry"] == [
        "again",
        "accept",
    ]


def test_the_calls_of_a_constrained_answer_are_told() -> None:
    data = traced([sent('{"name": "look", "arguments": {"n": 1}}')])
    told = decided(data.replace(b'"attempt":1', b'"attempt":1,"constrained":true'))

    assert only("call", told).details["form"] == "constrained"
    assert only("retry", told).details == {"decision": "accept"}


def test_the_recorded_policy_holds_and_can_be_changed() -> None:
    once = decided(traced([sent(UNSOUND)], max_attempts=1))
    unread = decided(traced([sent(*HERMES)]), output="recover=false")

    assert only("retry", once).details["decision"] == "fail"
    assert "call" not in kinds(unread)


def test_another_request_takes_the_place_of_the_recorded_one() -> None:
    other = {"tools": [{"type": "function", "function": {"name": "peek", "parameters": {}}}]}
    told = decided(traced([sent(UNSOUND)]), request=other)

    assert only("invalid", told).details["category"] == "unknown_tool"


def test_faults_that_are_only_observed_are_told_and_accepted() -> None:
    told = decided(traced([sent(UNSOUND)], validate="observe"))

    assert only("invalid", told).details["category"] == "schema"
    assert only("retry", told).details == {"decision": "accept"}


def test_an_answer_that_nobody_judged_is_not_judged() -> None:
    told = decided(traced([sent(UNSOUND)], validate="off"))

    assert only("valid", told).details == {"judged": False}


def test_what_the_client_has_been_given_is_not_asked_for_again() -> None:
    told = decided(traced([sent(UNSOUND)], buffer="off"))
    held = decided(traced([sent(UNSOUND, live=False)], buffer="off"))

    assert only("retry", told).details["decision"] == "fail"
    assert only("retry", held).details["decision"] == "again"


@pytest.mark.parametrize(
    ("status", "category", "decision"),
    [
        ("upstream_error", "http_5xx", "again"),
        ("upstream_error", "http_4xx", "fail"),
        ("validation_failed", "tool_parse", "again"),
        ("validation_failed", "schema", "again"),
        ("cancelled", "give_up", "fail"),
    ],
)
def test_an_attempt_that_failed_without_an_answer_is_taken_as_it_was(
    status: str, category: str, decision: str
) -> None:
    failed = {"type": "attempt.failed", "attempt": 1, "status": status, "category": category}
    told = decided(traced([{**failed, "reason": "oh"}]))

    assert only("error", told).details == {"category": category}
    assert only("retry", told).details["decision"] == decision


def test_an_answer_that_broke_off_is_read_as_far_as_it_came() -> None:
    failed = {"type": "attempt.failed", "attempt": 1, "status": "timeout"}
    came = {"type": "received", "live": True, "chunks": [chunk("so <tool_call>")]}
    told = decided(traced([came, {**failed, "category": "idle_timeout", "reason": "silent"}]))

    assert "held" in kinds(told)
    assert only("error", told).details == {"category": "idle_timeout"}


def test_an_attempt_that_was_never_started_is_one_of_its_own() -> None:
    failed = {"type": "attempt.failed", "attempt": 2, "status": "rejected", "category": "no_path"}
    told = decided(traced([sent(UNSOUND), {**failed, "reason": "nobody"}]))

    assert [each.details["attempt"] for each in told if each.kind == "attempt"] == [1, 2]
    assert only("then", told).details == {"category": "no_path", "reason": "nobody"}


def test_what_a_recording_lacks_is_told() -> None:
    gap = {"type": "gap", "missed": 3}
    of_run = decided(frames(STARTED, {**gap, "seq": 4}, {"type": "attempt.started", "attempt": 1}))
    of_all = orjson.dumps({**gap, "run_id": None})
    ended = traced([sent(*HERMES)]).replace(b"run_1", b"run_0")
    under_way = traced([sent(*HERMES)]).rpartition(b"\n")[0]
    runs = read_recording(b"\n".join([ended, under_way, of_all]))

    assert [each.details for each in of_run if each.kind == "missing"] == [{}, {"frames": 3}]
    assert [run.attempts[0].missed for run in runs] == [0, 3]


def test_of_the_messages_only_those_that_describe_tools_are_recorded() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    request = {**REQUEST, "messages": messages, "temperature": 1, "tool_choice": None}

    assert question_of(request, OutputPolicy())["request"] == REQUEST
    told = question_of(request, OutputPolicy(xml_completion_tool="done"))
    assert told["request"] == {**REQUEST, "messages": messages[:1]}


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    data = traced([sent("hi")]).replace(b'"strict":false', b'"strict":"no"')

    with pytest.raises(NoRecording, match="policy"):
        read_recording(data)
