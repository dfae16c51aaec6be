"""Vendors' chunks come out as the same events, whatever their habits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.contract import Contract
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.stream_events import (
    Extras,
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    UsageReport,
)
from edge.errors import ProviderProtocolError
from tests.strategies import TREES


def events(*chunks: dict[str, Any]) -> list[StreamEvent]:
    normalizer = Normalizer(Contract(), OutputPolicy())
    out: list[StreamEvent] = []
    for chunk in chunks:
        out += normalizer.feed(chunk)
    return out + normalizer.finish()


def delta(finish: str | None = None, *, index: Any = 0, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": fields, "finish_reason": finish}]}


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_both_names_of_the_reasoning_field_are_read(field: str) -> None:
    assert events(delta(**{field: "hm"}), delta("stop"))[0] == ReasoningDelta("hm")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("function_call", "tool_calls"),
        ("end_turn", "stop"),
        ("STOP", "stop"),
        ("None", None),
        ("", None),
        (None, None),
    ],
)
def test_finish_reasons_are_told_in_the_four_words(said: Any, told: Any) -> None:
    assert events(delta(content="x"), delta(said))[-1] == Finish(told)


def test_the_first_finish_reason_counts() -> None:
    assert events(delta("length"), delta("stop"))[-1] == Finish("length")


@pytest.mark.parametrize("word", ["error", "abort", "cancelled"])
def test_an_answer_that_was_broken_off_is_a_fault_behind_what_it_said(word: str) -> None:
    normalizer = Normalizer(Contract(), OutputPolicy())

    assert normalizer.feed(delta(content="Hello")) == [TextDelta("Hello")]
    assert normalizer.feed(delta(word)) == []
    with pytest.raises(ProviderProtocolError, match=word):
        normalizer.finish()


def test_usage_is_told_once_at_the_end_wherever_it_stood() -> None:
    counted = {"prompt_tokens": 1, "completion_tokens": 2}
    first = delta(content="x") | {"usage": {"prompt_tokens": 1}}
    last = delta("stop") | {"usage": counted}

    out = events(first, last, {"choices": [], "usage": None})

    assert [event for event in out if isinstance(event, UsageReport)] == [UsageReport(counted)]


def test_unknown_fields_worth_keeping_travel_and_come_once() -> None:
    chunk = delta(content="x") | {"system_fingerprint": "fp", "service_tier": None}

    out = events(chunk, chunk, delta(refusal="no"), delta("stop"))

    extras = [event for event in out if isinstance(event, Extras)]
    assert extras == [Extras(top={"system_fingerprint": "fp"}), Extras(delta={"refusal": "no"})]


def test_log_probabilities_come_before_the_text_they_belong_to() -> None:
    chunk = delta(content="x")
    chunk["choices"][0]["logprobs"] = {"content": []}

    assert [type(event) for event in events(chunk)[:2]] == [Extras, TextDelta]


@pytest.mark.parametrize("index", [None, "0", True, 1.5])
def test_an_index_that_is_none_is_the_first_choice(index: Any) -> None:
    assert events(delta(content="x", index=index))[0] == TextDelta("x", 0)


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}, {"type": "other"}]

    assert events(delta(content=parts))[0] == TextDelta("ab")


@pytest.mark.parametrize(
    "chunk",
    [{}, {"choices": []}, {"choices": None}, {"choices": [None]}, delta(), delta(content="")],
)
def test_chunks_that_say_nothing_say_nothing(chunk: dict[str, Any]) -> None:
    assert events(chunk) == [Finish(None)]


def test_choices_that_are_no_list_are_a_fault() -> None:
    with pytest.raises(ProviderProtocolError):
        events({"choices": {"0": {}}})


FIELDS = st.sampled_from(
    ["role", "content", "reasoning", "tool_calls", "function_call", "refusal", "audio", "x"]
)
ENTRIES = st.fixed_dictionaries(
    {"delta": st.dictionaries(FIELDS, TREES, max_size=3) | TREES},
    optional={
        "index": st.integers(-1, 2) | TREES,
        "finish_reason": st.sampled_from(["stop", "length", "eos"]) | TREES,
        "logprobs": TREES,
    },
)
CHUNKS = st.fixed_dictionaries(
    {"choices": st.lists(ENTRIES, max_size=2) | TREES},
    optional={"usage": TREES, "system_fingerprint": TREES},
)


@given(st.lists(CHUNKS, max_size=4))
def test_any_chunks_become_events_with_one_finish_a_choice_or_are_the_providers_fault(
    chunks: list[dict[str, Any]],
) -> None:
    try:
        found = events(*chunks)
    except ProviderProtocolError:
        return
    finishes = [event.choice for event in found if isinstance(event, Finish)]
    assert finishes == sorted(set(finishes))
    assert {event.choice for event in found if not isinstance(event, UsageReport)} <= {
        0,
        *finishes,
    }
    assert all(event.text for event in found if isinstance(event, TextDelta | ReasoningDelta))


def test_a_piece_of_text_in_mid_answer_passes_on_and_is_counted() -> None:
    normalizer = Normalizer(Contract(), OutputPolicy())
    assert normalizer.pass_on("a") is None
    assert normalizer.feed("a") == [TextDelta("a")]

    assert normalizer.pass_on("b ") == "b"
    assert normalizer.feed(" c") == [TextDelta("  c")]
    assert normalizer.read_chars == len("ab  c")


def test_nothing_passes_on_behind_a_finish_that_is_a_fault() -> None:
    normalizer = Normalizer(Contract(), OutputPolicy())
    normalizer.feed(delta(content="a"))
    normalizer.feed(delta("abort"))

    assert normalizer.pass_on("b") is None
    with pytest.raises(ProviderProtocolError, match="abort"):
        normalizer.feed("b")
