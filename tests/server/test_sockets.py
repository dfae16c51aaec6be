"""Listening sockets."""

import gc
import os
import select
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from edge.server.sockets import bind_all, url_of


def test_an_address_is_bound_and_told() -> None:
    (made,) = bind_all(["127.0.0.1:0"])
    with made:
        host, port = made.getsockname()
        assert url_of(made) == f"http://{host}:{port}"
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert not made.getblocking()


@pytest.mark.skipif(not hasattr(socket, "TCP_NOTSENT_LOWAT"), reason="the kernel cannot be told")
def test_a_client_that_reads_slowly_is_seen_to_read() -> None:
    (listening,) = bind_all(["127.0.0.1:0"])
    with listening, socket.socket() as client:
        listening.listen()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        client.connect(listening.getsockname())
        select.select([listening], [], [], 10)
        with listening.accept()[0] as ours:
            ours.setblocking(False)
            taken = fill(ours)
            read = 0
            while not select.select([], [ours], [], 0.1)[1]:
                read += len(client.recv(16384))

    assert taken < 1_000_000
    assert read < 500_000


def fill(ours: socket.socket) -> int:
    """Write until the kernel takes no more; how much it took."""
    taken = 0
    with suppress(BlockingIOError):
        while True:
            taken += ours.send(bytes(4096))
    return taken


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_in_brackets() -> None:
    try:
        (made,) = bind_all(["[::1]:0"])
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with made:
        assert url_of(made) == f"http://[::1]:{made.getsockname()[1]}"


def test_a_local_socket_replaces_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "edge.sock"
    for _ in range(2):
        (made,) = bind_all([f"unix:{path}"])
        with made:
            assert url_of(made) == f"unix:{path}"


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(OSError, match="in use"):
        bind_all([f"unix:{path}"])

    assert path.read_text() == "data"


def test_an_inherited_socket_is_taken_as_it_is() -> None:
    with socket.socket() as parent:
        parent.bind(("127.0.0.1", 0))
        (made,) = bind_all([f"fd://{os.dup(parent.fileno())}"])
        with made:
            assert made.getsockname() == parent.getsockname()


def test_processes_may_share_a_port_only_if_asked_to() -> None:
    (first,) = bind_all(["127.0.0.1:0"], reuse_port=True)
    with first:
        first.listen()
        bind = url_of(first).removeprefix("http://")
        (second,) = bind_all([bind], reuse_port=True)
        second.close()
        with pytest.raises(OSError, match="in use"):
            bind_all([bind])


def test_nothing_stays_open_where_one_address_fails() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            bind_all(["127.0.0.1:0", f"127.0.0.1:{taken.getsockname()[1]}"])
    gc.collect()  # A socket left open would be a ResourceWarning, hence an error.


@pytest.mark.parametrize("bind", ["localhost", "127.0.0.1:http", ":", "[::1]"])
def test_what_is_no_address_is_refused(bind: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        bind_all([bind])
