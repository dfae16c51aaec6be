"""Clients that follow all runs over WebSockets, and read everything or nothing.

    python -m benchmarks.mirror_followers --port 8080 --count 1000 [--stuck]

Prints a line once all are connected, and what they got, as JSON, when standard input ends. Those
that read look at no frame: they count bytes and the beginnings of frames.
"""

import argparse
import json
import select
import socket
import sys

HANDSHAKE = (
    b"GET /v1/mirror HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
FRAME = b'{"type":"'
GAP = b'{"type":"gap"'


def follow(port: int, *, stuck: bool) -> socket.socket:
    """A follower whose handshake is done."""
    sock = socket.socket()
    if stuck:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    sock.sendall(HANDSHAKE)
    head = b""
    while b"\r\n\r\n" not in head:
        data = sock.recv(1)
        if not data:
            raise RuntimeError(f"no WebSocket: {head!r}")
        head += data
    if b" 101 " not in head:
        raise RuntimeError(f"no WebSocket: {head!r}")
    return sock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--stuck", action="store_true")
    options = parser.parse_args()
    followers = [follow(options.port, stuck=options.stuck) for _ in range(options.count)]
    print("connected", flush=True)
    if options.stuck:
        sys.stdin.read()
        return
    poll = select.epoll()
    by_fd = {sock.fileno(): sock for sock in followers}
    for fd in by_fd:
        poll.register(fd, select.EPOLLIN)
    poll.register(sys.stdin.fileno(), select.EPOLLIN | select.EPOLLHUP)
    frames = gaps = received = closed = 0
    while True:
        ready = [fd for fd, _ in poll.poll()]
        for fd in ready:
            if fd not in by_fd:
                told = {"frames": frames, "gaps": gaps, "bytes": received, "closed": closed}
                print(json.dumps(told), flush=True)
                return
            data = by_fd[fd].recv(1 << 18)
            received += len(data)
            frames += data.count(FRAME)
            gaps += data.count(GAP)
            if not data:
                closed += 1
                poll.unregister(fd)


if __name__ == "__main__":
    main()
