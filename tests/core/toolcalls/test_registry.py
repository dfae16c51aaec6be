"""The laws that every form keeps: what was rendered is read back, in any cut, and nothing leaks."""

import json
import random
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edge.core.contract import Contract, Tool
from edge.core.toolcalls.registry import FORM_NAMES
from tests.core.toolcalls.given_cases import calls_of, content_of, read, summary
from tests.core.toolcalls.rendered_forms import (
    DELIMITERS,
    RENDERED,
    TEXT_VALUES,
    TRIMS,
    VALUE_CLOSERS,
)

# Texts that break careless readers: quotes, escapes, brackets, markers, closers, layout.
TEXTS = st.lists(
    st.sampled_from(
        [
            "a", "Zoë", "😀", " ", "\n", "\t", '"', "'", "\\", "\\n", "<", ">", "&amp;", "{", "}",
            "[", "]", "(", ")", ",", ":", "=", ";", "`", "```", "null", "true", "42", "<b>",
            "</tool_call>", "</parameter>", "</think>", "<tool_call>", "[TOOL_CALLS]", "<|call|>",
            "</arg_value>", "<|tool_call_end|>", "\u2028", "\x00", "\r\n",
        ]
    ),
    max_size=6,
).map("".join)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 2**53 + 1, 2**64, -(10**30)]),
)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from([0.1, -2.5e-7, 1e22]), TEXTS)
KEYS = st.sampled_from(["a", "b_2", "name", "item", "Key"])
FREE = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)

# A parameter is a schema and the values that keep it; both are drawn together.
PARAMETERS: dict[str, tuple[dict[str, Any], st.SearchStrategy[Any]]] = {
    "body": ({"type": "string"}, TEXTS),
    "count": ({"type": "integer"}, NUMBERS),
    "gain": ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    "flag": ({"type": "boolean"}, st.booleans()),
    "until": ({"type": ["integer", "null"]}, st.none() | st.integers()),
    "tags": ({"type": "array", "items": {"type": "string"}}, st.lists(TEXTS, max_size=3)),
    "meta": (
        {
            "type": "object",
            "properties": {"deep": {"type": "array", "items": {"type": "integer"}}},
        },
        st.fixed_dictionaries({}, optional={"deep": st.lists(st.integers(), max_size=3)}),
    ),
}
TOOL = Tool(
    "save_it",
    {"type": "object", "properties": {name: schema for name, (schema, _) in PARAMETERS.items()}},
)
OTHER = Tool("ping", {"type": "object", "properties": {}})
CONTRACT = Contract(tools={"save_it": TOOL, "ping": OTHER})
ARGUMENTS = st.fixed_dictionaries(
    {}, optional={name: values for name, (_, values) in PARAMETERS.items()}
)
FREE_ARGUMENTS = st.dictionaries(
    st.sampled_from(["body", "count", "data", "name"]), FREE, max_size=3
)


ENDS_EARLY = re.compile(r"</parameter>(\s|\\.)*</tool_call>")
"""In Qwen's form such a value cannot be told from the end of a call that lacks ``</function>``, and
models do forget that."""


