"""What providers send: chunks, errors told inside a 200, and whole completions."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import ProviderError, ProviderProtocolError, ProviderStreamError
from edge.wire.openai_chunks import (
    chunk_error,
    completion_to_chunks,
    decode_chunk,
    says_something,
)
from edge.wire.strict_json import encode
from tests.strategies import KEYS, TREES

COMPLETION: dict[str, Any] = {
    "id": "c-1",
    "object": "chat.completion",
    "created": 5,
    "model": "m",
    "system_fingerprint": "fp",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "hi",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            },
            "logprobs": {"content": []},
            "finish_reason": "tool_calls",
        }
    ],
    "usage": {"total_tokens": 3},
}


def test_a_chunk_is_the_object_in_its_event() -> None:
    assert decode_chunk(b'{"choices": []}') == {"choices": []}


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices": [',
        b"",
        b"<html>",
        b"[1]",
        b"null",
        b'"text"',
        b"\xff",
        b"[" * 600 + b"]" * 600,
    ],
)
def test_anything_else_in_an_event_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProviderProtocolError):
        decode_chunk(payload)


def test_big_integers_among_arguments_are_exact() -> None:
    number = 2**64 + 1
    assert decode_chunk(b'{"arguments": {"n": %d}}' % number) == {"arguments": {"n": number}}


@pytest.mark.parametrize(
    ("chunk", "message", "code", "param"),
    [
        (
            {"error": {"message": "full", "type": "server_error", "code": 503, "param": "x"}},
            "full",
            "503",
            "x",
        ),
        ({"error": {"message": "full", "type": "overloaded"}}, "full", "overloaded", None),
        ({"error": "model not found"}, "model not found", None, None),
        ({"error": {"metadata": {"raw": "x"}}}, '{"metadata":{"raw":"x"}}', None, None),
        ({"error": {"message": {"a": 1}}}, '{"a":1}', None, None),
        ({"error": {"message": "late"}, "choices": [{"delta": {}}]}, "late", None, None),
        ({"type": "error", "error": {"type": "full", "message": "o"}}, "o", "full", None),
        ({"object": "error", "message": "bad", "code": 400}, "bad", "400", None),
        ({"detail": "Not Found"}, "Not Found", None, None),
        ({"code": 500, "message": "boom", "type": "server_error"}, "boom", "500", None),
        ({"error parsing tool call: {": None}, "error parsing tool call: {", None, None),
    ],
)  # fmt: skip
def test_an_error_inside_a_200_is_seen(
    chunk: dict[str, Any], message: str, code: str | None, param: str | None
) -> None:
    error = chunk_error(chunk)
    assert error is not None
    assert (error.message, error.code, error.param) == (message, code, param)
    assert error.status == 502


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [{"delta": {"content": "an error"}}]},
        {"choices": [], "error": None},
        {"choices": [], "usage": {}},
        {"usage": {"total_tokens": 1}},
        {"object": "chat.completion.chunk"},
        {},
    ],
)
def test_what_is_no_error_is_none(chunk: dict[str, Any]) -> None:
    assert chunk_error(chunk) is None


def test_a_whole_completion_becomes_chunks_that_say_the_same() -> None:
    said, finish, usage = completion_to_chunks(COMPLETION)
    for chunk in (said, finish, usage):
        assert chunk["object"] == "chat.completion.chunk"
        assert (chunk["id"], chunk["created"], chunk["system_fingerprint"]) == ("c-1", 5, "fp")
    (choice,) = said["choices"]
    delta = choice["delta"]
    assert (delta["role"], delta["content"], delta["reasoning_content"]) == (
        "assistant",
        "hi",
        "hm",
    )
    assert [(call["index"], call["id"]) for call in delta["tool_calls"]] == [(0, "a"), (1, "b")]
    assert (choice["finish_reason"], choice["logprobs"]) == (None, {"content": []})
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]
    assert (usage["choices"], usage["usage"]) == ([], {"total_tokens": 3})
    assert "usage" not in said


def test_every_choice_keeps_its_index() -> None:
    choices = [{"message": {"content": "a"}}, {"index": 1, "message": {"content": "b"}}]
    chunks = completion_to_chunks({"choices": choices})
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 0, 1, 1]


def test_a_completion_that_is_an_error_raises_it() -> None:
    with pytest.raises(ProviderStreamError, match="full"):
        completion_to_chunks({"error": {"message": "full"}})


@pytest.mark.parametrize(
    "value", [{"hello": 1}, {"choices": {}}, {"choices": ["x"]}, {"choices": [{"message": "x"}]}]
)
def test_json_that_is_no_completion_is_a_protocol_error(value: dict[str, Any]) -> None:
    with pytest.raises(ProviderProtocolError):
        completion_to_chunks(value)


@given(st.binary() | TREES.map(encode))
def test_any_payload_is_a_chunk_an_error_or_refused(payload: bytes) -> None:
    try:
        chunk = decode_chunk(payload)
    except ProviderProtocolError:
        return
    assert isinstance(says_something(chunk), bool)
    told = chunk_error(chunk)
    assert told is None or isinstance(told.message, str)


@given(st.dictionaries(KEYS, TREES, max_size=5), st.lists(TREES, max_size=3))
def test_any_completion_is_chunks_that_hold_no_errors_or_is_refused(
    body: dict[str, Any], choices: list[Any]
) -> None:
    for completion in (body, {"choices": [{"message": choice} for choice in choices]}):
        with suppress(ProviderError):
            for chunk in completion_to_chunks(completion):
                assert chunk["object"] == "chat.completion.chunk"
                assert all("delta" in choice for choice in chunk["choices"])
