import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.constrain import ConstrainedReader, constrained_request, with_strict_tools
from edge.core.contract import Contract, ResponseFormat, Tool
from edge.core.schemas import compile_schema
from edge.core.stream_events import ToolCallDelta

CLOCK = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
TREE = {
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "same": {"$ref": "#/properties/root"},
        "whole": {"$ref": "#"},
    },
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}},
            "required": ["n"],
        }
    },
}
TOOLS = {
    "clock": Tool("clock", CLOCK, "Tells the time."),
    "tree": Tool("tree", TREE),
    "ping": Tool("ping", {}),
}
BODY: dict[str, Any] = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    "tools": [{"type": "function", "function": {"name": "clock"}}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "temperature": 0.1,
}


def schema_of(contract: Contract) -> dict[str, Any]:
    body, _ = constrained_request(BODY, contract)
    schema: dict[str, Any] = body["response_format"]["json_schema"]["schema"]
    return schema


def allows(contract: Contract, value: Any) -> bool:
    return not compile_schema(schema_of(contract), "p").faults(value, 100)


def test_the_tools_move_into_the_schema_and_the_system_message() -> None:
    before = copy.deepcopy(BODY)
    body, _ = constrained_request(BODY, Contract(TOOLS))

    assert before == BODY
    assert body.keys() == {"model", "messages", "temperature", "response_format"}
    assert body["messages"][0]["content"].startswith("Be brief.\n\n")
    assert "Tells the time." in body["messages"][0]["content"]
    assert body["messages"][1:] == BODY["messages"][1:]


def test_without_a_system_message_there_is_one() -> None:
    body, _ = constrained_request({"messages": [{"role": "user", "content": "x"}]}, Contract(TOOLS))

    assert [message["role"] for message in body["messages"]] == ["system", "user"]


def test_a_system_message_of_parts_gets_another_part() -> None:
    parts = [{"type": "text", "text": "Be brief."}]
    body, _ = constrained_request(
        {"messages": [{"role": "system", "content": parts}]}, Contract(TOOLS)
    )

    assert [part["type"] for part in body["messages"][0]["content"]] == ["text", "text"]


@pytest.mark.parametrize(
    ("value", "fits"),
    [
        ({"name": "clock", "arguments": {"zone": "UTC"}}, True),
        ({"name": "clock", "arguments": {}}, False),
        ({"name": "clock", "arguments": "x"}, False),
        ({"name": "ping", "arguments": {}}, True),
        ({"name": "ping", "arguments": 3}, False),
        ({"name": "nope", "arguments": {}}, False),
        ({"name": "clock"}, False),
        ({"answer": "Noon."}, True),
        ({"answer": 3}, False),
        ({"name": "tree", "arguments": {"root": {"n": 1, "next": {"n": 2}}}}, True),
        ({"name": "tree", "arguments": {"root": {"n": 1, "next": {"n": "2"}}}}, False),
        ({"name": "tree", "arguments": {"same": {"n": "x"}}}, False),
        ({"name": "tree", "arguments": {"whole": {"root": {"n": 1}}}}, True),
        ({"name": "tree", "arguments": {"whole": {"root": {}}}}, False),
    ],
)
def test_the_schema_allows_one_call_or_words_and_references_still_point_right(
    value: Any, fits: bool
) -> None:
    assert allows(Contract(TOOLS), value) is fits


@pytest.mark.parametrize("choice", ["required", "named"])
def test_where_a_call_is_demanded_words_are_not_allowed(choice: Any) -> None:
    contract = Contract(TOOLS, tool_choice=choice, allowed=frozenset({"clock"}))

    assert not allows(contract, {"answer": "Noon."})
    assert not allows(contract, {"name": "ping", "arguments": {}})
    assert allows(contract, {"name": "clock", "arguments": {"zone": "UTC"}})


def test_demanded_json_is_demanded_of_the_words() -> None:
    wanted = ResponseFormat(
        "json_schema",
        {"type": "array", "items": {"$ref": "#/$defs/i"}, "$defs": {"i": {"type": "integer"}}},
    )
    contract = Contract(TOOLS, response_format=wanted)

    assert allows(contract, {"answer": [1]})
    assert not allows(contract, {"answer": ["a"]})
    assert ConstrainedReader().read('{"answer": [1]}') == "[1]"


