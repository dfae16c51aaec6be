"""Streams that pass through are cut into whole events, however they come."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edge.core import passed_events
from edge.core.mirror_frames import Passed
from edge.core.passed_events import EventCutter
from edge.wire.sse import SseDecoder

STREAM = (
    b'data: {"a":1}\n\nevent: x\r\ndata: {"b":2}\r\n\r\n'
    b": note\n\ndata: one\ndata: two\n\ndata: last"
)


def pieces(stream: bytes, cuts: list[int]) -> list[Passed]:
    places = sorted({0, len(stream), *(min(cut, len(stream)) for cut in cuts)})
    cutter = EventCutter()
    found = [cutter.feed(stream[a:b]) for a, b in pairwise(places)]
    return [piece for piece in (*found, cutter.finish()) if piece is not None]


def payloads(stream: bytes) -> list[bytes]:
    return SseDecoder().feed(stream)


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_every_piece_is_whole_events_and_together_they_are_the_stream(cuts: list[int]) -> None:
    found = pieces(STREAM, cuts)

    assert [each for piece in found for each in payloads(piece.events)] == payloads(
        STREAM + b"\n\n"
    )
    assert b"".join(piece.events for piece in found) == STREAM + b"\n\n"


def test_byte_by_byte_is_the_same() -> None:
    found = pieces(STREAM, list(range(len(STREAM))))

    assert b"".join(piece.events for piece in found) == STREAM + b"\n\n"
    assert len(found) >= 5


def test_a_read_that_ends_an_event_is_handed_on_as_it_is() -> None:
    data = b"data: {}\n\n"
    piece = EventCutter().feed(data)

    assert piece is not None
    assert piece.events is data


@given(st.lists(st.integers(0, 60), max_size=12))
def test_an_event_that_is_too_long_is_left_out_and_the_next_is_told(cuts: list[int]) -> None:
    before = passed_events.MAX_EVENT
    passed_events.MAX_EVENT = 20
    try:
        stream = b"data: " + b"x" * 40 + b"\n\ndata: next\n\n"
        told = [each for piece in pieces(stream, cuts) for each in payloads(piece.events)]
    finally:
        passed_events.MAX_EVENT = before

    assert told in ([b"x" * 40, b"next"], [b"next"])


def test_nothing_is_kept_of_a_stream_that_never_ends_an_event() -> None:
    cutter = EventCutter()
    for _ in range(100):
        assert cutter.feed(b"x" * 65536) is None

    assert len(cutter._tail) <= passed_events.MAX_EVENT
