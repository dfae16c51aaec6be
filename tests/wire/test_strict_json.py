"""JSON by the standard: exact, bounded, and every complaint with its place."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidRequest
from edge.wire.strict_json import MAX_DEPTH, MAX_VALUES, MalformedJson, decode, encode, parse

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(trees.filter(lambda tree: "Infinity" not in json.dumps(tree)))
def test_what_is_written_reads_back_as_it_was(tree: Any) -> None:
    assert parse(encode(tree)) == tree


@given(st.integers())
def test_integers_of_any_size_are_exact(number: int) -> None:
    read = parse(b'{"n": %d}' % number)["n"]
    assert read == number
    assert type(read) is int


@pytest.mark.parametrize(
    "number", [2**63 - 1, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, -(10**19) + 1, 10**40]
)
def test_integers_around_64_bits_are_exact_both_ways(number: int) -> None:
    assert parse(str(number).encode()) == number
    assert encode([number]) == f"[{number}]".encode()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "empty"),
        (b'{"a": 1,}', "line 1, column 8"),
        (b'{"a":\n  nope}', "line 2, column 3"),
        (b"[1] x", "line 1, column 5"),
        (b"[NaN]", "line 1, column 2"),
        (b"[Infinity]", "line 1, column 2"),
        (b'["\\ud800"]', "surrogate"),
        (b'["\xff"]', "byte 2 is not UTF-8"),
        (b'["\xed\xa0\x80"]', "byte 2 is not UTF-8"),
        (b'["\x01"]', "line 1"),
        (b"{'a': 1}", "line 1, column 2"),
        (b"[1" + b"0" * 5000 + b"]", "line 1"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(data: bytes, complaint: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(data, what="The body")
    assert refused.value.message.startswith("The body is not valid JSON: ")
    assert complaint in refused.value.message
    assert refused.value.code == "invalid_json"


def nested(levels: int) -> bytes:
    return (
        b'{"a":[' * (levels // 2)
        + b"[" * (levels % 2)
        + b"]" * (levels % 2)
        + (b"]}" * (levels // 2))
    )


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH])
def test_what_is_deep_but_within_the_bound_reads_and_writes(levels: int) -> None:
    assert encode(parse(nested(levels))) == nested(levels)


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 1000, 100_000])
def test_what_is_too_deep_is_refused(levels: int) -> None:
    with pytest.raises(MalformedJson, match=r"deep|depth"):
        parse(nested(levels))


def test_the_bound_holds_for_the_shortest_text_that_can_break_it() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    with pytest.raises(MalformedJson, match="deep"):
        parse(b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1))


def test_brackets_in_strings_are_no_depth() -> None:
    text = "[" * 5000 + '\\"{'
    assert parse(json.dumps([text]).encode()) == [text]


def test_a_lone_surrogate_is_written_as_the_replacement_character() -> None:
    assert encode({"a\ud800": ["x\udfffy"]}) == '{"a\ufffd":["x\ufffdy"]}'.encode()


def test_two_halves_of_a_pair_are_written_as_their_character() -> None:
    assert encode("\ud83d\ude00\ud800") == '"\U0001f600\ufffd"'.encode()


def test_numbers_json_does_not_know_are_written_as_null() -> None:
    assert encode([math.nan, math.inf]) == b"[null,null]"
    assert encode([math.nan, 2**70, (-math.inf,)]) == f"[null,{2**70},[null]]".encode()


def test_a_written_text_has_no_line_end() -> None:
    assert b"\n" not in encode({"a": "x\ny\r\u2028", "b": 2**70, "c": "\ud800\n"})


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"1," * (MAX_VALUES + 1) + b"1]",
        b"[" + b"{}," * (MAX_VALUES // 2 + 1) + b"{}]",
        b'["' + b"," * MAX_VALUES + b'"' + b',"a,"' * MAX_VALUES + b",1]",
    ],
    ids=["numbers", "objects", "behind text"],
)
def test_a_client_sends_no_more_than_a_million_values(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="more than 1000000 values"):
        decode(text, what="The body")


@pytest.mark.parametrize("quote", [b'"', rb'"\"', rb'"\\'])
def test_commas_of_a_text_are_no_values(quote: bytes) -> None:
    text = quote + b"{,[" * MAX_VALUES + b'"'

    assert len(decode(text, what="The body")) >= 3 * MAX_VALUES
