import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.contract import Contract, ResponseFormat, Tool
from edge.core.schemas import CACHED_LISTS, SchemaCache, compile_contract, compile_schema
from edge.errors import InvalidRequest

PLACE = "tools[0].function.parameters"
# Nasty cases take exponential time where they are not bounded; the bound is a wide one.
SOON_S = 5.0


def refusal(schema: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        compile_schema(schema, PLACE)
    return caught.value


def fits(schema: object, value: Any, text_length: int = 100) -> bool:
    return not compile_schema(schema, PLACE).faults(value, text_length)


def contract(**schemas: dict[str, Any]) -> Contract:
    return Contract({name: Tool(name, schema) for name, schema in schemas.items()})


def test_values_are_judged() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    assert fits(schema, {"n": 20.0})
    assert fits(schema, {"n": 2**70})
    assert not fits(schema, {"n": "1"})
    assert not fits(schema, {})


def test_formats_are_not_asserted() -> None:
    assert fits({"type": "string", "format": "email"}, "nobody")
    assert fits({"$schema": "http://json-schema.org/draft-07/schema#", "format": "uri"}, "%")


def test_no_schema_allows_any_value() -> None:
    assert fits({}, {"a": [1]})


def test_recursive_references_are_followed() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}, "n": {"type": "integer"}}}

    assert fits(schema, {"child": {"child": {"n": 1}}})
    assert not fits(schema, {"child": {"child": {"n": "1"}}})


def test_old_drafts_are_understood_where_they_are_named() -> None:
    draft4 = {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 3}

    assert not fits({**draft4, "exclusiveMinimum": True}, 3)


def test_old_forms_are_understood_without_their_draft() -> None:
    assert not fits({"items": [{"type": "string"}], "additionalItems": False}, ["a", "b"])
    assert not fits({"minimum": 3, "exclusiveMinimum": True}, 3)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "wibble"}, f"{PLACE}.type"),
        ({"properties": {"a": {"minimum": "x"}}}, f"{PLACE}.properties.a.minimum"),
        ({"properties": []}, f"{PLACE}.properties"),
        ({"$ref": "#/$defs/nowhere"}, PLACE),
        ({"pattern": "("}, PLACE),
        ({"$ref": "https://example.com/s"}, f"{PLACE}.$ref"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(schema: dict[str, Any], place: str) -> None:
    assert refusal(schema).param == place


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\p{Lu}[\p{L} ]{1,80}$", "Bodø", "bodø"),
        (r"^(?!.*\.\.)[a-z.]+$", "a.b", "a..b"),
        (r"^(a+)\1$", "aaaa", "aaa"),
    ],
)
def test_patterns_are_asserted_look_around_included(pattern: str, good: str, bad: str) -> None:
    schema = {"type": "string", "pattern": pattern}

    assert fits(schema, good)
    assert not fits(schema, bad)


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", "(?=(a+)+$)b", r"(?:a|aa)+\1?(?!a)$", r"(.*a){20}(?!x)"]
)
def test_a_catastrophic_pattern_ends_soon(pattern: str) -> None:
    try:
        schema = compile_schema({"pattern": pattern}, PLACE)
    except InvalidRequest:
        return
    started = time.perf_counter()
    for text in ("a" * 4_000 + "!", "a" * 1_000_000 + "!"):
        schema.faults(text, len(text))

    assert time.perf_counter() - started < SOON_S


def test_a_text_too_long_for_its_patterns_is_judged_without_them() -> None:
    schema = {
        "patternProperties": {"^x-(?!y)": {"type": "string"}},
        "additionalProperties": False,
        "properties": {"n": {"type": "integer", "pattern": "(?!a)b"}},
    }

    assert not fits(schema, {"x-z": 1}, 100)
    assert fits(schema, {"x-z": "s" * 10_000}, 10_010)
    assert not fits(schema, {"n": "s"}, 10_000)


def tree(branches: int) -> dict[str, Any]:
    """Nested nodes, each one of several kinds that look much alike."""
    kinds = [
        {
            "type": "object",
            "properties": {"kind": {"const": kind}, "child": {"$ref": "#/$defs/node"}},
            "required": ["kind"],
        }
        for kind in range(branches)
    ]
    return {"$ref": "#/$defs/node", "$defs": {"node": {"anyOf": [*kinds, {"type": "integer"}]}}}


