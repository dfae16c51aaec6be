from typing import Any

import pytest

from edge.core.schema_survey import MAX_DEPTH, MAX_NODES, References, known_draft, survey
from edge.errors import InvalidRequest


def refusal(schema: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        survey(schema, "tools[3].function.parameters")
    return caught.value


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def doubling(links: int) -> dict[str, Any]:
    """Every definition names the one before it twice."""
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for link in range(1, links + 1):
        two = [{"$ref": f"#/$defs/d{link - 1}"}, {"$ref": f"#/$defs/d{link - 1}"}]
        definitions[f"d{link}"] = {"anyOf": two}
    return {"$defs": definitions, "$ref": f"#/$defs/d{links}"}


def test_a_plain_schema_passes_and_is_not_changed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    found = survey(schema, "p")

    assert found.schema == schema
    assert found.patterns == ()


@pytest.mark.parametrize("schema", [True, False])
def test_a_boolean_is_a_schema(schema: bool) -> None:
    assert survey(schema, "p").schema is schema


@pytest.mark.parametrize("schema", [None, [], "x", 3])
def test_anything_else_is_none(schema: object) -> None:
    assert refusal(schema).param == "tools[3].function.parameters"


def test_depth_is_bounded_without_recursion() -> None:
    survey(nested(MAX_DEPTH - 2), "p")

    assert "levels deep" in refusal(nested(100_000)).message


def test_size_is_bounded() -> None:
    assert "too large" in refusal({"enum": [0] * (MAX_NODES + 1)}).message


@pytest.mark.parametrize(
    "reference", ["http://example.com/s.json", "file:///etc/passwd", "other.json#/a", "//h/x"]
)
def test_a_reference_out_of_the_schema_is_refused_with_its_place(reference: str) -> None:
    error = refusal({"properties": {"a": {"items": {"$ref": reference}}}})

    assert error.param == "tools[3].function.parameters.properties.a.items.$ref"


def test_a_reference_to_the_schemas_own_id_is_a_local_one() -> None:
    schema = {
        "$id": "http://example.com/s",
        "$ref": "http://example.com/s#/$defs/a",
        "$defs": {"a": {"type": "string"}},
    }

    assert survey(schema, "p").schema == {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"type": "string"}},
    }


def test_properties_may_bear_the_names_of_keywords() -> None:
    schema = {
        "properties": {
            "$ref": {"type": "string"},
            "pattern": {"type": "string"},
            "id": {"type": "string"},
        }
    }

    found = survey(schema, "p")

    assert found.schema == schema
    assert found.patterns == ()


def test_data_that_looks_like_a_schema_is_left_alone() -> None:
    schema = {"enum": [{"$id": "x", "$ref": "http://a/b", "pattern": "("}]}

    assert survey(schema, "p").schema == schema


def test_recursion_through_the_value_is_fine() -> None:
    tree = {"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}}

    assert survey(tree, "p").ways < 10


def test_a_schema_that_leads_to_itself_without_a_step_is_refused() -> None:
    loop = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}

    assert "without end" in refusal(loop).message


def test_sharing_is_counted_and_doubling_is_refused() -> None:
    assert survey(doubling(5), "p").ways > 2**5
    assert "multiplies" in refusal(doubling(60)).message


def test_a_long_chain_of_references_is_refused() -> None:
    chain: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)}

    assert "too many steps" in refusal({"$defs": chain, "$ref": "#/$defs/d0"}).message


def test_patterns_are_collected_once() -> None:
    schema = {
        "properties": {"a": {"pattern": "^a"}, "b": {"pattern": "^a"}},
        "patternProperties": {"^x-": {}},
    }

    assert set(survey(schema, "p").patterns) == {"^a", "^x-"}


def test_a_pattern_of_any_length_is_refused() -> None:
    assert "pattern" in refusal({"pattern": "a" * 10_000}).message


def test_a_schema_of_no_known_draft_is_taken_as_it_is() -> None:
    assert survey({"$schema": "https://my.own/schema", "type": "string"}, "p").schema == {
        "type": "string"
    }


def test_known_drafts_are_told_by_their_address() -> None:
    assert known_draft("http://json-schema.org/draft-07/schema#") == "draft-07"
    assert known_draft("https://json-schema.org/draft/2020-12/schema") == "draft/2020-12"
    assert known_draft(None) == ""


def test_references_find_pointers_anchors_and_escaped_names() -> None:
    target = {"type": "string"}
    references = References(
        {
            "$defs": {"a/b": target, "c d": target},
            "anyOf": [{"$anchor": "here", "type": "null"}],
        }
    )

    assert references.resolve("#/$defs/a~1b") is target
    assert references.resolve("#/$defs/c%20d") is target
    assert references.resolve("#/anyOf/0") == {"$anchor": "here", "type": "null"}
    assert references.resolve("#here") == {"$anchor": "here", "type": "null"}
    assert references.resolve("#/nowhere/9") is None
