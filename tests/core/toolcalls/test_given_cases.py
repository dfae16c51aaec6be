"""The conformance cases whose answer is text, read in every cut, without a server."""

import json
import random
from typing import Any

import pytest

from tests.core.toolcalls.given_cases import (
    CASES,
    calls_of,
    content_of,
    contract_of,
    is_text_only,
    joined,
    pieces_of,
    read,
    reasoning_of,
    summary,
)

TEXT_CASES = [case for case in CASES if is_text_only(case)]
# Markup around a plain answer is taken off in these two, so they are not compared byte for byte.
CLEANED = {"harmony-010", "command-r-002"}
# The fence around a demanded JSON answer is taken off later, by the check of response_format.
CHECKED_LATER = {"response-format-002"}
UNREADABLE = {"bad_json", "truncated", "duplicate_key", "no_name", "bad_unicode", "malformed"}


def ids(case: dict[str, Any]) -> str:
    return str(case["id"])


def squeeze(text: str | None) -> str:
    return " ".join((text or "").split())


def cuts_of(case: dict[str, Any]) -> list[list[tuple[str, str]]]:
    """The case's text whole, as it came, one character at a time, and cut at random."""
    whole = joined(pieces_of(case))
    chance = random.Random(str(case["id"]))  # noqa: S311 - a shape, no secret
    cuts = [whole, pieces_of(case), [(field, char) for field, text in whole for char in text]]
    for _ in range(3):
        pieces = []
        for field, text in whole:
            at = 0
            while at < len(text):
                size = chance.randint(1, 9)
                pieces.append((field, text[at : at + size]))
                at += size
        cuts.append(pieces)
    return cuts


@pytest.mark.parametrize("live", [True, False], ids=["live", "held"])
@pytest.mark.parametrize("case", TEXT_CASES, ids=ids)
def test_every_cut_of_a_given_text_reads_the_same(case: dict[str, Any], live: bool) -> None:
    truncated = case["upstream"]["finish_reason"] == "length"
    contract = contract_of(case)
    first, *others = [
        summary(read(contract, cut, truncated=truncated, live=live)) for cut in cuts_of(case)
    ]
    for other in others:
        assert other == first


@pytest.mark.parametrize(
    "case", [case for case in TEXT_CASES if case["expect"]["outcome"] == "ok"], ids=ids
)
def test_a_sound_text_gives_the_calls_the_text_and_the_reasoning(case: dict[str, Any]) -> None:
    truncated = case["upstream"]["finish_reason"] == "length"
    events = read(contract_of(case), pieces_of(case), truncated=truncated, live=False)
    want = case["expect"]
    assert [call.fault for call in calls_of(events) if call.fault] == []
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(events)] == [
        (call["name"], call["arguments"]) for call in want["tool_calls"]
    ]
    if case["id"] not in CHECKED_LATER:
        if case["kind"] == "negative" and case["id"] not in CLEANED:
            assert content_of(events) == (want["content"] or "")
        assert squeeze(content_of(events)) == squeeze(want["content"])
    assert squeeze(reasoning_of(events)) == squeeze(want["reasoning_content"])


@pytest.mark.parametrize(
    "case",
    [case for case in TEXT_CASES if case["expect"].get("invalid_reason") in UNREADABLE],
    ids=ids,
)
def test_what_cannot_be_read_is_a_fault_that_names_the_place(case: dict[str, Any]) -> None:
    truncated = case["upstream"]["finish_reason"] == "length"
    calls = calls_of(read(contract_of(case), pieces_of(case), truncated=truncated))
    faults = " ".join(call.fault for call in calls)
    assert case["expect"]["error_contains"].lower() in faults.lower()
    for attempted in case["expect"]["attempted"][:1]:
        assert attempted["name"] in [call.name for call in calls if call.fault]


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in TEXT_CASES
        if case["expect"].get("invalid_reason") in {"schema", "unknown_tool"}
    ],
    ids=ids,
)
def test_a_call_that_only_breaks_its_contract_is_read_as_it_is(case: dict[str, Any]) -> None:
    calls = calls_of(read(contract_of(case), pieces_of(case)))
    for call, attempted in zip(calls, case["expect"]["attempted"], strict=True):
        assert call.name == attempted["name"]
        if call.fault:
            assert case["expect"]["error_contains"] in call.fault
        else:
            assert json.loads(call.arguments) == attempted["arguments"]
