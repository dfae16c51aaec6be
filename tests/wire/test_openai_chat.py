"""A client's chat request: what is read of it, what is refused, what a provider is sent."""

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidRequest
from edge.wire.openai_chat import (
    ABSENT,
    ChatRequest,
    chat_request,
    decode_chat_request,
    provider_body,
)

USER = {"role": "user", "content": "hi"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Look it up.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def request(**keys: Any) -> ChatRequest:
    return decode_chat_request(orjson.dumps({"model": "m", "messages": [USER], **keys}))


def refused(**keys: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        request(**keys)
    return caught.value


def choose(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_a_minimal_request_has_the_defaults_of_the_api() -> None:
    got = request()
    assert (got.model, got.messages, got.stream, got.include_usage, got.n) == (
        "m",
        [USER],
        False,
        False,
        1,
    )
    assert (got.tools, got.tool_choice.mode, got.parallel_tool_calls) == ((), "auto", True)
    assert (got.response_format, got.user, dict(got.metadata)) == (None, None, {})


def test_null_stands_for_absent() -> None:
    optional = [
        *("stream", "stream_options", "n", "tools", "functions", "tool_choice", "function_call"),
        *("parallel_tool_calls", "response_format", "metadata", "user"),
    ]
    got = request(**dict.fromkeys(optional))
    assert (got.stream, got.n, got.tools, got.parallel_tool_calls) == (False, 1, (), True)
    options = request(stream_options={"include_usage": None})
    assert not options.include_usage


def test_what_is_asked_for_is_read() -> None:
    got = request(
        stream=True,
        stream_options={"include_usage": True},
        n=3,
        parallel_tool_calls=False,
        user="u",
        metadata={"edge.strict": "true", "mine": "x", "count": 3},
        tools=[WEATHER, CLOCK],
        tool_choice="required",
    )
    assert (got.stream, got.include_usage, got.n, got.user) == (True, True, 3, "u")
    assert not got.parallel_tool_calls
    assert [tool.name for tool in got.tools] == ["weather", "clock"]
    assert got.tools[0].parameters == WEATHER["function"]["parameters"]  # type: ignore[index]
    assert got.tool_choice.mode == "required"
    assert got.metadata == {"edge.strict": "true", "mine": "x"}


def test_unknown_keys_travel() -> None:
    got = request(temperature=0.5, chat_template_kwargs={"enable_thinking": False})
    body = provider_body(got, model="m")
    assert body["temperature"] == 0.5
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("keys", "param"),
    [
        ({"model": None}, "model"),
        ({"model": ""}, "model"),
        ({"model": 7}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {"role": "user"}}, "messages"),
        ({"stream": "true"}, "stream"),
        ({"stream": 1}, "stream"),
        ({"stream_options": True}, "stream_options"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": True}, "n"),
        ({"n": 1.0}, "n"),
        ({"user": 5}, "user"),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"edge.buffer": True}}, "metadata.edge.buffer"),
        ({"tools": {}}, "tools"),
        ({"tools": ["weather"]}, "tools[0]"),
        ({"tools": [{"function": {"name": "a"}}]}, "tools[0].type"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [CLOCK, {"type": "function"}]}, "tools[1].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [choose("")]}, "tools[0].function.name"),
        ({"tools": [CLOCK, WEATHER, CLOCK]}, "tools[2].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "a", "parameters": "{}"}}]},
            "tools[0].function.parameters",
        ),
        ({"tools": [CLOCK], "tool_choice": "always"}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": 1}, "tool_choice"),
        ({"tools": [CLOCK], "tool_choice": {"type": "clock"}}, "tool_choice.type"),
        ({"tools": [CLOCK], "tool_choice": {"type": "function"}}, "tool_choice.function"),
        ({"tools": [CLOCK], "tool_choice": choose("")}, "tool_choice.function.name"),
        ({"tools": [CLOCK], "tool_choice": choose("weather")}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": [CLOCK], "tool_choice": {"type": "allowed_tools", "allowed_tools": {}}},
            "tool_choice.allowed_tools.tools",
        ),
        ({"functions": [CLOCK["function"]], "tools": [CLOCK]}, "functions"),
        ({"functions": [{"name": 1}]}, "functions[0].name"),
        ({"functions": [{"name": "a"}, {"name": "a"}]}, "functions[1].name"),
        ({"functions": [{"name": "a"}], "function_call": {"name": "b"}}, "function_call"),
        ({"functions": [{"name": "a"}], "function_call": {}}, "function_call.name"),
        ({"functions": [{"name": "a"}], "function_call": "required"}, "function_call"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": "{}"}}},
            "response_format.json_schema.schema",
        ),
    ],
)
def test_what_clients_get_wrong_is_a_400_that_names_the_place(
    keys: dict[str, Any], param: str
) -> None:
    error = refused(**keys)
    assert (error.status, error.type, error.param) == (400, "invalid_request_error", param)
    assert error.message.startswith(f"{param}: ")


def test_every_complaint_is_told_at_once() -> None:
    error = refused(model=None, stream="yes", tools=[{"type": "x", "function": {"name": 1}}])
    assert error.param == "model"
    for place in ("model: ", "stream: ", "tools[0].type: ", "tools[0].function.name: "):
        assert place in error.message


def test_hundreds_of_complaints_are_told_in_part() -> None:
    error = refused(messages=[{"role": "nobody"}] * 500)
    assert error.param == "messages[0].role"
    assert error.message.count("is no role") == 20
    assert error.message.endswith("; and more")


def test_a_list_of_tools_has_a_bound() -> None:
    error = refused(tools=[{}] * 5000)
    assert error.param == "tools"
    assert "at most 4096 items" in error.message


