from typing import Any

import pytest

from edge.core.schema_faults import MAX_FAULTS, shown
from edge.core.schemas import compile_schema

STEP = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "state": {"enum": ["todo", "done"]}},
    "required": ["title"],
    "additionalProperties": False,
}


def faults(schema: Any, value: Any) -> dict[tuple[str | int, ...], str]:
    found = compile_schema(schema, "p").faults(value, 1_000)
    return {fault.path: fault.message for fault in found}


@pytest.mark.parametrize(
    ("schema", "value", "path", "words"),
    [
        ({"type": "integer"}, "a dozen", (), "integer"),
        ({"enum": ["low", "high"]}, "urgent", (), "low"),
        ({"const": 3}, 4, (), "3"),
        ({"maximum": 20}, 500, (), "20"),
        ({"required": ["body"]}, {}, ("body",), "required"),
        ({"properties": {"n": {"type": "integer"}}}, {"n": 2.5}, ("n",), "integer"),
        ({"additionalProperties": False}, {"extra": 1}, ("extra",), "not a property"),
        ({"additionalProperties": {"type": "string"}}, {"k": 1}, ("k",), "string"),
        ({"patternProperties": {"^x": {"type": "null"}}}, {"xa": 1}, ("xa",), "null"),
        ({"propertyNames": {"maxLength": 2}}, {"long": 1}, ("long",), "name"),
        ({"items": {"type": "string"}}, ["a", 2], (1,), "string"),
        ({"prefixItems": [{}, {"type": "null"}], "items": False}, [1, 2], (1,), "null"),
        ({"items": [{"type": "null"}], "additionalItems": False}, [None, 2], (1,), "allowed"),
        ({"contains": {"type": "null"}}, [1, 2], (), "no item"),
        ({"allOf": [{}, {"minLength": 3}]}, "ab", (), "3"),
        ({"not": {"type": "string"}}, "a", (), "excludes"),
        ({"if": {"type": "string"}, "then": {"minLength": 2}}, "a", (), "2"),
        ({"if": {"type": "string"}, "else": {"minimum": 2}}, 1, (), "2"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "x", (), "null, integer"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 1}]}, 2, (), "2 alternatives"),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"a": 1}, ("b",), "required"),
        ({"pattern": "^a+$"}, "b", (), "^a+$"),
        (False, 1, (), "not allowed"),
        ({"properties": {"a": False}}, {"a": 1}, ("a",), "not allowed"),
    ],
)
def test_a_fault_names_its_place_and_what_is_due(
    schema: Any, value: Any, path: tuple[str | int, ...], words: str
) -> None:
    assert words in faults(schema, value)[path]


def test_every_fault_of_a_nested_value_has_its_own_place() -> None:
    schema = {"properties": {"steps": {"type": "array", "items": STEP}}}

    found = faults(schema, {"steps": [{"title": "a", "state": "paused", "eta": 3}, {}]})

    assert set(found) == {
        ("steps", 0, "state"),
        ("steps", 0, "eta"),
        ("steps", 1, "title"),
    }


def test_of_alternatives_the_nearest_is_explained() -> None:
    schema = {
        "oneOf": [
            {"properties": {"kind": {"const": "move"}, "to": {"type": "string"}}},
            {"properties": {"kind": {"const": "say"}, "words": {"type": "string"}}},
        ]
    }

    assert set(faults(schema, {"kind": "say", "words": 3, "to": "x"})) == {("words",)}


def test_references_are_followed() -> None:
    schema = {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}

    assert set(faults(schema, {"a": "x"})) == {("a",)}


def test_there_are_never_more_than_a_few() -> None:
    schema = {"items": {"type": "string"}}

    assert len(faults(schema, list(range(1_000)))) == MAX_FAULTS


def test_what_cannot_be_explained_is_still_a_fault() -> None:
    schema = {"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": False}

    assert "JSON Schema" in faults(schema, {"b": 1})[()]


def test_a_message_never_echoes_a_long_value() -> None:
    found = faults({"enum": ["x" * 5_000]}, "y" * 1_000_000)

    assert len(found[()]) < 300


def test_values_are_shown_on_one_short_line() -> None:
    assert shown('a "quoted"\nline') == '"a \\"quoted\\"\\nline"'
    assert shown({"a": 1}) == "the object"
    assert shown([1]) == "the array"
    assert len(shown("z" * 1_000)) < 80
    assert len(shown(10**200)) < 80
