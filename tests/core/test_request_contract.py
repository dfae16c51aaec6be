"""What a request obliges its answer to be."""

from typing import Any

from edge.core.contract import Contract, Tool
from edge.core.request_contract import contract_of
from edge.wire.openai_chat import chat_request


def contract(**keys: Any) -> Contract:
    return contract_of(
        chat_request({"model": "m", "messages": [{"role": "user", "content": "x"}], **keys})
    )


def test_a_plain_request_demands_nothing() -> None:
    assert contract().demands_nothing


def test_offered_tools_are_there_by_name_in_order() -> None:
    functions: list[dict[str, Any]] = [
        {"name": "b", "description": "B", "parameters": {"type": "object"}, "strict": True},
        {"name": "a"},
    ]
    got = contract(tools=[{"type": "function", "function": f} for f in functions])
    assert list(got.tools.values()) == [Tool("b", {"type": "object"}, "B", True), Tool("a", {})]
    assert list(got.tools) == ["b", "a"]
    assert contract(functions=functions).tools == got.tools


def test_the_choice_among_tools_is_kept() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in "ab"]
    named = contract(tools=tools, tool_choice=tools[1], parallel_tool_calls=False)
    assert (named.tool_choice, named.allowed, named.parallel) == ("named", frozenset("b"), False)
    free = contract(tools=tools)
    assert (free.tool_choice, free.allowed, free.parallel) == ("auto", frozenset(), True)


def test_the_shape_of_the_text_is_kept() -> None:
    schema = {"type": "object"}
    sent = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    got = contract(response_format=sent).response_format
    assert got is not None
    assert (got.kind, got.schema, got.name) == ("json_schema", schema, "x")


def test_the_runs_policy_is_part_of_the_contract() -> None:
    request = chat_request({"model": "m", "messages": [{"role": "user"}]})
    got = contract_of(request, xml_completion_tool="attempt_completion", strict=True)
    assert (got.xml_completion_tool, got.strict) == ("attempt_completion", True)
