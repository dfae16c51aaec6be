"""Native deltas in every shape servers send them come out as the calls that were meant."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.native_calls import MAX_CALLS, MAX_NAME_CHARS, NativeCalls
from edge.errors import ProviderProtocolError

OFFERED = ("get_clock", "run_shell", "ping")


def calls(
    *deltas: list[dict[str, Any]], offered: tuple[str, ...] = OFFERED
) -> list[tuple[str, Any]]:
    """Names and parsed arguments of what these deltas hold."""
    machine = NativeCalls(offered)
    for delta in deltas:
        machine.feed(delta)
    return [(call.name, json.loads(call.arguments)) for call in machine.finish()]


def part(
    name: str | None = None,
    arguments: Any = None,
    *,
    id: str | None = None,  # noqa: A002 - the wire's own word
    index: int | None = None,
) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    entry: dict[str, Any] = {"function": {k: v for k, v in function.items() if v is not None}}
    if id is not None:
        entry["id"] = id
    if index is not None:
        entry["index"] = index
    return entry


ONE_CALL = {
    "no index at all": ([part("ping", "", id="a")], [part(None, '{"x"')], [part(None, ": 1}")]),
    "index and id only once": (
        [part("ping", "", id="a", index=0)],
        [part(None, '{"x": 1}', index=0)],
    ),
    "id comes late": ([part("ping", '{"x"', index=0)], [part(None, ": 1}", id="a", index=0)]),
    "name repeated": (
        [part("ping", "", id="a", index=0)],
        [part("ping", '{"x": ', id="a", index=0)],
        [part("ping", "1}", id="a", index=0)],
    ),
    "name repeated without an id, blanks at the end": (
        [part("ping", '{"x": 1', index=0)],
        [part("ping", "}", index=0)],
        [part("ping", " ", index=0)],
    ),
    "name cut over deltas": ([part("pi", index=0, id="a")], [part("ng", '{"x": 1}', index=0)]),
    "name comes after the first arguments": (
        [part(None, '{"x": ', index=0, id="a")],
        [part("ping", "1}", index=0)],
    ),
    "name with a namespace": ([part("functions.ping", '{"x": 1}', id="a")],),
    "name with control tokens behind": ([part("ping<|channel|>commentary", '{"x": 1}')],),
    "arguments as an object": ([part("ping", {"x": 1}, id="a")],),
    "all arguments so far in each delta": (
        [part("ping", '{"x"', index=0, id="a")],
        [part(None, '{"x": ', index=0)],
        [part(None, '{"x": 1}', index=0)],
    ),
    "everything once more at the end": (
        [part("ping", '{"x"', index=0, id="a")],
        [part(None, ": 1}", index=0)],
        [part("ping", '{"x": 1}', index=0, id="a")],
    ),
    "the same id again at another index": (
        [part("ping", '{"x": 1}', id="a", index=0)],
        [part("ping", '{"x": 1}', id="a", index=1)],
    ),
    "a tail under another index than its head": (
        [part("ping", '{"x"', id="a", index=0)],
        [part(None, ": 1}", index=1)],
    ),
    "empty strings and nulls overwrite nothing": (
        [part("ping", '{"x": 1', id="a", index=0)],
        [{"id": "", "index": 0, "function": {"name": "", "arguments": None}}],
        [{"id": None, "index": 0, "type": None, "function": {"name": None, "arguments": "}"}}],
    ),
    "without the function wrapper": ([{"name": "ping", "arguments": '{"x": 1}', "id": "a"}],),
}


@pytest.mark.parametrize("deltas", ONE_CALL.values(), ids=ONE_CALL.keys())
def test_one_call_is_read_from(deltas: tuple[list[dict[str, Any]], ...]) -> None:
    assert calls(*deltas) == [("ping", {"x": 1})]


TWO_CALLS = {
    "told apart by id": ([part("ping", "{}", id="a")], [part("get_clock", "{}", id="b")]),
    "all on index 0": (
        [part("ping", "", id="a", index=0)],
        [part(None, "{}", index=0)],
        [part("get_clock", "", id="b", index=0)],
        [part(None, "{}", index=0)],
    ),
    "interleaved": (
        [part("ping", "{", id="a", index=0)],
        [part("get_clock", "{", id="b", index=1)],
        [part(None, "}", index=0)],
        [part(None, "}", index=1)],
    ),
    "in one delta, with nothing but names": ([part("ping", "{}"), part("get_clock", "{}")],),
    "one after the other, with nothing but names": (
        [part("ping", "{}")],
        [part("get_clock", "{}")],
    ),
    "no arguments and no ids": ([part("ping", index=0)], [part("get_clock", index=0)]),
    "indexes with a gap": (
        [part("ping", "{}", index=3)],
        [part("get_clock", "{}", index=7)],
    ),
}


@pytest.mark.parametrize("deltas", TWO_CALLS.values(), ids=TWO_CALLS.keys())
def test_two_calls_are_told_apart(deltas: tuple[list[dict[str, Any]], ...]) -> None:
    assert calls(*deltas) == [("ping", {}), ("get_clock", {})]


def test_two_equal_calls_with_ids_of_their_own_are_two() -> None:
    deltas = [part("ping", "{}", id="a", index=0)], [part("ping", "{}", id="b", index=1)]

    assert calls(*deltas) == [("ping", {}), ("ping", {})]


@pytest.mark.parametrize("arguments", [None, "", "  \n"])
def test_absent_arguments_are_an_empty_object(arguments: str | None) -> None:
    assert calls([part("ping", arguments, id="a")]) == [("ping", {})]


def test_a_nested_object_that_repeats_the_beginning_is_no_resend() -> None:
    deltas = [part("ping", '{"a":', index=0)], [part(None, '{"a":1}}', index=0)]

    assert calls(*deltas) == [("ping", {"a": {"a": 1}})]


def test_a_legacy_function_call_is_a_call() -> None:
    machine = NativeCalls(OFFERED)
    machine.feed_legacy({"name": "ping", "arguments": ""})
    machine.feed_legacy({"arguments": '{"x": 1}'})

    assert [(c.name, c.arguments) for c in machine.finish()] == [("ping", '{"x": 1}')]


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.data())
def test_any_cut_of_the_arguments_gives_the_same_call(value: Any, data: st.DataObject) -> None:
    text = json.dumps({"value": value})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    deltas = [[part("ping", "", id="a", index=0)]] + [[part(None, p, index=0)] for p in pieces]

    assert calls(*deltas) == [("ping", {"value": value})]


def test_calls_without_end_are_a_fault_of_the_provider() -> None:
    machine = NativeCalls(OFFERED)
    machine.feed([{"id": f"{number}"} for number in range(MAX_CALLS)])

    with pytest.raises(ProviderProtocolError, match="more than 1024 tool calls"):
        machine.feed([{"id": "one more"}])


def test_a_name_that_grows_is_held_and_counted() -> None:
    machine = NativeCalls(OFFERED)
    for piece in ("a", "bc", "def"):
        machine.feed([part(piece, index=0)])

    assert machine.finish()[0].name == "abcdef"
    assert machine.held_chars == 6


def test_arguments_that_are_given_as_an_object_keep_every_digit() -> None:
    given = {"exact": 2**64, "deep": [{"below": -(2**63) - 1}]}

    assert calls([part("ping", given, id="a", index=0)]) == [("ping", given)]


def test_a_name_that_comes_in_pieces_without_end_is_no_name() -> None:
    machine = NativeCalls(OFFERED)
    machine.feed([part("x" * MAX_NAME_CHARS, index=0)])
    machine.feed([part("and more", index=0)])

    with pytest.raises(ProviderProtocolError, match="has no end"):
        machine.feed([part("and more", index=0)])
