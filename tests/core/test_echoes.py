"""A call that was handed out natively and left in the text as well is one call."""

import pytest

from edge.core.echoes import drop_echoes
from edge.core.stream_events import ToolCallDelta

NATIVE = ToolCallDelta("ping", '{"a": 1, "b": [2]}')


@pytest.mark.parametrize("arguments", [NATIVE.arguments, '{"b":[2],"a":1}', '{"a": 1.0, "b": [2]}'])
def test_the_same_call_in_the_text_is_left_out(arguments: str) -> None:
    assert drop_echoes((NATIVE, ToolCallDelta("ping", arguments, origin="hermes"))) == (NATIVE,)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pong", NATIVE.arguments),
        ("ping", '{"a": 2, "b": [2]}'),
        ("ping", '{"a": 1, "b": [2]'),
        ("ping", "\ud800"),
        ("ping", "[" * 2000),
    ],
)
def test_another_call_in_the_text_stays(name: str, arguments: str) -> None:
    both = (NATIVE, ToolCallDelta(name, arguments, origin="hermes"))

    assert drop_echoes(both) == both


def test_integers_of_any_size_are_told_apart() -> None:
    one = ToolCallDelta("ping", '{"id": 123456789012345678901}')
    other = ToolCallDelta("ping", '{"id":  123456789012345678902}', origin="hermes")

    assert drop_echoes((one, other)) == (one, other)


def test_calls_of_the_text_alone_stay_however_equal_they_are() -> None:
    call = ToolCallDelta("ping", "{}", origin="hermes")

    assert drop_echoes((call, call)) == (call, call)
