"""The reader of text: what leaves at once, what is held, and for how long."""

import json
import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.contract import Contract, Tool
from edge.core.stream_events import StreamEvent, TextDelta, ToolCallDelta
from edge.core.toolcalls.reader import TextReader
from tests.core.toolcalls.given_cases import calls_of, content_of, read, reasoning_of, summary

CLOCK = Tool("clock", {"type": "object", "properties": {"zone": {"type": "string"}}})
PING = Tool("ping", {})
CONTRACT = Contract(tools={"clock": CLOCK, "ping": PING})
HERMES = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'


def texts(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def test_plain_text_leaves_in_the_feed_that_brought_it() -> None:
    reader = TextReader(CONTRACT)
    for piece in ("Hello", " there,", " it", " is 5", " o'clock: é😀."):
        assert texts(reader.feed(piece)) == [piece]
    assert reader.finish(truncated=False) == []


def test_only_what_may_begin_a_marker_is_held_and_only_until_it_cannot() -> None:
    reader = TextReader(CONTRACT)
    assert texts(reader.feed("a <")) == ["a"]
    assert texts(reader.feed("tool_")) == []
    assert texts(reader.feed("kit>")) == [" <tool_kit>"]
    assert texts(reader.feed(" b")) == [" b"]


def test_white_space_waits_for_what_follows_it() -> None:
    reader = TextReader(CONTRACT)
    assert texts(reader.feed("a \n")) == ["a"]
    assert texts(reader.feed("b")) == [" \nb"]
    assert texts(reader.feed("\n")) == []
    assert texts(reader.finish(truncated=False)) == ["\n"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_no_part_of_a_marker_shows_even_for_a_while(size: int) -> None:
    text = f"Sure.\n{HERMES}\n{HERMES} Done"
    reader = TextReader(CONTRACT)
    events: list[StreamEvent] = []
    for at in range(0, len(text), size):
        events += reader.feed(text[at : at + size])
        assert "Sure.\nDone".startswith("".join(texts(events)).replace(" D", "\nD"))
    events += reader.finish(truncated=False)
    assert content_of(events).split() == ["Sure.", "Done"]
    assert len(calls_of(events)) == 2


def test_a_call_carries_its_form_its_choice_and_its_repairs() -> None:
    reader = TextReader(CONTRACT, choice=3)
    events = reader.feed('<tool_call>{"name": "ping", "arguments": {},}</tool_call>')
    events += reader.finish(truncated=False)
    assert events == [
        ToolCallDelta("ping", "{}", origin="hermes", repairs=("trailing_comma",), choice=3)
    ]


def test_without_tools_nothing_is_looked_for_but_reasoning() -> None:
    text = f"<think>hm</think>Echo: {HERMES}"
    events = read(Contract(), [("content", text)])
    assert (content_of(events), reasoning_of(events)) == (f"Echo: {HERMES}", "hm")
    assert calls_of(events) == []


def test_calls_are_recognised_though_none_is_allowed() -> None:
    contract = Contract(tools=CONTRACT.tools, tool_choice="none")
    events = read(contract, [("content", f"No. {HERMES}")])
    assert [call.name for call in calls_of(events)] == ["ping"]
    assert content_of(events) == "No."


def test_recovery_can_be_turned_off() -> None:
    reader = TextReader(CONTRACT, recover=False)
    events = reader.feed(HERMES) + reader.finish(truncated=False)
    assert content_of(events) == HERMES


def test_repairs_can_be_turned_off() -> None:
    reader = TextReader(CONTRACT, repair=False)
    events = reader.feed('<tool_call>{"name": "ping", "arguments": {},}</tool_call>')
    (call,) = calls_of(events + reader.finish(truncated=False))
    assert "trailing_comma" in call.fault


def test_forms_can_be_pinned() -> None:
    reader = TextReader(CONTRACT, forms=("mistral",))
    text = f"{HERMES} [TOOL_CALLS]ping[ARGS]{{}}"
    events = reader.feed(text) + reader.finish(truncated=False)
    assert content_of(events) == HERMES
    assert [call.origin for call in calls_of(events)] == ["mistral"]


def test_a_call_larger_than_may_be_held_is_a_fault_and_ends_the_reading() -> None:
    reader = TextReader(CONTRACT, max_held_bytes=1000)
    events = reader.feed('<tool_call>{"name": "clock", "arguments": {"zone": "')
    for _ in range(40):
        events += reader.feed("x" * 50)
    events += reader.feed('"}}</tool_call> and text') + reader.finish(truncated=False)
    (call,) = calls_of(events)
    assert "too large" in call.fault
    assert content_of(events) == ""


def test_text_that_waits_for_a_closing_tag_is_let_go_when_it_is_too_much() -> None:
    reader = TextReader(CONTRACT, max_held_bytes=1000, live=False)
    events: list[StreamEvent] = []
    for _ in range(40):
        events += reader.feed("x" * 50)
    assert len(content_of(events)) >= 1000


@pytest.mark.parametrize("choice", ["named", "required"])
def test_the_bare_arguments_are_a_call_where_one_tool_is_demanded(choice: str) -> None:
    contract = Contract(
        tools={"clock": CLOCK}, tool_choice="named" if choice == "named" else "required"
    )
    for text in ('{"zone": "a"}', '```json\n{"zone": "a"}\n```', '<think>x</think>{"zone": "a"}'):
        (call,) = calls_of(read(contract, [("content", text)]))
        assert (call.name, json.loads(call.arguments)) == ("clock", {"zone": "a"})
    assert calls_of(read(contract, [("content", '{"zone": "a"} so')])) == []


# Everything that means something to the scanner, to be thrown together at random.
SIGNS = [
    "<tool_call>", "</tool_call>", "<function=clock>", "<parameter=zone>", "</parameter>",
    "</function>", "<think>", "</think>", "[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]",
    "<|python_tag|>", "<|tool_call_begin|>", "<|tool_calls_section_begin|>", "<|channel|>final",
    "<|message|>", "<|start|>assistant", "<|end|>", "<｜tool▁calls▁begin｜>", "functools[",
    "<clock>", "<zone>", "</zone>", "</clock>", "```", "```json\n", "`", "> ", ">>>clock\n", "{",
    "}", "[", "]", '{"name": "clock", "arguments": {"zone": "x"}}', "[ping()]", "clock", "ping",
    " ", "\n", "text", "é", '"', "'", "\\", "call:ping{}", "<|tool_call>", "<tool_response>",
    "\ufeff",
    "<answer>", "<|im_end|>", "Action: ", "all\n", " to=clock",
]  # fmt: skip
SOUP = st.lists(st.sampled_from(SIGNS), max_size=10).map("".join)


@given(SOUP, st.booleans(), st.booleans(), st.integers(0, 9999))
@settings(max_examples=300, deadline=None)
def test_any_text_at_all_reads_the_same_in_every_cut(
    text: str, truncated: bool, live: bool, seed: int
) -> None:
    chance = random.Random(seed)  # noqa: S311 - a shape, no secret
    points = sorted(chance.sample(range(len(text) + 1), min(3, len(text))))
    cuts = [0, *points, len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts) if a < b]
    whole = summary(read(CONTRACT, [("content", text)], truncated=truncated, live=live))
    for cut in (pieces, list(text)):
        parts = [("content", piece) for piece in cut]
        assert summary(read(CONTRACT, parts, truncated=truncated, live=live)) == whole


@given(st.lists(st.sampled_from([*SIGNS, "word", " and ", "so\n", "a ", "b"]), max_size=14))
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("live", [True, False])
def test_what_passes_on_is_what_feeding_would_have_told(live: bool, pieces: list[str]) -> None:
    fed, passed = (TextReader(CONTRACT, live=live) for _ in range(2))
    for piece in ["Well, ", "then", *pieces]:
        events = fed.feed(piece)
        text = passed.pass_on(piece)

        if text is None:
            assert passed.feed(piece) == events
        else:
            assert events == ([TextDelta(text)] if text else [])
    assert passed.finish(truncated=False) == fed.finish(truncated=False)


def test_plain_text_in_mid_answer_passes_on() -> None:
    reader = TextReader(CONTRACT)
    assert reader.pass_on("Well") is None
    reader.feed("Well")

    told = [reader.pass_on(piece) for piece in (", then ", "or ", "\nnot", "<tool_", "x", "y")]
    assert told == [", then", " or", " \nnot", None, "x", "y"]


@pytest.mark.parametrize(("before", "is_marker"), [(", my", False), (", so:", True)])
def test_what_passed_on_last_is_what_a_marker_stands_behind(before: str, is_marker: bool) -> None:
    reader = TextReader(CONTRACT)
    reader.feed("Well")
    assert reader.pass_on(", then") == ", then"
    reader.feed("\u2014")
    assert reader.pass_on(before) == before
    events = reader.feed('functools[{"name": "ping", "arguments": {}}]')
    events += reader.finish(truncated=False)

    # Within a word it is no marker, but the list behind it is a call all the same.
    assert content_of(events) == ("" if is_marker else "functools")
    assert [call.name for call in calls_of(events)] == ["ping"]


# Beginnings of markers, and marks of everyday text: nothing of it is a call or reasoning.
PIECES = [
    "<tool_cal", "<|tool_call_be", "[TOOL_", "<thin", "</thin", "<|chan", "functool", "<func", "`",
    "``", "```", "\n```\n", "> ", "\n> ", ">>>", "{", '{"', "}", "[", "]", "<", ">", "word", " ",
    "\n", "\n\n", "é", "😀", "a < b", "f(x)", '{"a": [1, 2]}', "[link](url)", "<b>", "&amp;", "  ",
    "\t", "~~~", "\\", "clock", "ping", "call", "Action", "\ufeff",
]  # fmt: skip
PROSE = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(PROSE, st.booleans())
@settings(max_examples=300, deadline=None)
def test_text_that_is_no_call_comes_out_byte_for_byte(text: str, live: bool) -> None:
    for pieces in ([text], list(text)):
        events = read(CONTRACT, [("content", piece) for piece in pieces], live=live)
        assert content_of(events) == text
        assert calls_of(events) == []
        assert reasoning_of(events) == ""


@given(PROSE, PROSE)
@settings(max_examples=100, deadline=None)
def test_reasoning_and_answer_are_told_apart_whatever_they_say(thought: str, said: str) -> None:
    events = read(CONTRACT, [("content", f"<think>{thought}</think>{said}")])
    if "`" in thought.rpartition("\n")[2]:
        return  # the closing tag may stand in a code span
    assert reasoning_of(events) == thought.strip(" \t\r\n")
    assert content_of(events).strip() == said.strip()
