"""Reads bring what came, and leave nothing behind that is larger."""

import socket
import sys
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from edge.providers.reading import READ_SIZE, read_now


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


def test_a_read_brings_what_came_and_then_the_end(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    with pytest.raises(BlockingIOError):
        read_now(ours)

    theirs.send(b"one")
    first = read_now(ours)
    theirs.send(b"two")

    assert (first, read_now(ours)) == (b"one", b"two")
    theirs.close()
    assert read_now(ours) == b""


def test_a_read_never_takes_more_memory_than_what_came(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, theirs = pair
    theirs.send(b"x" * 100)
    read_now(ours)
    theirs.send(b"y" * 100)

    tracemalloc.start()
    data = read_now(ours)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert most < sys.getsizeof(data) + 1000 < READ_SIZE


def test_threads_do_not_share_what_they_read_into() -> None:
    wrong: list[bytes] = []

    def talk(letter: bytes) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for _ in range(300):
                theirs.send(letter * 20_000)
                data = read_now(ours)
                if data != letter * len(data):
                    wrong.append(data)

    threads = [threading.Thread(target=talk, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
