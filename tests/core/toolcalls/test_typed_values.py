"""Bare text between tags, typed by the tool's schema and never guessed."""

from typing import Any

import pytest

from edge.core.toolcalls.typed_values import typed

ROOT: dict[str, Any] = {"$defs": {"count": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("42", {"type": "string"}, "42"),
        ("null", {"type": "string"}, "null"),
        (' {"a": 1}\n', {"type": "string"}, ' {"a": 1}\n'),
        ("null", {"type": ["string", "null"]}, None),
        ("none", {"type": ["string", "null"]}, "none"),
        ("TRUE", {"type": "boolean"}, True),
        ("yes", {"type": "boolean"}, "yes"),
        ("1", {"type": "boolean"}, "1"),
        ("-7", {"type": "integer"}, -7),
        ("2.5", {"type": "integer"}, 2.5),
        ("a dozen", {"type": "integer"}, "a dozen"),
        ("123456789012345678901234567890", {"type": "integer"}, 123456789012345678901234567890),
        ("1.5e3", {"type": "number"}, 1500.0),
        ("1e999", {"type": "number"}, "1e999"),
        ("NaN", {"type": "number"}, "NaN"),
        ("[true, null]", {"type": "array"}, [True, None]),
        ("['a', None]", {"type": "array"}, ["a", None]),
        ("[1", {"type": "array"}, "[1"),
        ("{'a': 1}", {"type": "object"}, {"a": 1}),
        ("[1]", {"type": "object"}, "[1]"),
        ("17", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, 17),
        ("2.5", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "2.5"),
        ("17 kg", {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "17 kg"),
        ("3", {"enum": [1, 2, 3]}, 3),
        ("3", {"enum": ["3"]}, "3"),
        ("3", {"$ref": "#/$defs/count"}, 3),
        ("3", {"$ref": "https://example.invalid/x"}, "3"),
        ("3", {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}, 3),
        ("3", {}, "3"),
        ("3", None, "3"),
    ],
)
def test_the_schema_decides_what_a_text_is(text: str, schema: Any, value: Any) -> None:
    found, _ = typed(text, schema, ROOT)
    assert found == value
    assert type(found) is type(value)


def test_a_python_literal_is_a_repair_that_is_named() -> None:
    assert typed("['a']", {"type": "array"}, {}) == (["a"], ("python_literal",))
    assert typed("['a']", {"type": "array"}, {}, repair=False) == ("['a']", ())
