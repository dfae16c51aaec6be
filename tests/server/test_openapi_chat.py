"""The described chat requests are those that are taken, and the described answers those given."""

from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.emit import completion_body
from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.core.stream_events import StreamEvent
from edge.errors import InvalidRequest
from edge.server.openapi_chat import CHAT_EXAMPLES
from edge.server.openapi_operations import shapes
from edge.wire.openai_chat import chat_request
from tests.core.test_emit import IDENTITY, answers, chunks, collected, stream

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RICH: dict[str, Any] = {
    "model": "coder",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "go"}, {"type": "image_url"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL, {"type": "custom"}]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "assistant", "function_call": {"name": "f"}},
        {"role": "function", "name": "f", "content": "done"},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "tools": [
        {"type": "function", "function": {"name": "f", "parameters": {}, "strict": True}},
        {"type": "function", "function": {"name": "g", "description": "what it does"}},
    ],
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"tools": [{"function": {"name": "f"}}]},
    },
    "parallel_tool_calls": False,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "metadata": {"edge.buffer": "full", "mine": 1},
    "user": "u",
}
LEGACY: dict[str, Any] = {
    "model": "coder",
    "messages": [{"role": "user", "content": "go"}],
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_object", "schema": {}},
}
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, 129, 1.5, "", "auto", "none", "required", "function", "custom", "assistant",
    "tool", "developer", "clerk", "allowed_tools", "json_object", "text", "full", "true", [], {},
    [{}], [None], {"name": "f"}, {"type": "text"}, {"edge.buffer": 1}, {"edge.strict": "true"},
)  # fmt: skip
KEYS = ("type", "name", "function", "schema", "content", "id", "mode", "edge.buffer", "edge.trace")
NOT_IN_A_SCHEMA = ("is offered twice", "is not among the tools", "needs tools", "beside tools")


@cache
def described(name: str) -> jsonschema_rs.Validator:
    reference = {"$ref": f"#/components/schemas/{name}"}
    return jsonschema_rs.Draft202012Validator(
        {**reference, "components": {"schemas": shapes.named}}
    )


def complaint(tree: Any) -> InvalidRequest | None:
    """What the gateway has against a body."""
    try:
        request = chat_request(tree)
        apply_overrides(OutputPolicy(), metadata=request.metadata)
    except InvalidRequest as error:
        return error
    return None


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a tree with each of its keys or indices."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in list(items):
        yield tree, key
        if isinstance(value, dict | list):
            yield from places(value)


@st.composite
def nearly_right(draw: st.DrawFn) -> dict[str, Any]:
    """A good body with a few of its values changed, taken out or added to."""
    tree: dict[str, Any] = deepcopy(draw(st.sampled_from([RICH, LEGACY])))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(tree)))) if tree else (tree, "model")
        if draw(st.booleans()):
            holder[key] = deepcopy(draw(st.sampled_from(VALUES)))
        elif isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(st.sampled_from(KEYS))] = deepcopy(draw(st.sampled_from(VALUES)))
        else:
            del holder[key]
    return tree


@pytest.mark.parametrize("tree", [RICH, LEGACY, *CHAT_EXAMPLES.values()])
def test_a_good_request_is_as_described(tree: dict[str, Any]) -> None:
    assert complaint(tree) is None
    assert described("ChatBody").is_valid(tree)


def one_fault() -> Iterator[dict[str, Any]]:
    """Good bodies with one of their values changed to each of ``VALUES``, or taken out."""
    for good in (RICH, LEGACY):
        for number, _ in enumerate(places(good)):
            for value in (*VALUES, ...):
                tree = deepcopy(good)
                holder, key = list(places(tree))[number]
                if value is ...:
                    del holder[key]
                else:
                    holder[key] = deepcopy(value)
                yield tree


def check_agreement(tree: dict[str, Any]) -> None:
    """A body that is taken is described, and one that is described is taken.

    But for what no schema says: what holds between tools and choices, and bounds of overrides.
    """
    found = complaint(tree)
    if found is None:
        assert described("ChatBody").is_valid(tree), tree
    elif not any(words in found.message for words in NOT_IN_A_SCHEMA) and not (
        found.param or ""
    ).startswith("metadata.edge."):
        assert not described("ChatBody").is_valid(tree), tree


def test_a_request_with_one_fault_is_judged_as_described() -> None:
    trees = list(one_fault())

    assert len(trees) > 1000
    for tree in trees:
        check_agreement(tree)


@given(nearly_right())
def test_a_request_with_some_faults_is_judged_as_described(tree: dict[str, Any]) -> None:
    check_agreement(tree)


@given(answers(), st.booleans())
def test_every_answer_is_as_described(events: list[StreamEvent], include_usage: bool) -> None:
    described("ChatCompletion").validate(completion_body(collected(events), IDENTITY))
    for chunk in chunks(stream(events, include_usage=include_usage)):
        described("ChatCompletionChunk").validate(chunk)
