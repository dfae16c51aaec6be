"""Many runs over one socket: what goes between the braces, and what is no message."""

from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidRequest
from edge.wire.socket_frames import Asked, RunFrames, read_message
from edge.wire.sse import DONE, HEARTBEAT, encode_event
from edge.wire.websocket import PING

CHUNKS = [b'{"choices":[]}', '{"text":"é"}'.encode(), b'{"n":"a\\n\\nb"}']


def payloads(frames: bytes) -> list[Any]:
    """The messages of short frames; a ping is None."""
    found: list[Any] = []
    while frames:
        size = frames[1]
        found.append(None if frames[:2] == PING else orjson.loads(frames[2 : 2 + size]))
        frames = frames[2 + size :]
    return found


def test_events_become_frames_with_the_clients_id() -> None:
    frames = RunFrames("mine").chunks(b"".join(map(encode_event, CHUNKS)) + DONE)

    assert payloads(frames) == [{"id": "mine", "chunk": orjson.loads(chunk)} for chunk in CHUNKS]


def test_a_heartbeat_becomes_a_ping() -> None:
    assert RunFrames(1).chunks(HEARTBEAT) == PING


@given(st.lists(st.integers(0, 120), max_size=6))
def test_the_cut_of_the_bytes_makes_no_difference(cuts: list[int]) -> None:
    data = b"".join([encode_event(CHUNKS[0]), HEARTBEAT, *map(encode_event, CHUNKS[1:]), DONE])
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    pieces = [data[a:b] for a, b in pairwise(places)]
    frames = RunFrames(1)

    assert b"".join(map(frames.chunks, pieces)) == RunFrames(1).chunks(data)


def test_every_last_word_has_the_id() -> None:
    frames = RunFrames('quoted "id"')
    error = {"message": "no", "type": "run_error", "param": None, "code": None}

    told = payloads(frames.completion(b'{"a":1}') + frames.done("run_1"))
    (failed,) = payloads(frames.error(502, error))

    assert told == [
        {"id": 'quoted "id"', "completion": {"a": 1}},
        {"id": 'quoted "id"', "done": True, "run_id": "run_1"},
    ]
    assert failed == {"id": 'quoted "id"', "status": 502, "error": error}


def test_messages_ask_and_cancel() -> None:
    assert read_message('{"id":1,"request":{"model":"m"}}') == Asked(1, {"model": "m"})
    assert read_message(b'{"id":"a","cancel":true}') == Asked("a", None)
    assert read_message('{"id":"a","request":{},"cancel":false}') == Asked("a", {})


@given(st.text() | st.binary())
def test_anything_else_is_refused_and_nothing_breaks(message: str | bytes) -> None:
    try:
        asked = read_message(message)
    except InvalidRequest:
        return
    assert isinstance(asked, Asked)


@pytest.mark.parametrize("text", ["", "[1]", '{"id":1.5,"request":{}}', '{"id":null}'])
def test_what_has_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        read_message(text)
