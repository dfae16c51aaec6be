"""A server's frames: what a WebSocket client of another make reads out of them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Ping, TextMessage

from edge.wire.websocket import PING, array_frame, text_frame


def read(data: bytes) -> list[object]:
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    return list(client.events())


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70000])
def test_a_text_of_any_length_arrives_whole(size: int) -> None:
    events = read(text_frame(b"x" * size))

    texts = [event for event in events if isinstance(event, TextMessage)]
    assert "".join(event.data for event in texts) == "x" * size
    assert texts[-1].message_finished


def test_frames_follow_each_other_without_a_gap() -> None:
    events = read(text_frame("é".encode()) + PING + text_frame(b"two"))

    assert [type(event) for event in events] == [TextMessage, Ping, TextMessage]


@given(st.lists(st.text(max_size=300), max_size=4))
def test_any_texts_arrive_as_they_are(said: list[str]) -> None:
    frames = b"".join(text_frame(text.encode()) for text in said)

    texts = [event.data for event in read(frames) if isinstance(event, TextMessage)]
    assert texts == said


@given(st.lists(st.sampled_from([0, 120, 130, 70000]), max_size=4))
def test_many_texts_may_be_one_array(sizes: list[int]) -> None:
    frame = array_frame(text_frame(json.dumps("x" * size).encode()) for size in sizes)

    parts = [event.data for event in read(frame) if isinstance(event, TextMessage)]
    assert [len(each) for each in json.loads("".join(parts))] == sizes
