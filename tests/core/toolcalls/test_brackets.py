"""The scan for the end of a bracketed value, whatever the cuts."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.toolcalls.brackets import BracketScanner


def end_of(text: str, sizes: list[int]) -> int | None:
    """Where the scan finds the end when the text grows by these sizes, then to the whole."""
    scanner, data, held = BracketScanner(0), text.encode(), bytearray()
    for size in [*sizes, len(data)]:
        held += data[len(held) : len(held) + size]
        if scanner.advance(held):
            return scanner.at
    return scanner.at if scanner.advance(held, final=True) else None


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ('{"a": "}"} x', 10),
        (r'{"a": "\"}"}', 12),
        ("[{'a': \"it's\"}]", 15),
        ('f("""a " ) b""") x'[1:], 15),
        ('[{"a": 1}}] x', 11),
        ('{"a": [1} x', 9),
        ('{"a": "', None),
        ("[[[", None),
    ],
)
def test_brackets_in_strings_do_not_count_and_stray_ones_are_passed_over(
    text: str, end: int | None
) -> None:
    assert end_of(text, []) == end
    assert end_of(text, [1] * len(text)) == end


VALUES = st.recursive(
    st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(VALUES, max_size=3), st.lists(st.integers(1, 9), max_size=20), st.booleans())
def test_the_end_of_any_json_or_python_value_is_found(
    value: list[object], sizes: list[int], as_json: bool
) -> None:
    text = json.dumps(value, ensure_ascii=False) if as_json else repr(value)
    assert end_of(text + " tail ]}", sizes) == len(text.encode())
