"""Values made from schemas: allowed by their schema, the same every time, in bounded time."""

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.schema_example import schema_example


def allowed(schema: Any) -> Any:
    value = schema_example(schema)
    jsonschema_rs.validator_for(schema, validate_formats=True).validate(value)
    return value


bounds = st.integers(-50, 50)
widths = st.integers(2, 20)

numbers = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={"multipleOf": st.sampled_from([1, 2, 5, 0.5])},
    ),
    st.builds(
        lambda low, key, kind: {"type": kind, key: low},
        bounds,
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        st.sampled_from(["integer", "number"]),
    ),
    st.builds(
        lambda low, width, kind: {"type": kind, "minimum": low, "exclusiveMaximum": low + width},
        bounds,
        widths,
        st.sampled_from(["integer", "number"]),
    ),
)
texts = st.one_of(
    st.builds(
        lambda low, width: {"type": "string", "minLength": low, "maxLength": low + width},
        st.integers(0, 10),
        st.integers(0, 10),
    ),
    st.sampled_from(["date", "date-time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"]).map(
        lambda name: {"type": "string", "format": name}
    ),
)
leaves = st.one_of(
    numbers,
    texts,
    st.sampled_from(["boolean", "null", "string", "object", "array"]).map(lambda t: {"type": t}),
    st.lists(st.text() | st.integers() | st.none(), min_size=1).map(lambda e: {"enum": e}),
    (st.text() | st.booleans()).map(lambda c: {"const": c}),
    st.just(True),
    st.just({}),
)
names = st.text("abcdef", min_size=1, max_size=3)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda properties, required, extra: {
            "type": "object",
            "properties": properties,
            "required": sorted(set(list(properties)[:required]) | set(extra)),
            "minProperties": required,
        },
        st.dictionaries(names, inner, max_size=4),
        st.integers(0, 4),
        st.lists(names, max_size=1),
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda items, low, width: {
            "type": "array",
            "items": items,
            "minItems": low,
            "maxItems": low + width,
        },
        inner,
        st.integers(0, 3),
        widths,
    )


schemas = st.recursive(
    leaves,
    lambda inner: st.one_of(
        objects(inner),
        arrays(inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    ),
    max_leaves=12,
)


@given(schemas)
def test_a_value_keeps_its_schema(schema: Any) -> None:
    allowed(schema)


@given(schemas)
def test_the_same_schema_gives_the_same_value(schema: Any) -> None:
    assert schema_example(schema) == schema_example(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True, "minItems": 5, "items": {"type": "integer"}},
        {"type": "array", "uniqueItems": True, "minItems": 4, "items": {"type": "string"}},
        {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"enum": ["a", "b"]}},
        {"type": "array", "uniqueItems": True, "minItems": 2, "items": {"type": "boolean"}},
        {
            "type": "array",
            "uniqueItems": True,
            "minItems": 4,
            "items": {"type": "integer", "maximum": 2},
        },
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
        {"type": "string", "pattern": "^[A-Z]{2}$"},
        {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        {"type": "string", "pattern": r"^\S+@\S+$", "maxLength": 40},
        {"type": ["null", "integer"], "minimum": 4},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}]},
        {"minimum": 7},
        {"properties": {"a": {"type": "boolean"}}},
        {"type": "integer", "multipleOf": 2.5},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
        {"$ref": "#/$defs/city", "$defs": {"city": {"type": "string", "minLength": 30}}},
        {"default": 5, "type": "integer"},
        {"examples": ["x"], "type": "string"},
    ],
)
def test_what_tool_schemas_are_made_of_is_met(schema: Any) -> None:
    allowed(schema)


def test_an_alternative_that_is_just_null_is_not_chosen() -> None:
    assert allowed({"anyOf": [{"type": "null"}, {"type": "integer"}]}) == 1


def test_required_properties_are_enough_and_without_any_all_are_given() -> None:
    properties = {"a": {"type": "integer"}, "b": {"type": "string"}}
    schema = {"type": "object", "properties": properties}
    assert allowed({**schema, "required": ["b"]}) == {"b": "example"}
    assert allowed(schema) == {"a": 1, "b": "example"}


def test_a_recursive_schema_ends() -> None:
    node = {"type": "object", "required": ["value"], "properties": {"value": {"type": "string"}}}
    tree = {**node, "properties": {**node["properties"], "next": {"$ref": "#"}}}  # type: ignore[dict-item]
    assert allowed(tree) == {"value": "example"}
    schema_example({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}})
    schema_example({"$ref": "#"})
    schema_example({"allOf": [{"$ref": "#"}]})


def test_work_is_bounded_where_the_schema_is_not() -> None:
    doubling: dict[str, Any] = {f"d{n}": _pair(n + 1) for n in range(40)}
    schema_example({"$ref": "#/$defs/d0", "$defs": doubling})
    merging = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema_example({"$ref": "#/$defs/d0", "$defs": merging})
    assert len(schema_example({"type": "array", "minItems": 10**9})) < 100
    assert len(schema_example({"type": "string", "minLength": 10**9})) < 10_000
    schema_example({"type": "string", "pattern": "^(.+)+!$"})
    schema_example({"type": "string", "pattern": "(" * 500})


def _pair(n: int) -> dict[str, Any]:
    below = {"$ref": f"#/$defs/d{n}"}
    return {"type": "object", "required": ["a", "b"], "properties": {"a": below, "b": below}}


@pytest.mark.parametrize(
    "schema",
    [
        *(None, False, 5, "x", [], {"type": 5}, {"type": []}, {"enum": []}, {"enum": 5}),
        *({"properties": 5}, {"required": 5}, {"required": [5]}, {"items": 5}, {"$ref": 5}),
        *({"minimum": "x"}, {"minItems": -1, "type": "array"}, {"allOf": 5}, {"anyOf": [5]}),
        *({"multipleOf": 0}, {"multipleOf": -1}, {"minLength": 1.5, "type": "string"}),
        *({"type": "integer", "minimum": float("inf")}, {"pattern": "[", "type": "string"}),
    ],
)
def test_a_broken_schema_gives_some_value(schema: Any) -> None:
    schema_example(schema)
