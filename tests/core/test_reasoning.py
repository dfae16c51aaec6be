"""Reasoning in text and in its own field: where it starts, where it ends, what in it is a call."""

import pytest

from edge.core.contract import Contract, Tool
from edge.core.reasoning import THINK_TAGS, ThinkTags
from edge.core.stream_events import ReasoningDelta, StreamEvent
from edge.core.toolcalls.reader import TextReader
from tests.core.toolcalls.given_cases import calls_of, content_of, read, reasoning_of, summary

CONTRACT = Contract(tools={"ping": Tool("ping", {}), "list_all": Tool("list_all", {})})
DRAFT = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
CALL = '<tool_call>{"name": "list_all", "arguments": {}}</tool_call>'


def told(text: str, *, live: bool = False) -> tuple[str, str, list[str]]:
    """Answer, reasoning and names of calls, the same for every cut."""
    events = read(CONTRACT, [("content", text)], live=live)
    assert summary(read(CONTRACT, [("content", char) for char in text], live=live)) == summary(
        events
    )
    return content_of(events), reasoning_of(events), [call.name for call in calls_of(events)]


@pytest.mark.parametrize(
    "tags", [tags for tags in THINK_TAGS if tags.opening], ids=lambda tags: tags.opening
)
def test_every_pair_of_tags_is_known(tags: ThinkTags) -> None:
    text = f"\n{tags.opening}One and\ntwo.\n{tags.closing}\n\nThree."
    assert told(text) == ("Three.", "One and\ntwo.", [])
    assert told(text, live=True) == ("Three.", "One and\ntwo.", [])


@pytest.mark.parametrize("tags", [tags for tags in THINK_TAGS if tags.alone])
def test_a_closing_tag_alone_ends_reasoning_that_the_prompt_began(tags: ThinkTags) -> None:
    assert told(f"One.\n{tags.closing}\n\nTwo.") == ("Two.", "One.", [])


def test_live_text_that_a_closing_tag_makes_reasoning_has_been_shown_and_stays_apart() -> None:
    assert told("One.</think>Two.", live=True) == ("One.\nTwo.", "", [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>never closed", ("", "never closed", [])),
        ("<think></think>Hi", ("Hi", "", [])),
        ("<think>\n\n</think>\n\nHi", ("Hi", "", [])),
        ("<think>a <think>b</think> c</think>Hi", ("Hi", "a <think>b</think> c", [])),
        ("<think>the <think> tag</think>Hi", ("Hi", "the <think> tag", [])),
        ("<think>the `</think>` tag</think>Hi", ("Hi", "the `</think>` tag", [])),
        ("<think>```\ncode</think>Hi", ("Hi", "```\ncode", [])),
        ("<think>a</think>Hi.\n</think>", ("Hi.", "a", [])),
        ("<think>a</think>\n<think>b</think>Hi", ("Hi", "a\nb", [])),
        ("Hi <think>x</think> you", ("Hi <think>x</think> you", "", [])),
        ("Say `<think>` and `</think>`.", ("Say `<think>` and `</think>`.", "", [])),
        ("</mm:think>Hi", ("Hi", "", [])),
    ],
)
def test_a_block_counts_only_as_the_first_thing_of_an_answer(
    text: str, expected: tuple[str, str, list[str]]
) -> None:
    assert told(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Closed, and something follows: a draft.
        (f"<think>{DRAFT} no</think>{CALL}", ("", f"{DRAFT} no", ["list_all"])),
        (f"<think>a {DRAFT}</think>Hi", ("Hi", f"a {DRAFT}", [])),
        (f"a {DRAFT} b</think>\nHi", ("Hi", f"a {DRAFT} b", [])),
        (f"a {DRAFT} b</think>\n{CALL}", ("", f"a {DRAFT} b", ["list_all"])),
        ('<think>try <tool_call>{"name": </think>Hi', ("Hi", 'try <tool_call>{"name":', [])),
        # Never closed, or nothing follows: the call is meant.
        (f"<think>go\n{CALL}", ("", "go", ["list_all"])),
        (f"<think>go {CALL}</think>\n", ("", "go", ["list_all"])),
    ],
)
def test_a_call_in_reasoning_is_a_draft_if_the_block_is_closed_and_something_follows(
    text: str, expected: tuple[str, str, list[str]]
) -> None:
    assert told(text) == expected


def test_reasoning_leaves_as_it_comes() -> None:
    reader = TextReader(CONTRACT)
    events = reader.feed("<think>One")
    assert events == [ReasoningDelta("One")]
    assert reader.feed(" and <b") == [ReasoningDelta(" and <b")]
    assert reader.feed("</th") == []
    assert reader.feed("ink>Hi") != []


def field(text: str, content: str, *, native: bool = False) -> list[StreamEvent]:
    reader = TextReader(CONTRACT)
    events: list[StreamEvent] = []
    for char in text:
        events += reader.feed_reasoning(char)
    events += reader.feed(content) if content else []
    return events + reader.finish(truncated=False, native_calls=native)


def test_the_field_is_passed_on() -> None:
    events = field("Sum it.", "Seven")
    assert (content_of(events), reasoning_of(events)) == ("Seven", "Sum it.")


@pytest.mark.parametrize("content", ["", "\n"])
def test_a_call_in_the_field_counts_if_nothing_else_comes(content: str) -> None:
    events = field(f"Go. {CALL}", content)
    assert [call.name for call in calls_of(events)] == ["list_all"]
    assert reasoning_of(events) == "Go."


def test_a_call_in_the_field_is_a_draft_if_text_or_calls_follow() -> None:
    for events, names in (
        (field(f"Maybe {DRAFT}?", "It is noon."), []),
        (field(f"Maybe {DRAFT}?", CALL), ["list_all"]),
        (field(f"Maybe {DRAFT}?", "", native=True), []),
    ):
        assert reasoning_of(events) == f"Maybe {DRAFT}?"
        assert [call.name for call in calls_of(events)] == names


def test_a_closing_tag_in_the_text_ends_what_the_field_began() -> None:
    events = field("Sum it. ", "\n</think>\nSeven.")
    assert (content_of(events), reasoning_of(events).strip()) == ("Seven.", "Sum it.")


def test_tags_around_the_answer_are_no_text_behind_reasoning() -> None:
    assert told("<think>a</think>\n<answer>\nHi\n</answer>")[0].strip() == "Hi"
    assert told("The <answer> tag</answer>")[0] == "The <answer> tag</answer>"
