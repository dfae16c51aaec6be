"""A vendor's marker goes off the end of native values, and only off their end."""

import json
from typing import Any

import pytest

from edge.core.leaked_markers import without_leaked_markers

MARKER = "]<]minimax[>["


def freed(value: Any) -> Any:
    return without_leaked_markers(value, json.dumps(value))


def test_the_marker_is_taken_off_the_end_of_strings_at_any_depth() -> None:
    value = {"command": f"date{MARKER}", "more": [{"x": f"y{MARKER}"}, 1, None]}

    assert freed(value) == {"command": "date", "more": [{"x": "y"}, 1, None]}


@pytest.mark.parametrize("text", [f"about {MARKER} here", f"{MARKER}a", "plain", ""])
def test_what_a_value_says_about_the_marker_stays(text: str) -> None:
    value = {"body": text}

    assert freed(value) is value or freed(value) == value
    assert freed(value)["body"] == text