def arguments_for(form: str) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments that the form can write at all."""
    arguments = ARGUMENTS if form in TEXT_VALUES else FREE_ARGUMENTS
    if form in DELIMITERS:
        return arguments.filter(lambda given: DELIMITERS[form] not in json.dumps(given))
    if form == "qwen3-coder":
        return arguments.filter(lambda given: not ENDS_EARLY.search(json.dumps(given)))
    if form in TRIMS:
        return arguments.map(trimmed)
    return arguments


def trimmed(given: dict[str, Any]) -> dict[str, Any]:
    return {k: v.strip() if isinstance(v, str) else v for k, v in given.items()}


def calls_in(form: str) -> st.SearchStrategy[list[tuple[str, dict[str, Any]]]]:
    one = st.tuples(st.just("save_it"), arguments_for(form))
    return st.lists(st.one_of(one, st.just(("ping", {}))), min_size=1, max_size=3)


def test_every_form_of_the_registry_is_rendered_here() -> None:
    assert set(FORM_NAMES) == set(RENDERED)


@pytest.mark.parametrize("form", FORM_NAMES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_rendered_call_reads_back_as_the_same_call(form: str, data: st.DataObject) -> None:
    calls = data.draw(calls_in(form))
    events = read(CONTRACT, [("content", RENDERED[form](calls))], live=data.draw(st.booleans()))
    found = calls_of(events)
    assert [call.fault for call in found if call.fault] == []
    assert [(call.name, json.loads(call.arguments)) for call in found] == calls
    assert content_of(events) == ""


@pytest.mark.parametrize("form", FORM_NAMES)
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_cut_gives_the_same(form: str, data: st.DataObject) -> None:
    text = RENDERED[form](data.draw(calls_in(form)))
    text = data.draw(st.sampled_from(["", "Sure.\n", "<think>hm</think>\n"])) + text
    text = text[: data.draw(st.sampled_from([len(text), len(text) // 2, len(text) - 3]))]
    assume(text)
    truncated, live = data.draw(st.booleans()), data.draw(st.booleans())
    chance = random.Random(data.draw(st.integers(0, 9999)))  # noqa: S311 - a shape, no secret
    points = sorted(chance.sample(range(len(text) + 1), min(4, len(text))))
    cuts = [0, *points, len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts) if a < b]
    whole = summary(read(CONTRACT, [("content", text)], truncated=truncated, live=live))
    for cut in (pieces, list(text)):
        parts = [("content", piece) for piece in cut]
        assert summary(read(CONTRACT, parts, truncated=truncated, live=live)) == whole


@pytest.mark.parametrize("form", sorted(set(FORM_NAMES) - {"fenced-json", "harmony"}))
def test_text_around_calls_stays_and_no_part_of_a_marker_shows(form: str) -> None:
    calls = [("save_it", {"body": "x < y"}), ("ping", {})]
    text = f"Let me see.\n{RENDERED[form](calls)}"
    events = read(CONTRACT, [("content", char) for char in text])
    assert content_of(events) == "Let me see."
    assert [call.name for call in calls_of(events)] == ["save_it", "ping"]


@pytest.mark.parametrize("form", sorted(VALUE_CLOSERS))
def test_a_value_may_hold_its_own_closing_tag(form: str) -> None:
    closer = VALUE_CLOSERS[form]
    body = f'print("{closer}")\n  {closer} twice'
    text = RENDERED[form]([("save_it", {"body": body, "count": 1})])
    (call,) = calls_of(read(CONTRACT, [("content", text)]))
    assert json.loads(call.arguments) == {"body": body, "count": 1}


@pytest.mark.parametrize("form", FORM_NAMES)
def test_a_value_may_hold_a_whole_call_of_its_own_form(form: str) -> None:
    inner = RENDERED[form]([("ping", {})])
    body = f"like this: {inner} and so on"
    if form in DELIMITERS:
        pytest.skip("its strings cannot hold their delimiter")
    text = RENDERED[form]([("save_it", {"body": body})])
    (call,) = calls_of(read(CONTRACT, [("content", text)]))
    assert json.loads(call.arguments) == {"body": body}


@pytest.mark.parametrize("form", FORM_NAMES)
def test_a_call_cut_by_the_length_limit_is_never_read_as_a_whole_one(form: str) -> None:
    arguments = {"body": "one two three", "count": 12345}
    text = RENDERED[form]([("save_it", arguments)])
    for end in range(text.index("one") + 3, text.index("345") + 2):
        calls = calls_of(read(CONTRACT, [("content", text[:end])], truncated=True))
        assert [call for call in calls if not call.fault] == [], text[:end]


@pytest.mark.parametrize("form", FORM_NAMES)
def test_a_cut_call_says_so_in_its_fault(form: str) -> None:
    text = RENDERED[form]([("save_it", {"body": "one two three", "count": 5})])
    half = [("content", text[: text.index("two")])]
    assert "length" in calls_of(read(CONTRACT, half, truncated=True))[-1].fault
    assert "incomplete" in calls_of(read(CONTRACT, half))[-1].fault