def nodes(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"kind": 4, "child": leaf}
    return leaf


def test_nested_alternatives_are_judged_and_explained_soon() -> None:
    schema = compile_schema(tree(branches=6), PLACE)
    started = time.perf_counter()

    assert schema.faults(nodes(60, 1), 2_000) == ()
    (fault,) = schema.faults(nodes(60, "x"), 2_000)

    assert time.perf_counter() - started < SOON_S
    assert fault.path == ("child",) * 60


def test_what_costs_too_much_is_refused_not_tried() -> None:
    schema = {"patternProperties": {f"^{n}": {"type": "string"} for n in range(2_000)}}
    value = {str(n): n for n in range(50_000)}

    (fault,) = compile_schema(schema, PLACE).faults(value, 600_000)

    assert "too large" in fault.message


def test_one_long_text_is_no_cost() -> None:
    schema = {"properties": {f"p{n}": {"type": "string"} for n in range(500)}}

    assert fits(schema, {"p1": "s" * 2_000_000}, 2_000_010)


def test_a_list_of_tools_is_compiled_once() -> None:
    cache = SchemaCache()
    first = cache.compile(contract(a={"type": "object"}))
    again = cache.compile(contract(a={"type": "object"}))
    other = cache.compile(contract(a={"type": "array"}))

    assert first.tools["a"] is again.tools["a"]
    assert first.tools["a"] is not other.tools["a"]


def test_the_cache_is_bounded_and_keeps_what_was_used_last() -> None:
    cache = SchemaCache(size=2)
    first = cache.compile(contract(a={"title": "1"})).tools["a"]
    cache.compile(contract(a={"title": "2"}))
    assert cache.compile(contract(a={"title": "1"})).tools["a"] is first

    cache.compile(contract(a={"title": "3"}))

    assert len(cache) == 2
    assert cache.compile(contract(a={"title": "1"})).tools["a"] is first
    assert CACHED_LISTS > 1


def test_a_refused_tool_is_named_by_its_place_in_the_list() -> None:
    with pytest.raises(InvalidRequest) as caught:
        compile_contract(contract(a={}, b={}, c={"type": 3}))

    assert caught.value.param == "tools[2].function.parameters.type"


def test_a_demanded_shape_is_compiled_too() -> None:
    wanted = ResponseFormat("json_schema", {"type": "integer"})
    compiled = compile_contract(Contract(response_format=wanted))

    assert compiled.response is not None
    assert compiled.response.faults("x", 3)
    with pytest.raises(InvalidRequest) as caught:
        compile_contract(Contract(response_format=ResponseFormat("json_schema", {"type": 1})))
    assert caught.value.param == "response_format.json_schema.schema.type"


def test_lists_of_any_size_are_refused_before_anything_is_compiled() -> None:
    huge = {"description": "d" * 3_000_000}

    with pytest.raises(InvalidRequest) as caught:
        compile_contract(contract(a=huge))

    assert caught.value.param == "tools"


def test_walking_is_refused_where_schema_and_value_are_both_large() -> None:
    wide = compile_schema({"properties": {f"p{n}": {} for n in range(5_000)}}, PLACE)

    assert wide.is_walkable({"p1": "s" * 1_000_000})
    assert not wide.is_walkable([0] * 10_000)


KEYWORDS = [
    *("type", "properties", "items", "prefixItems", "additionalProperties", "patternProperties"),
    *("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "required", "enum", "const"),
    *("pattern", "minimum", "$ref", "$defs", "$id", "$schema", "$anchor", "dependentSchemas"),
]
VALUES = st.sampled_from(["#", "#/$defs/a", "string", "object", "(a|b)*", "x", "a"]) | st.integers()
JSON = st.recursive(
    st.none() | st.booleans() | VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "a", "b"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_any_json_is_a_schema_that_judges_or_is_refused(schema: Any, value: Any) -> None:
    try:
        compiled = compile_schema(schema, PLACE)
    except InvalidRequest:
        return
    for fault in compiled.faults(value, 100):
        assert fault.message
