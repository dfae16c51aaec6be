"""The messages of a request: what is checked of a conversation, and its legacy forms."""

import copy
from typing import Any

import pytest

from edge.wire.openai_messages import checked_messages, in_current_words
from edge.wire.strict_structure import Complaint, Complaints

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def places(messages: Any) -> list[str]:
    with pytest.raises((Complaint, Complaints)) as caught:
        checked_messages(messages)
    error = caught.value
    if isinstance(error, Complaint):
        return [error.path]
    assert isinstance(error, Complaints)
    return [complaint.path for complaint in error.complaints]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]},
        {"role": "user", "content": []},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "tool_calls": None, "function_call": None},
        {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "not json"}},
        {"role": "tool", "tool_call_id": "c1", "content": "result"},
        {"role": "function", "name": "f", "content": "result"},
    ],
)
def test_what_agents_send_is_accepted_as_it_is(message: dict[str, Any]) -> None:
    messages = [message]
    assert checked_messages(messages) is messages


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("hi", ""),
        (None, ""),
        ({}, ".role"),
        ({"role": None}, ".role"),
        ({"role": ["user"]}, ".role"),
        ({"role": "assitant"}, ".role"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "user", "content": {"type": "text"}}, ".content"),
        ({"role": "user", "content": ["x"]}, ".content[0]"),
        ({"role": "user", "content": [{"type": "text"}, {"text": "x"}]}, ".content[1].type"),
        ({"role": "tool", "content": "x"}, ".tool_call_id"),
        ({"role": "tool", "tool_call_id": 5}, ".tool_call_id"),
        ({"role": "tool", "tool_call_id": ""}, ".tool_call_id"),
        ({"role": "function", "content": "x"}, ".name"),
        ({"role": "assistant", "tool_calls": {}}, ".tool_calls"),
        ({"role": "assistant", "tool_calls": ["f"]}, ".tool_calls[0]"),
        ({"role": "assistant", "tool_calls": [CALL, {**CALL, "id": 5}]}, ".tool_calls[1].id"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, ".tool_calls[0].function"),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": ""}}]},
            ".tool_calls[0].function.name",
        ),
        ({"role": "assistant", "function_call": {}}, ".function_call.name"),
    ],
)
def test_what_cannot_be_understood_is_refused_with_its_place(message: Any, place: str) -> None:
    assert places([{"role": "user"}, message]) == [f"[1]{place}"]


def test_every_broken_message_is_named() -> None:
    assert places([1, {"role": "user"}, {"role": "x"}]) == ["[0]", "[2].role"]


def test_a_conversation_in_todays_words_is_left_alone() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "user", "content": "y", "function_call": 5},
    ]
    assert in_current_words(messages) is messages


def test_legacy_calls_and_results_become_tool_calls_that_fit_together() -> None:
    function = {"name": "f", "arguments": "{}"}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": "thinking", "function_call": function},
        {"role": "function", "name": "f", "content": "two"},
        {"role": "assistant", "content": "done", "function_call": None},
    ]
    before = copy.deepcopy(messages)
    said = in_current_words(messages)
    assert messages == before
    assert [m["role"] for m in said] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert said[1]["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]
    assert said[2]["tool_call_id"] == "call_1"
    assert said[4]["tool_call_id"] == said[3]["tool_calls"][0]["id"] == "call_3"
    assert said[5] == {"role": "assistant", "content": "done"}
    assert not any("function_call" in m for m in said)


def test_a_legacy_result_without_its_call_keeps_a_place_of_its_own() -> None:
    said = in_current_words([{"role": "function", "name": "f", "content": "x"}])
    assert said[0]["tool_call_id"] == "call_0"