@pytest.mark.parametrize("contract", [Contract(), Contract(TOOLS, tool_choice="none")])
def test_without_callable_tools_the_body_stays(contract: Contract) -> None:
    body, reader = constrained_request(BODY, contract)

    assert body == BODY
    assert reader.read('{"answer": "x"}') == '{"answer": "x"}'


def test_what_engines_refuse_is_left_out_of_the_schema_but_not_of_properties() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {
            "pattern": {"type": "string", "pattern": "(?!a)b", "maxLength": 100_000},
            "format": {"type": "string", "format": "uuid"},
        },
        "patternProperties": {"^x": {}},
    }
    found = schema_of(Contract({"t": Tool("t", schema)}, tool_choice="required"))

    assert found["properties"]["arguments"] == {
        "type": "object",
        "properties": {"pattern": {"type": "string"}, "format": {"type": "string"}},
    }


def read(text: str) -> ToolCallDelta | str:
    return ConstrainedReader().read(text)


def test_a_call_is_read_back() -> None:
    assert read('{"name": "clock", "arguments": {"zone": "UTC"}}') == ToolCallDelta(
        "clock", '{"zone":"UTC"}', origin="constrained"
    )


def test_words_are_read_back() -> None:
    assert read('```json\n{"answer": "It is noon."}\n```') == "It is noon."


def test_a_server_that_ignored_the_schema_is_taken_at_its_word() -> None:
    assert read("It is noon.") == "It is noon."
    assert read('{"city": "Bodø"}') == '{"city": "Bodø"}'


def test_a_call_that_was_cut_is_a_fault() -> None:
    found = read('{"name": "clock", "arguments": {"zo')

    assert isinstance(found, ToolCallDelta)
    assert "incomplete" in found.fault


def test_every_choice_is_read_and_calls_that_are_there_stay() -> None:
    made = (ToolCallDelta("ping", "{}"),)
    output = CollectedOutput(
        (
            CollectedChoice(content='{"name": "ping", "arguments": {}}'),
            CollectedChoice(index=1, content='{"answer": "x"}'),
            CollectedChoice(index=2, content="beside", calls=made),
        )
    )
    first, second, third = ConstrainedReader()(output).choices

    assert ([call.name for call in first.calls], first.content) == (["ping"], "")
    assert (second.calls, second.content) == ((), "x")
    assert third == output.choices[2]


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
    )
)
def test_any_arguments_come_back_as_they_were(arguments: dict[str, Any]) -> None:
    found = read(json.dumps({"name": "t", "arguments": arguments}))

    assert isinstance(found, ToolCallDelta)
    assert json.loads(found.arguments) == arguments


def function(parameters: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "t", "parameters": parameters, **more}}


@pytest.mark.parametrize("parameters", [CLOCK, TREE, {}, None])
def test_plain_functions_are_made_strict(parameters: Any) -> None:
    (made,) = with_strict_tools([function(parameters)])

    assert made["function"]["strict"] is True


@pytest.mark.parametrize(
    "parameters",
    [
        {"patternProperties": {"^x": {}}},
        {"properties": {"a": {"not": {"type": "null"}}}},
        {"properties": {"a": {"uniqueItems": True}}},
    ],
)
def test_functions_that_engines_refuse_stay_as_they_are(parameters: Any) -> None:
    assert with_strict_tools([function(parameters)]) == [function(parameters)]


def test_the_clients_own_word_stays_and_its_list_is_not_changed() -> None:
    tools = [function(CLOCK, strict=False), function(CLOCK)]
    before = copy.deepcopy(tools)

    assert with_strict_tools(tools)[0]["function"]["strict"] is False
    assert tools == before


def test_a_property_may_bear_the_name_of_a_refused_keyword() -> None:
    (made,) = with_strict_tools([function({"properties": {"not": {"type": "string"}}})])

    assert made["function"]["strict"] is True
