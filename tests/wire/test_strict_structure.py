"""Strict structuring: each JSON type is taken for what it is, and every complaint has its path."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest

from edge.errors import InvalidRequest
from edge.wire.strict_structure import Complaint, strict_converter, structure


@dataclass(frozen=True, slots=True)
class Leaf:
    word: str
    kind: Literal["a", 1] = "a"


@dataclass(frozen=True, slots=True)
class Tree:
    flag: bool
    count: int
    leaf: Leaf
    leaves: list[Leaf] | None = None
    tree: dict[str, Any] | None = None


CONVERTER = strict_converter()
SOUND: dict[str, Any] = {"flag": True, "count": 3, "leaf": {"word": "x"}}


def test_sound_values_are_structured_and_unknown_keys_passed_over() -> None:
    got = structure(CONVERTER, {**SOUND, "leaves": [{"word": "y", "kind": 1}], "other": 1}, Tree)
    assert got == Tree(True, 3, Leaf("x"), [Leaf("y", 1)])


def test_trees_are_taken_as_they_are() -> None:
    tree = {"a": [1, {"b": None}]}
    assert structure(CONVERTER, {**SOUND, "tree": tree}, Tree).tree is tree


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"flag": 1}, "flag: must be a boolean, not an integer"),
        ({"flag": "true"}, "flag: must be a boolean, not a string"),
        ({"flag": None}, "flag: must be a boolean, not null"),
        ({"count": True}, "count: must be an integer, not a boolean"),
        ({"count": 3.0}, "count: must be an integer, not a number"),
        ({"leaf": []}, "leaf: must be an object, not an array"),
        ({"leaf": {}}, "leaf.word: is required"),
        ({"leaf": {"word": None}}, "leaf.word: must be a string, not null"),
        ({"leaf": {"word": "x", "kind": "b"}}, "leaf.kind: must be 'a', 1, not 'b'"),
        ({"leaf": {"word": "x", "kind": True}}, "leaf.kind: must be 'a', 1, not a boolean"),
        ({"leaves": "xy"}, "leaves: must be an array, not a string"),
        ({"leaves": [{"word": "x"}, 5]}, "leaves[1]: must be an object, not an integer"),
        ({"tree": []}, "tree: must be an object, not an array"),
    ],
)
def test_nothing_is_coerced(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        structure(CONVERTER, {**SOUND, **change}, Tree)
    assert caught.value.message == complaint
    assert caught.value.param == complaint.partition(":")[0]


def test_all_complaints_come_at_once_in_the_order_of_the_keys() -> None:
    with pytest.raises(InvalidRequest) as caught:
        structure(CONVERTER, {"leaf": {}, "leaves": [1, {"word": 2}]}, Tree)
    places = [part.partition(":")[0] for part in caught.value.message.split("; ")]
    assert places == ["flag", "count", "leaf.word", "leaves[0]", "leaves[1].word"]


def test_a_value_that_is_no_object_has_no_path() -> None:
    with pytest.raises(InvalidRequest, match="must be an object, not an array") as caught:
        structure(CONVERTER, [], Tree)
    assert caught.value.param is None


def test_a_bug_in_a_hook_is_no_complaint_of_the_clients() -> None:
    converter = strict_converter()

    def broken(_value: object, _into: object) -> Leaf:
        raise ZeroDivisionError

    converter.register_structure_hook(Leaf, broken)
    with pytest.raises(ZeroDivisionError):
        structure(converter, SOUND, Tree)


def test_a_long_text_is_told_in_part() -> None:
    with pytest.raises(InvalidRequest) as caught:
        structure(CONVERTER, {**SOUND, "leaf": {"word": "x", "kind": "b" * 1000}}, Tree)
    assert len(caught.value.message) < 150


def test_a_complaint_carries_its_place() -> None:
    assert Complaint("is wrong", "a.b").path == "a.b"
