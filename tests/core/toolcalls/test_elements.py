"""Values written as nested elements."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.toolcalls.elements import NotElements, nested, read_elements

PREFIX = "]<]minimax[>["
SCHEMA: dict[str, Any] = {"type": "object"}
TREES = st.dictionaries(
    st.sampled_from("abc"),
    st.recursive(
        st.sampled_from(["x", "two words", "é", "<b>", "a < b"]),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)
MARKS = st.lists(
    st.sampled_from(["<a>", "</a>", "<item>", "</item>", PREFIX, "<", ">", "x", " ", "1"]),
    max_size=14,
).map("".join)


def written(value: Any, prefix: str) -> str:
    if isinstance(value, str):
        return value
    return "".join(
        f"{prefix}<{key}>{written(item, prefix)}{prefix}</{key}>" for key, item in value.items()
    )


@given(TREES)
def test_what_is_written_as_elements_reads_back(tree: dict[str, Any]) -> None:
    assert read_elements(written(tree, PREFIX), SCHEMA, {}, PREFIX) == tree


@given(MARKS | st.text(), st.sampled_from(["", PREFIX]))
def test_any_text_is_elements_or_none(text: str, prefix: str) -> None:
    try:
        assert isinstance(read_elements(text, SCHEMA, {}, prefix), dict | list)
    except NotElements:
        assert prefix or nested(text, SCHEMA, {}) == text


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_elements_that_are_nested_without_end_are_none_and_cost_little(names: str) -> None:
    count = 60_000 // len(names)  # two hundred looks through all of it would take minutes
    text = "".join(f"<{name}>" for name in names) * count
    text += "".join(f"</{name}>" for name in reversed(names)) * count

    with pytest.raises(NotElements):
        read_elements(text, SCHEMA, {}, "")