@pytest.mark.parametrize(("body", "param"), [(b"[]", None), (b"null", None), (b"{}", "model")])
def test_a_body_that_is_no_request_is_refused(body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_chat_request(body)
    assert caught.value.param == param


def test_a_named_choice_demands_its_tool() -> None:
    got = request(tools=[WEATHER, CLOCK], tool_choice=choose("clock"))
    assert (got.tool_choice.mode, got.tool_choice.names) == ("named", ("clock",))
    assert provider_body(got, model="m")["tool_choice"] == choose("clock")


def test_allowed_tools_go_up_as_the_tools_that_are_allowed() -> None:
    allowed = {"mode": "required", "tools": [choose("clock")]}
    got = request(
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
    )
    assert (got.tool_choice.mode, got.tool_choice.names) == ("required", ("clock",))
    body = provider_body(got, model="m")
    assert (body["tools"], body["tool_choice"]) == ([CLOCK], "required")


def test_legacy_functions_go_up_as_tools_and_are_noted() -> None:
    got = request(functions=[WEATHER["function"]], function_call={"name": "weather"})
    assert got.legacy_functions
    assert got.tool_choice.mode == "named"
    body = provider_body(got, model="m")
    assert body["tools"] == [WEATHER]
    assert body["tool_choice"] == choose("weather")
    assert not {"functions", "function_call"} & body.keys()


@pytest.mark.parametrize(
    ("sent", "kind", "schema"),
    [
        ({"type": "json_object"}, "json_object", None),
        ({"type": "json_object", "schema": {"type": "object"}}, "json_schema", {"type": "object"}),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
            "json_schema",
            {"type": "array"},
        ),
        ({"type": "json_schema", "json_schema": {"name": "x"}}, "json_schema", None),
    ],
)
def test_response_formats_are_read(sent: Any, kind: str, schema: Any) -> None:
    got = request(response_format=sent).response_format
    assert got is not None
    assert (got.kind, got.schema) == (kind, schema)


@pytest.mark.parametrize("kind", ["text", "structural_tag", "grammar"])
def test_text_and_formats_of_one_server_demand_nothing_and_travel(kind: str) -> None:
    got = request(response_format={"type": kind})
    assert got.response_format is None
    assert provider_body(got, model="m")["response_format"] == {"type": kind}


def test_the_providers_body_is_streamed_with_usage_and_renamed() -> None:
    got = request(stream=False, stream_options={"include_usage": False, "other": 1})
    body = provider_body(got, model="theirs")
    assert (body["model"], body["stream"]) == ("theirs", True)
    assert body["stream_options"] == {"include_usage": True, "other": 1}


def test_the_gateways_own_metadata_stays_here() -> None:
    got = request(metadata={"edge.strict": "true", "mine": "x"})
    assert provider_body(got, model="m")["metadata"] == {"mine": "x"}
    assert "metadata" not in provider_body(request(metadata={"edge.strict": "1"}), model="m")
    more = provider_body(got, model="m", metadata={"attempt": "2"})
    assert more["metadata"] == {"mine": "x", "attempt": "2"}


def test_without_tools_their_options_stay_here_too() -> None:
    got = request(tools=[], tool_choice="auto", parallel_tool_calls=True)
    body = provider_body(got, model="m")
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & body.keys()


def test_messages_and_keys_can_be_replaced_for_one_attempt() -> None:
    got = request(tools=[CLOCK], tool_choice="auto")
    changes = {"tools": ABSENT, "tool_choice": ABSENT, "response_format": {"type": "json_object"}}
    body = provider_body(got, model="m", messages=[USER, USER], changes=changes)
    assert body["messages"] == [USER, USER]
    assert body["response_format"] == {"type": "json_object"}
    assert not {"tools", "tool_choice"} & body.keys()


def test_making_a_providers_body_changes_nothing_of_the_request() -> None:
    got = request(
        tools=[WEATHER, CLOCK],
        tool_choice={"type": "allowed_tools", "allowed_tools": {"tools": [choose("clock")]}},
        metadata={"edge.strict": "1"},
        stream_options={},
    )
    before = copy.deepcopy(got.raw)
    provider_body(got, model="x", changes={"tools": ABSENT, "n": 2})
    assert got.raw == before


RICH: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **choose("weather")}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "tools": [WEATHER, CLOCK],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "auto", "tools": [choose("clock")]},
    },
    "functions": None,
    "function_call": None,
    "parallel_tool_calls": True,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "metadata": {"edge.strict": "1", "mine": "x"},
    "user": "u",
}
LEGACY = {**RICH, "tools": None, "tool_choice": None, "functions": [{"name": "f"}]}
LEGACY["function_call"] = {"name": "f"}
junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 200),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x", "none", "auto", "function", "tool", "assistant", "weather", "f"]),
    st.lists(st.none() | st.just({}), max_size=2),
    st.dictionaries(st.sampled_from(["type", "name", "role", "function"]), st.just("f")),
)


def spots(tree: Any) -> list[tuple[Any, Any]]:
    """Every container in a tree with each of its keys."""
    keys = tree.keys() if isinstance(tree, dict) else range(len(tree))
    found = [(tree, key) for key in keys]
    for _, key in list(found):
        if isinstance(tree[key], dict | list):
            found += spots(tree[key])
    return found


@given(st.data(), st.sampled_from([RICH, LEGACY]))
def test_a_request_is_read_or_refused_whatever_is_in_it(data: st.DataObject, rich: Any) -> None:
    raw = copy.deepcopy(rich)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(spots(raw)))
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(junk)
        if not spots(raw):
            break
    try:
        got = chat_request(raw)
    except InvalidRequest:
        return
    body = provider_body(got, model="m")
    assert not {"functions", "function_call"} & body.keys()
    assert len(body["messages"]) == len(raw["messages"])
    assert "function" not in {message["role"] for message in body["messages"]}
