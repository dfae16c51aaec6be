"""Hints for misspelt words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.near_match import did_you_mean, shown


@pytest.mark.parametrize("word", ["bufer", "buffers", "bufffer"])
def test_a_near_word_is_offered(word: str) -> None:
    assert did_you_mean(word, ["validate", "buffer"]) == '; did you mean "buffer"?'


@pytest.mark.parametrize("word", ["", "zzz", "x" * 10_000])
def test_nothing_is_offered_where_nothing_is_near(word: str) -> None:
    assert did_you_mean(word, ["validate", "buffer"]) == ""


@given(st.text() | st.lists(st.text()) | st.booleans() | st.floats())
def test_a_value_is_shown_short_and_on_one_line(value: object) -> None:
    text = shown(value)

    assert len(text) <= 60
    assert "\n" not in text


def test_texts_and_booleans_are_shown_as_toml_and_json_write_them() -> None:
    assert [shown("é"), shown(True), shown(1.5)] == ['"é"', "true", "1.5"]
