"""Server-sent events: what is a payload, in every cut of the bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import ProviderProtocolError
from edge.wire.sse import DONE, DONE_PAYLOAD, HEARTBEAT, SseDecoder, encode_event

LINE_ENDS = [b"\n", b"\r", b"\r\n"]

FEATURES = (
    b"\xef\xbb\xbf: a comment\n\n"
    b'data: {"a": 1}\n\n'
    b"data:no space\n\n"
    b"data: two\ndata: lines\n\n"
    b"event: message\nid: 7\ndata: one\ndata: two\ndata\nretry: 5\n\n"
    b"\n\n\n"
    b"data:   three\n\n"
    b"database: not data\n\n"
    b"data: \xe2\x80\xa8 is text\n\n"
    b"data: unended"
)
FEATURES_PAYLOADS = [
    b'{"a": 1}',
    b"no space",
    b"two\nlines",
    b"one\ntwo\n",
    b"  three",
    b"\xe2\x80\xa8 is text",
    b"unended",
]


def decoded(pieces: list[bytes], *, max_event_bytes: int = 1000) -> list[bytes | str]:
    """All payloads, and ``"fault"`` where the decoder raised."""
    decoder = SseDecoder(max_event_bytes=max_event_bytes)
    events: list[bytes | str] = []
    try:
        for piece in pieces:
            events += decoder.feed(piece)
        events += decoder.finish()
    except ProviderProtocolError:
        events.append("fault")
    return events


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_payloads_are_found_whatever_ends_the_lines(line_end: bytes) -> None:
    assert decoded([FEATURES.replace(b"\n", line_end)]) == FEATURES_PAYLOADS


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_payloads_are_the_same_byte_by_byte(line_end: bytes) -> None:
    data = FEATURES.replace(b"\n", line_end)
    assert decoded([data[i : i + 1] for i in range(len(data))]) == FEATURES_PAYLOADS


@pytest.mark.parametrize("line_end", LINE_ENDS)
def test_payloads_are_the_same_at_every_single_cut(line_end: bytes) -> None:
    data = FEATURES.replace(b"\n", line_end)
    for place in range(len(data)):
        assert decoded([data[:place], data[place:]]) == FEATURES_PAYLOADS


@given(
    st.lists(
        st.sampled_from(
            [
                *(b"data: x", b"data:", b"data", b"error: y", b": c", b"event: e", b"\xef\xbb\xbf"),
                *(b"\n", b"\n\n", b"\r", b"\r\n", b"data: " + b"z" * 12),
            ]
        ),
        max_size=20,
    ).map(b"".join),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_every_cut_gives_the_same_events_and_the_same_fault(data: bytes, places: list[int]) -> None:
    assert decoded(cut(data, places), max_event_bytes=16) == decoded([data], max_event_bytes=16)


@given(st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b and b"\r" not in b)))
def test_what_is_encoded_is_decoded(payloads: list[bytes]) -> None:
    assert decoded([b"".join(map(encode_event, payloads))]) == [p for p in payloads if p]


def test_an_event_is_handed_out_as_soon_as_its_blank_line_begins() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [b"a"]
    assert decoder.feed(b"\ndata: b\n\n") == [b"b"]


def test_many_events_of_one_read_come_together() -> None:
    assert SseDecoder().feed(encode_event(b"{}") * 3) == [b"{}", b"{}", b"{}"]


def test_our_own_marks_read_as_they_are_meant() -> None:
    assert decoded([HEARTBEAT, DONE, HEARTBEAT]) == [DONE_PAYLOAD]


def test_empty_payloads_are_heartbeats() -> None:
    assert decoded([b"data: \n\ndata:\n\ndata\n\n"]) == []


def test_an_error_field_counts_as_data() -> None:
    assert decoded([b'error: {"code": 500}\n\n']) == [b'{"code": 500}']


def test_a_blank_stream_holds_nothing() -> None:
    assert decoded([]) == []
    assert decoded([b""]) == []


def test_only_the_first_bytes_can_be_a_byte_order_mark() -> None:
    assert decoded([b"\xef", b"\xbb", b"\xbf", b"data: a\n\n"]) == [b"a"]
    assert decoded([b"data: a\n\n\xef\xbb\xbfdata: b\n\n"]) == [b"a"]


@pytest.mark.parametrize(
    "data",
    [
        b"data: " + b"x" * 100 + b"\n\n",
        b"data: " + b"x" * 100,
        b": " + b"x" * 100 + b"\n\n",
        b"data: 12345678\n" * 10 + b"\n",
    ],
    ids=["one line", "an unended line", "a comment", "many lines"],
)
def test_an_event_over_the_cap_is_a_protocol_error(data: bytes) -> None:
    assert decoded([data], max_event_bytes=50) == ["fault"]
    assert decoded([data[i : i + 1] for i in range(len(data))], max_event_bytes=50) == ["fault"]


def test_events_at_the_cap_are_handed_out_however_many_come() -> None:
    lines = b"\xef\xbb\xbf" + b"data: 123456789\n\n" + b"data: 1\ndata: 2\n\n" * 20
    payloads = [b"123456789"] + [b"1\n2"] * 20
    assert decoded([lines], max_event_bytes=15) == payloads
    assert decoded([lines[i : i + 1] for i in range(len(lines))], max_event_bytes=15) == payloads


def test_events_before_a_fault_are_handed_out_first() -> None:
    decoder = SseDecoder(max_event_bytes=10)
    assert decoder.feed(b"data: a\n\ndata: 1234567890\n\n") == [b"a"]
    with pytest.raises(ProviderProtocolError, match="more than 10 bytes"):
        decoder.feed(b"data: b\n\n")
    with pytest.raises(ProviderProtocolError, match="more than 10 bytes"):
        decoder.finish()


def test_an_unended_line_costs_linear_work() -> None:
    decoder = SseDecoder(max_event_bytes=4_000_000)
    for _ in range(300_000):  # quadratic work would take minutes here
        assert decoder.feed(b"0123456789") == []
    assert decoder.finish() == []


ONE_BY_ONE = [
    b'data: {"a": 1}\n\n', b"data: x\n\n", b"data: \n\n", b"data:x\n\n", b"data: x\n", b"\n",
    b"data: x\r\n\r\n", b"data: x\r\n\r", b"\ndata: x\n\n", b"event: a\n\n", b": y\n\n",
    b"data: x\n\ndata: y\n\n", b"data: " + b"x" * 990 + b"\n\n", b"\xef\xbb\xbf", b"\n\n",
    b"data: " + b"x" * 1001 + b"\n\n",
]  # fmt: skip


@given(st.lists(st.sampled_from(ONE_BY_ONE), max_size=8))
def test_events_that_come_one_a_read_are_those_of_one_read(reads: list[bytes]) -> None:
    assert decoded(reads) == decoded([b"".join(reads)])
