"""Patterns that know whether more text could complete them."""

import pytest

from edge.core.toolcalls.shapes import NAME, SPACE, Shape, either, group, maybe

HEAD = Shape(SPACE, "<call ", group("name", NAME), maybe("=", either("a", "bc")), "▁>")


@pytest.mark.parametrize("text", ["<call f▁>", " \n<call f=a▁>", "<call f=bc▁>"])
def test_every_beginning_of_a_whole_is_open_and_the_whole_matches(text: str) -> None:
    data = text.encode()
    for end in range(len(data)):
        assert HEAD.is_open(data[:end], 0)
        assert HEAD.match(data[:end], 0) is None
    match = HEAD.match(data, 0)
    assert match is not None
    assert match.group("name") == b"f"


@pytest.mark.parametrize("text", ["<cell", "<call f=x", "<call <", "<call f=b▁", "x"])
def test_what_nothing_can_complete_is_neither(text: str) -> None:
    assert not HEAD.is_open(text.encode(), 0)
    assert HEAD.match(text.encode(), 0) is None


def test_white_space_is_bounded_so_that_a_test_costs_a_bounded_time() -> None:
    assert not HEAD.is_open(b" " * 100_000, 0)


def test_a_name_that_is_too_long_is_not_cut_inside_a_character() -> None:
    match = Shape("<", group("name", NAME)).match(b"<" + "é".encode() * 127 + "é😀".encode(), 0)

    assert match is not None
    assert match.group("name").decode() == "é" * 128
    match = Shape("<", group("name", NAME)).match(b"<a" + "é".encode() * 200, 0)
    assert match is not None
    assert match.group("name").decode() == "a" + "é" * 127
