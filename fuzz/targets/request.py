"""A client's request: any body is read, or refused as the client's fault with its place.

What was read can be healed, held to a contract and written for a provider, and then reads as the
same request again. JSON itself is held against the standard library's reader.
"""

import json
import math
from collections.abc import Iterable
from typing import Any

from edge.core.history import heal
from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.core.request_contract import contract_of
from edge.core.schemas import compile_contract
from edge.errors import ClientError, InvalidRequest
from edge.wire import strict_json
from edge.wire.openai_chat import ChatRequest, chat_request, decode_chat_request, provider_body
from fuzz.draw import KEYS, Draw, edited
from tests.conformance.cases import CASES, request_of

MAX_BYTES = 4096
WORDS = (
    *(f'"{key}":'.encode() for key in KEYS if key.isprintable()), b"1e400", b"\\ud800", b"null",
    b'{"', b"[[", b"}]", b"18446744073709551616", b"-9223372036854775809",
)  # fmt: skip

BASES: tuple[dict[str, Any], ...] = (
    *(request_of(case) for case in CASES[::6]),
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": "go", "name": "ann"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": "it",}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "seen"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "strict": True,
                    "parameters": {
                        "type": "object",
                        "properties": {"at": {"type": "string", "pattern": "^[a-z]+$"}},
                        "required": ["at"],
                        "additionalProperties": False,
                    },
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "parallel_tool_calls": False,
        "metadata": {"edge.buffer": "full", "edge.max_attempts": "1", "own": "x"},
        "user": "ann",
    },
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": "",
                "function_call": {"name": "look", "arguments": "{}"},
            },
            {"role": "function", "name": "look", "content": "seen"},
        ],
        "functions": [{"name": "look", "parameters": {"type": "object"}}],
        "function_call": {"name": "look"},
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}},
        },
    },
    {
        "model": "m",
        "messages": [{"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "required",
                "tools": [{"type": "function", "function": {"name": "look"}}],
            },
        },
    },
)


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    if draw.flag():
        body = draw.rest()
        check_json(body)
    else:
        body = strict_json.encode(edited(draw.pick(BASES), draw))
    try:
        request = decode_chat_request(body)
    except InvalidRequest as refused:
        assert refused.message
        assert strict_json.parse(strict_json.encode(refused.body()))
        return
    carry(request)


def carry(request: ChatRequest) -> None:
    """What becomes of a request before a provider sees it."""
    before = strict_json.encode(request.raw)
    try:
        apply_overrides(OutputPolicy(), header=None, metadata=request.metadata)
        messages, healed = heal(request.messages)
        compile_contract(contract_of(request, xml_completion_tool="attempt_completion"))
    except ClientError as refused:
        assert refused.message
        return
    assert heal(messages) == (messages, ()), f"healed again, after {healed}"
    body = provider_body(request, model="theirs", messages=messages)
    again = chat_request(strict_json.parse(strict_json.encode(body)))
    assert (again.model, again.stream, again.include_usage) == ("theirs", True, True)
    assert again.messages == messages
    assert strict_json.encode(request.raw) == before, "the client's own tree was changed"


def check_json(text: bytes) -> None:
    """What is read is what the standard library reads, and can be written and read again."""
    try:
        value = strict_json.parse(text)
    except strict_json.MalformedJson as refused:
        assert str(refused)
        return
    assert same(value, json.loads(text))
    assert same(strict_json.parse(strict_json.encode(value)), value)


def same(one: Any, other: Any) -> bool:
    """Equal, also in the kind of each number."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-15)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def seeds() -> Iterable[bytes]:
    """Each base as it is, and as text."""
    for number, base in enumerate(BASES):
        yield bytes((0, number))
        yield b"\x01" + strict_json.encode(base)
    yield b'\x01{"a": [1, -0.0, 1e5, "\\u00e9\\ud83d\\ude00", null, true]}'
