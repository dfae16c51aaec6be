"""Reading JSON strictly, repairing it where nothing is lost, and decoding JSON inside strings."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.lenient_json import MAX_DEPTH
from edge.core.repair import parse_json, to_json, unstring

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value", "repairs"),
    [
        ("[1, 2,]", [1, 2], ("trailing_comma",)),
        ('{"a": 1,}', {"a": 1}, ("trailing_comma",)),
        ('[{"a": 1} {"b": 2}]', [{"a": 1}, {"b": 2}], ("missing_comma",)),
        ('{"a": 1}}', {"a": 1}, ("surplus_brace",)),
        ('[{"a": 1}}]', [{"a": 1}], ("surplus_brace",)),
        ("\ufeff\u200b{}", {}, ("byte_order_mark",)),
        ("{'a': \"it's\", 'b': None}", {"a": "it's", "b": None}, ("python_literal",)),
        (r"['it\'s', '\x41', '\d', '\U0001F600']", ["it's", "A", "\\d", "😀"], ("python_literal",)),
        ('{"a": True}', {"a": True}, ("python_literal",)),
        ('{"a": """x "y" z"""}', {"a": 'x "y" z'}, ("python_literal",)),
        ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}, ("raw_newline",)),
    ],
)
def test_what_has_one_lossless_reading_is_repaired_and_the_repair_is_named(
    text: str, value: Any, repairs: tuple[str, ...]
) -> None:
    parsed = parse_json(text)
    assert (parsed.value, parsed.repairs, parsed.fault) == (value, repairs, "")
    assert json.loads(parsed.text) == value


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ('{"a": NaN}', "not_finite", ["a ", "NaN", "JSON"]),
        ('{"a": -Infinity}', "not_finite", ["a ", "Infinity"]),
        ('{"a": 1e999}', "not_finite", ["a ", "large"]),
        ('{"a": {"b": 1, "b": 1}}', "duplicate_key", ["a.b", "twice"]),
        ('{"a": "say "hi" now"}', "not_json", ["JSON", "'h'"]),
        ('{"a": [1, "ha', "unfinished", ["incomplete", "a[1]"]),
        ('{"a": 1', "unfinished", ["incomplete"]),
        ('{"a": tr', "unfinished", ["incomplete", "a "]),
        (r'{"a": "\ud83d"}', "surrogate", ["a ", "surrogate"]),
        ('{"a": "\ud83d"}', "surrogate", ["a ", "surrogate"]),
        ('{"a": 1 "b": 2}', "not_json", ["JSON"]),
        ("[1,,2]", "not_json", ["[1]"]),
        ("{a: 1}", "not_json", ["quoted key"]),
        (r'{"a": "\d"}', "not_json", ["a ", "escape"]),
        ('{"a": 01}', "not_json", ["a "]),
        ("{} {}", "not_json", ["behind"]),
        ('{"a": 1}}}', "not_json", ["behind"]),
        ("", "unfinished", ["incomplete"]),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), "too_deep", ["deeper"]),
        ("[" * 100_000, "too_deep", ["deeper"]),
    ],
)
def test_what_would_lose_or_guess_is_a_fault_that_names_the_place(
    text: str, kind: str, words: list[str]
) -> None:
    parsed = parse_json(text)
    assert parsed.kind == kind
    assert [word for word in words if word not in parsed.fault] == []
    assert parsed.text == text


def test_the_outer_closer_may_be_missing_only_where_the_caller_says_so() -> None:
    text = '[{"name": "a", "arguments": {}}'
    assert parse_json(text).is_unfinished
    assert parse_json(text, outer_closer=True).repairs == ("missing_closer",)
    assert parse_json('{"a": "b"', outer_closer=True).is_unfinished
    assert parse_json('[{"a": {"b": {}}', outer_closer=True).is_unfinished


def test_repairs_can_be_turned_off() -> None:
    parsed = parse_json("{'a': 1}", repair=False)
    assert "python_literal" in parsed.fault
    assert parse_json('{"a": 1}', repair=False).fault == ""


def test_sound_text_is_kept_as_it_is_written() -> None:
    text = '{"a": 1.50, "b": 9007199254740993, "c": 1e3}'
    assert parse_json(f"\n {text} ").text == text


@given(json_values)
def test_every_json_value_reads_as_itself_and_needs_no_repair(value: Any) -> None:
    parsed = parse_json(json.dumps(value))
    assert parsed.value == value
    assert parsed.repairs == ()
    assert json.loads(to_json(value)) == value


@given(json_values)
def test_every_python_literal_reads_as_the_same_value(value: Any) -> None:
    parsed = parse_json(repr(value))
    assert parsed.fault == ""
    assert parsed.value == value


@given(json_values, st.data())
def test_a_cut_value_is_never_read_as_a_shorter_one(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value])
    cut = data.draw(st.integers(0, len(text) - 1))
    assert parse_json(text[:cut]).is_unfinished


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}},
        "meta": {"anyOf": [{"type": "object"}, {"type": "null"}]},
        "body": {"type": "string"},
        "either": {"type": ["array", "string"]},
    },
    "$defs": {"step": {"type": "object", "properties": {"tags": {"type": "array"}}}},
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"steps": '[{"tags": "[1]"}]'}, {"steps": [{"tags": [1]}]}),
        ({"steps": ['{"tags": []}']}, {"steps": [{"tags": []}]}),
        ({"meta": "{'a': 1}"}, {"meta": {"a": 1}}),
        ('{"steps": []}', {"steps": []}),
    ],
)
def test_json_inside_a_string_is_decoded_where_an_array_or_object_is_due(
    value: Any, expected: Any
) -> None:
    assert unstring(value, SCHEMA) == (expected, ("json_in_string",))


@pytest.mark.parametrize(
    "value",
    [
        {"body": '["x"]'},
        {"either": "[1]"},
        {"steps": '{"not": "a list"}'},
        {"steps": "[unsound"},
        {"unknown": "[1]"},
        {"steps": [1, "two"]},
    ],
)
def test_other_strings_stay_strings(value: Any) -> None:
    changed, repairs = unstring(value, SCHEMA)
    assert changed is value
    assert repairs == ()


def test_a_schema_that_refers_to_itself_or_elsewhere_does_no_harm() -> None:
    loop: dict[str, Any] = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}
    assert unstring("[1]", loop) == ("[1]", ())
    assert unstring("[1]", {"$ref": "https://example.invalid/s"}) == ("[1]", ())
    tree: dict[str, Any] = {"$defs": {}, "type": "array", "items": {"$ref": "#"}}
    assert unstring(["[[]]"], tree) == ([[[]]], ("json_in_string",))


MARKS = st.lists(
    st.sampled_from(
        [
            *(
                "{",
                "}",
                "[",
                "]",
                ",",
                ":",
                '"',
                "'",
                "\\",
                "\\u",
                "\\ud800",
                "\\x4",
                "True",
                "null",
            ),
            *("NaN", "1", "-", "1e999", ".5", "\n", "\ufeff", " ", "a", "é", "'''", "\ud800"),
        ]
    ),
    max_size=16,
).map("".join)


@given(st.text() | MARKS, st.booleans(), st.booleans())
def test_any_text_is_a_value_that_can_be_written_or_has_a_fault(
    text: str, repair: bool, outer_closer: bool
) -> None:
    parsed = parse_json(text, repair=repair, outer_closer=outer_closer)

    assert bool(parsed.fault) == (parsed.kind is not None)
    if not parsed.fault:
        parsed.text.encode()
        assert json.loads(parsed.text) == parsed.value
        assert not parse_json(parsed.text).repairs
        assert repair or not parsed.repairs
