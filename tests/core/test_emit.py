"""The emitter writes streams that the strictest client takes, and bodies that equal them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.collect import Collector
from edge.core.collected import CollectedOutput
from edge.core.emit import CallIds, ChunkEmitter, Identity, completion_body, events_of
from edge.core.stream_events import (
    Extras,
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from tests.fakes.strict_client import fold, payloads

IDENTITY = Identity("chatcmpl-run_0123", 1_790_000_000, "coder")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def stream(events: list[StreamEvent], *, include_usage: bool = False, cut: int = 1000) -> bytes:
    """The bytes of a whole stream, its events fed ``cut`` at a time."""
    emitter = ChunkEmitter(IDENTITY, include_usage=include_usage)
    batches = [events[i : i + cut] for i in range(0, len(events), cut)]
    return b"".join(map(emitter.feed, batches)) + emitter.finish(collected(events).usage)


def collected(events: list[StreamEvent]) -> CollectedOutput:
    collector = Collector()
    collector.feed(events)
    return collector.output()


def chunks(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(payload) for payload in payloads(data)[:-1]]


CALL = ToolCallDelta("ping", '{"x":1}', id="call_1")


def test_chunks_come_in_the_documented_order() -> None:
    events: list[StreamEvent] = [ReasoningDelta("hm"), TextDelta("Hi"), CALL, Finish("stop")]
    events.append(UsageReport(USAGE))

    deltas = [c["choices"][0]["delta"] for c in chunks(stream(events, include_usage=True))[:-1]]

    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm"},
        {"content": "Hi"},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "ping", "arguments": '{"x":1}'},
                }
            ]
        },
        {},
    ]


def test_usage_is_shown_only_to_those_who_asked() -> None:
    events: list[StreamEvent] = [TextDelta("Hi"), Finish("stop"), UsageReport(USAGE)]

    assert all("usage" not in chunk for chunk in chunks(stream(events)))
    *others, last = chunks(stream(events, include_usage=True))
    assert (last["choices"], last["usage"]) == ([], USAGE)
    assert all(chunk["usage"] is None for chunk in others)


@pytest.mark.parametrize(
    ("said", "with_calls", "told"),
    [
        ("stop", False, "stop"),
        (None, False, "stop"),
        ("tool_calls", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("stop", True, "tool_calls"),
        ("length", True, "tool_calls"),
    ],
)
def test_the_finish_reason_is_true_of_what_was_sent(said: Any, with_calls: bool, told: str) -> None:
    events: list[StreamEvent] = [TextDelta("Hi"), *([CALL] if with_calls else []), Finish(said)]

    assert fold(stream(events))["choices"][0]["finish_reason"] == told


def test_calls_without_ids_get_ids_of_their_own() -> None:
    twin = ToolCallDelta("ping", "{}", id="same")
    events: list[StreamEvent] = [twin, twin, ToolCallDelta("ping", "{}"), Finish(None)]

    calls = fold(stream(events))["choices"][0]["message"]["tool_calls"]

    assert calls[0]["id"] == "same"
    assert len({call["id"] for call in calls}) == 3


def test_an_id_that_looks_like_ours_is_not_given_twice() -> None:
    ids = CallIds("chatcmpl-run_0123")
    ours = ids.take("")
    others = [ids.take(f"call_0123_{n}") for n in range(4)] + [ids.take("") for _ in range(4)]

    assert len({ours, *others}) == 9


def test_an_extra_travels_in_the_chunk_of_the_text_behind_it() -> None:
    token = {"content": [{"token": "Hi", "logprob": -0.5}]}
    events: list[StreamEvent] = [
        Extras(top={"system_fingerprint": "fp"}),
        Extras(beside={"logprobs": token}),
        TextDelta("Hi"),
        Finish("stop"),
    ]

    found = chunks(stream(events))

    assert found[1]["choices"][0]["logprobs"] == token
    assert found[1]["choices"][0]["delta"] == {"content": "Hi"}
    assert all(chunk["system_fingerprint"] == "fp" for chunk in found)


def test_text_that_utf8_cannot_hold_still_leaves_as_valid_bytes() -> None:
    body = fold(stream([TextDelta("a\ud83db"), Finish("stop")]))

    assert body["choices"][0]["message"]["content"] == "a\ufffdb"


def test_an_answer_without_content_still_says_its_role() -> None:
    body = fold(stream([Finish("length")]))

    assert body["choices"][0]["message"] == {"role": "assistant", "content": ""}


text = st.text(min_size=1, max_size=20)
choice = st.integers(0, 2)
token_extras = st.builds(
    lambda word, index: Extras(beside={"logprobs": {"content": [{"token": word}]}}, choice=index),
    text,
    choice,
)
live = st.builds(TextDelta, text, choice) | st.builds(ReasoningDelta, text, choice) | token_extras
call = st.builds(
    ToolCallDelta, name=text, arguments=st.just("{}"), id=st.sampled_from(["", "a", "b"])
)


@st.composite
def answers(draw: st.DrawFn) -> list[StreamEvent]:
    events: list[StreamEvent] = [Extras(top={"system_fingerprint": "fp"})]
    events += draw(st.lists(live, max_size=12))
    for index in draw(st.sampled_from([[0], [0, 1, 2]])):
        calls = draw(st.lists(call, max_size=3))
        events += [ToolCallDelta(c.name, c.arguments, c.id, choice=index) for c in calls]
        events.append(Finish(draw(st.sampled_from(["stop", "length", None])), index))
    shown = {event.choice for event in events if not isinstance(event, UsageReport)}
    finished = {event.choice for event in events if isinstance(event, Finish)}
    events += [Finish("stop", index) for index in sorted(shown - finished)]
    if draw(st.booleans()):
        events.append(UsageReport(USAGE))
    return events


@given(answers(), st.integers(1, 5))
def test_folding_the_chunks_gives_the_body(events: list[StreamEvent], cut: int) -> None:
    body = json.loads(json.dumps(completion_body(collected(events), IDENTITY)))

    folded = fold(stream(events, include_usage=True, cut=cut))

    assert folded == body


@given(answers())
def test_a_whole_answer_streams_as_its_body(events: list[StreamEvent]) -> None:
    output = collected(events)

    folded = fold(stream(events_of(output), include_usage=True))

    assert folded == json.loads(json.dumps(completion_body(output, IDENTITY)))


@given(st.lists(st.text(min_size=1) | st.sampled_from([Extras(delta={"refusal": "no"}), "\ud800"])))
def test_text_fed_as_it_is_makes_the_chunks_of_its_events(
    pieces: list[str | Extras],
) -> None:
    by_events, by_text = ChunkEmitter(IDENTITY), ChunkEmitter(IDENTITY)
    for piece in pieces:
        if isinstance(piece, str):
            assert by_text.feed_texts([piece, "", piece]) == by_events.feed([TextDelta(piece)] * 2)
        else:
            assert by_text.feed([piece]) == by_events.feed([piece])


@given(st.lists(st.text(min_size=1), min_size=1))
def test_text_collected_as_it_is_makes_the_answer_of_its_events(pieces: list[str]) -> None:
    collector = Collector()
    collector.feed_texts(pieces)

    events: list[StreamEvent] = [TextDelta(piece) for piece in pieces]
    assert collector.output() == collected(events)
    assert collector.chars == sum(map(len, pieces))
