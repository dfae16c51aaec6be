"""Whatever passes a tap comes out as it went in, but for the one event that nobody asked for."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.usage_tap import MAX_HELD, MAX_JSON, BodyTap, NoTap, StreamTap, tap_for

USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def event(tree: Any, *, compact: bool = True, end: bytes = b"\n\n") -> bytes:
    text = json.dumps(tree, separators=(",", ":") if compact else None)
    return b"data: " + text.encode() + end


def delta(text: str, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more}


FINISH = {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
REPORT = {"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
DONE = b"data: [DONE]\n\n"


def through(tap: StreamTap | BodyTap, *pieces: bytes) -> bytes:
    return b"".join([tap.feed(piece) for piece in pieces]) + tap.finish()


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


def test_the_usage_event_is_taken_out_and_read() -> None:
    tap = StreamTap(cut=True)
    before, after = event(delta("Hi")) + event(FINISH), DONE

    assert through(tap, before + event(REPORT) + after) == before + after
    assert tap.usage == USAGE
    assert tap.done
    assert tap.complete


def test_without_cut_it_is_read_and_stays() -> None:
    tap = StreamTap(cut=False)
    stream = event(delta("Hi")) + event(REPORT) + DONE

    assert through(tap, stream) == stream
    assert tap.usage == USAGE


def test_a_read_of_whole_events_is_passed_on_as_the_very_object() -> None:
    tap = StreamTap(cut=True)
    data = event(delta("Hi")) * 3

    assert tap.feed(data) is data


@pytest.mark.parametrize("cut", [True, False])
def test_an_event_with_a_choice_is_passed_on_before_its_end(cut: bool) -> None:
    tap = StreamTap(cut=cut)
    whole = event(delta("a long word"))
    begun = whole[: whole.index(b"long")]

    assert tap.feed(begun) == begun
    assert not tap.at_boundary
    assert tap.feed(whole[len(begun) :]) == whole[len(begun) :]
    assert tap.at_boundary


@pytest.mark.parametrize(
    "begun", [b": heartb", b"event: x\nda", b"data: [DON", b"id: 7", b"data: x"]
)
def test_what_cannot_become_the_usage_event_is_not_held(begun: bytes) -> None:
    assert StreamTap(cut=True).feed(begun) == begun


def test_what_may_become_it_is_held_and_the_place_stays_a_boundary() -> None:
    tap = StreamTap(cut=True)

    assert tap.feed(event(delta("Hi")) + event(REPORT)[:40]) == event(delta("Hi"))
    assert tap.at_boundary


STAYS = {
    "usage beside a choice": delta("", usage=USAGE),
    "no usage": {"id": "c", "choices": []},
    "usage that is null": {"id": "c", "choices": [], "usage": None},
    "usage further down": {"id": "c", "choices": [], "x": {"usage": USAGE}},
    "no choices at all": {"usage": USAGE},
    "words about usage": delta('{"choices":[],"usage":{"a":1}}'),
    "one that is too long": {"choices": [], "usage": USAGE, "pad": "x" * MAX_HELD},
}


@pytest.mark.parametrize("tree", STAYS.values(), ids=STAYS.keys())
@pytest.mark.parametrize("size", [1, 7, 1 << 20])
def test_other_events_stay(tree: Any, size: int) -> None:
    stream = event(tree) + DONE
    tap = StreamTap(cut=True)

    assert through(tap, *[stream[i : i + size] for i in range(0, len(stream), size)]) == stream


def test_a_usage_event_of_several_lines_stays() -> None:
    stream = b"data: " + json.dumps(REPORT).encode() + b"\nid: 5\n\n"

    assert through(StreamTap(cut=True), stream[:-4], stream[-4:]) == stream


def test_usage_in_every_chunk_is_read_from_the_last() -> None:
    tap = StreamTap(cut=True)
    stream = b"".join(event(delta("x", usage={"completion_tokens": n})) for n in range(5))

    assert through(tap, stream) == stream
    assert tap.usage == {"completion_tokens": 4}


@pytest.mark.parametrize(
    ("stream", "complete"),
    [
        (event(delta("x")) + DONE, True),
        (event(delta("x")) + event(FINISH), True),
        (event(delta("x")) + event(FINISH) + event(REPORT) + b": bye\n\n", True),
        (event(delta("x")) + b"data: [DONE]", True),
        (event(delta("x")), False),
        (event(delta("[DONE]")), False),
        (event(delta('"finish_reason":"stop"')), False),
        (b"", False),
    ],
)
def test_it_knows_whether_the_answer_has_ended(stream: bytes, complete: bool) -> None:
    tap = StreamTap(cut=False)
    through(tap, stream)

    assert tap.complete is complete


EVENTS = st.sampled_from(
    [
        event(delta("Hi")),
        event(delta("Hi"), compact=False),
        event(delta("h", usage=None)),
        event(delta("h", usage=USAGE)),
        event(delta('"usage":{"choices":[]')),
        event(delta("crlf"), end=b"\r\n\r\n"),
        event({"choices": [], "prompt_filter_results": []}),
        event(FINISH),
        b": heartbeat\n\n",
        b"event: message\ndata: {}\n\n",
        b"\n",
        b"\r\n",
        b"data: {\n\n",
        DONE,
    ]
)
REPORTS = st.sampled_from(
    [
        event(REPORT),
        event(REPORT, compact=False),
        event(REPORT, end=b"\r\n\r\n"),
        event({"usage": USAGE, "choices": []}),
    ]
)


@given(st.lists(EVENTS | REPORTS), st.lists(st.integers(0, 4000), max_size=12), st.booleans())
def test_every_cut_gives_the_input_without_the_usage_events(
    events: list[bytes], cuts: list[int], cut: bool
) -> None:
    reports = {event(REPORT), event(REPORT, compact=False), event(REPORT, end=b"\r\n\r\n")}
    reports.add(event({"usage": USAGE, "choices": []}))
    stream = b"".join(events)
    whole, split = StreamTap(cut=cut), StreamTap(cut=cut)

    passed = through(split, *pieces_of(stream, cuts))

    assert passed == b"".join(e for e in events if not (cut and e in reports))
    assert through(whole, stream) == passed
    assert (split.usage, split.complete) == (whole.usage, whole.complete)
    if reports & set(events):
        assert split.usage == USAGE


@given(st.lists(EVENTS | REPORTS, min_size=1), st.data())
def test_nothing_is_held_but_what_may_become_the_usage_event(
    events: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(events)
    tap = StreamTap(cut=True)
    fed = 0
    for piece in pieces_of(stream, data.draw(st.lists(st.integers(0, 4000), max_size=12))):
        fed += len(piece)
        tap.feed(piece)
        unfinished = re.split(rb"\n\r?\n", stream[:fed])[-1].lstrip(b"\r\n")
        held = bytes(tap._open[tap._sent :])
        assert held in (b"", b"\r", unfinished)
        if re.search(rb'"choices": ?\[ ?\{', unfinished) or not unfinished.startswith(b"data: {"):
            assert not held or b"data: {".startswith(held) or held == b"\r"


@given(st.binary(), st.lists(st.integers(0, 200), max_size=5), st.booleans())
def test_any_bytes_pass(data: bytes, cuts: list[int], cut: bool) -> None:
    assert through(StreamTap(cut=cut), *pieces_of(data, cuts)) == data


def test_an_unfinished_event_hides_no_finish_reason_whatever_the_cut() -> None:
    stream = event(FINISH) + b": bye\n\n" * 3 + b": un"
    for pieces in ([stream], pieces_of(stream, list(range(len(stream))))):
        tap = StreamTap(cut=True)
        through(tap, *pieces)

        assert tap.complete


@pytest.mark.parametrize("blank", [b"\n\n", b"\r\n\r\n", b"\n\n\n"])
def test_blank_lines_push_no_finish_reason_out_and_do_not_undo_the_end(blank: bytes) -> None:
    for last in (event(FINISH), DONE):
        tap = StreamTap(cut=True)
        through(tap, event(delta("Hi")), last, *([blank] * 5))

        assert tap.complete
        assert tap.done is (last == DONE)


@pytest.mark.parametrize("line", [b":data: [DONE]", b"x: data: [DONE]", b"event: data:[DONE]"])
def test_a_line_that_only_ends_like_the_last_one_ends_nothing(line: bytes) -> None:
    stream = event(delta("Hi")) + line + b"\n\n"
    for pieces in ([stream], pieces_of(stream, list(range(len(stream))))):
        tap = StreamTap(cut=True)
        through(tap, *pieces)

        assert not tap.done
        assert not tap.complete


def test_nothing_is_lost_in_single_bytes() -> None:
    stream = event(delta("Hi")) + event(REPORT) + event(FINISH) + DONE
    tap = StreamTap(cut=True)

    assert through(tap, *[bytes([byte]) for byte in stream]) == stream.replace(event(REPORT), b"")
    assert tap.usage == USAGE
    assert tap.complete


def test_a_long_event_is_not_kept() -> None:
    tap = StreamTap(cut=False)
    for _ in range(64):
        tap.feed(b"x" * 65536)

    assert len(tap._open) < 3


@pytest.mark.parametrize("padding", [0, MAX_JSON, 3 * MAX_JSON])
def test_a_body_is_read_and_passed_on(padding: int) -> None:
    body = json.dumps({"data": "x" * padding, "usage": {**USAGE, "details": {"a": 1}}}).encode()
    tap = BodyTap()

    assert through(tap, *pieces_of(body, list(range(0, len(body), 60_000)))) == body
    assert tap.usage == {**USAGE, "details": {"a": 1}}
    assert sum(map(len, tap._parts)) == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"usage": 3}', b'{"usage": {"a"', b"\xff"])
def test_a_body_that_tells_nothing_tells_nothing(body: bytes) -> None:
    tap = BodyTap()

    assert through(tap, body) == body
    assert tap.usage is None


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_finish_that_no_client_sees_is_no_end(end: bytes) -> None:
    """Clients pass over an event without its blank line; half of one may look like a finish."""
    tap = StreamTap(cut=False)
    body = event(delta("Hel")) + event(FINISH, end=end)

    assert through(tap, body) == body
    assert not tap.complete


@pytest.mark.parametrize(
    ("body", "complete"),
    [
        (b'{"choices": [{}]}\n', True),
        (b'{"choices": [{}', False),
        (b'{"choices": [{}]', False),
        (b'{"a": "' + b"x" * 3 * MAX_JSON + b'"}', True),
        (b'{"a": "' + b"x" * 3 * MAX_JSON, False),
        (b"", False),
    ],
)
def test_a_body_that_was_cut_is_not_complete(body: bytes, complete: bool) -> None:
    tap = BodyTap()
    through(tap, body)

    assert tap.complete == complete


def test_the_content_type_chooses() -> None:
    def kind(media: bytes, *, encoded: bool = False) -> type:
        return type(tap_for(media, encoded=encoded, cut=True))

    assert kind(b"text/event-stream; charset=utf-8") is StreamTap
    assert kind(b"Application/JSON") is BodyTap
    assert kind(b"audio/mpeg") is NoTap
    assert kind(b"text/event-stream", encoded=True) is NoTap
