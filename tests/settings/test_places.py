"""Complaints point at the line that has to be changed."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.settings.places import line_of, lines_of_places

TEXT = '''\
# comment with [brackets] and key = value
[server]   # a comment
bind = [
  "127.0.0.1:80",  # [[not.a.header]]
  "[::1]:80",
]
drain_s = 3

[[providers]]
name = "one"
note = """
[limits]
max_runs = 1
"""
"quoted" = 1
[[providers]]
name = 'two'

[[routes]]
model = "a"
targets = [
  { provider = "one", weight = 2 },
]
[routes.output]
buffer = "full"
[[routes]]
model = "b # no comment [["
output.strict = true
[limits]
max_runs = 5
'''
LINES = lines_of_places(TEXT)


def number_of(fragment: str, nth: int = 0) -> int:
    """The line that holds a fragment, counted by an independent way."""
    return [i for i, line in enumerate(TEXT.splitlines(), 1) if fragment in line][nth]


@pytest.mark.parametrize(
    ("place", "fragment", "nth"),
    [
        ("server", "[server]", 0),
        ("server.bind", "bind =", 0),
        ("server.drain_s", "drain_s", 0),
        ("providers[0].name", '"one"', 0),
        ("providers[0].quoted", "quoted", 0),
        ("providers[1]", "[[providers]]", 1),
        ("providers[1].name", "'two'", 0),
        ("routes[0].targets", "targets", 0),
        ("routes[0].output", "[routes.output]", 0),
        ("routes[0].output.buffer", "buffer", 0),
        ("routes[1].model", "no comment", 0),
        ("routes[1].output.strict", "output.strict", 0),
        ("limits.max_runs", "max_runs = 5", 0),
    ],
)
def test_a_key_is_found_on_its_line(place: str, fragment: str, nth: int) -> None:
    assert line_of(place, LINES) == number_of(fragment, nth)


@pytest.mark.parametrize(
    ("place", "around"),
    [
        ("server.bind[1]", "server.bind"),
        ("routes[0].targets[0].weight", "routes[0].targets"),
        ("server.missing", "server"),
        ("providers[1].base_url", "providers[1]"),
    ],
)
def test_what_has_no_line_takes_that_of_the_nearest_thing_around_it(
    place: str, around: str
) -> None:
    assert line_of(place, LINES) == LINES[around]


def test_what_is_nowhere_in_the_file_has_no_line() -> None:
    assert line_of("telemetry.log", LINES) is None
    assert line_of("", LINES) is None


def keys_of(tree: dict[str, Any], place: str = "") -> set[str]:
    """Every place of a tree that is written as a key of its own."""
    found = set()
    for name, value in tree.items():
        here = f"{place}.{name}" if place else name
        found |= {here} if here != "routes[1].output" else set()
        if isinstance(value, dict):
            found |= keys_of(value, here)
        elif isinstance(value, list) and name != "targets":
            tables = [(f"{here}[{i}]", each) for i, each in enumerate(value)]
            for index, each in tables:
                found |= ({index} | keys_of(each, index)) if isinstance(each, dict) else set()
    return found - {"providers", "routes"}


def test_every_key_of_the_text_is_found_and_nothing_else() -> None:
    assert set(LINES) == keys_of(tomllib.loads(TEXT))


@given(st.text(max_size=200))
def test_no_text_at_all_makes_it_fail(text: str) -> None:
    lines = lines_of_places(text)

    assert all(1 <= number <= len(text.splitlines()) for number in lines.values())
