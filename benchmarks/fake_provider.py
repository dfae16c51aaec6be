"""An OpenAI-compatible server that does no work, so that what is measured was added on the way.

    python -m benchmarks.fake_provider --port 9000 [--cpu 0]

One process, one epoll loop, byte strings made beforehand (``wire_text``). Timers are a heap; the
wait goes through ``select`` on the epoll descriptor, because epoll's own timeout is rounded up to
a millisecond and would bunch the chunks of many streams.

Beside chat completions: ``GET /stats`` (what was noticed of clients that left, as
``[[id, monotonic ns], …]``), ``POST /reset``, ``GET /v1/models``. It listens on loopback only and
ends by itself after ``--max-seconds``.
"""

import argparse
import gc
import heapq
import itertools
import json
import os
import select
import socket
from collections import deque
from time import monotonic_ns

from benchmarks import wire_text
from benchmarks.wire_text import Plan, Script

TURN = 16  # chunks that an undelayed stream writes before the others have their turn
MODELS = b'{"object":"list","data":[{"id":"fake","object":"model","created":0,"owned_by":"fake"}]}'


class Connection:
    """A client and the answer that it is being given."""

    __slots__ = (
        "blocked", "due", "fd", "gap", "id", "inbox", "left", "outbox", "queued", "script",
        "silent_at", "sock", "usage",
    )  # fmt: skip

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.inbox = b""
        self.outbox = b""
        self.blocked = False
        self.script: Script | None = None  # None: no stream is being written
        self.left = 0
        self.silent_at = -1
        self.gap = 0
        self.due = 0
        self.id = 0
        self.usage = False
        self.queued = False


class FakeProvider:
    """The loop and its tables."""

    def __init__(self, port: int) -> None:
        self.listener = socket.create_server(("127.0.0.1", port), backlog=4096)
        self.listener.setblocking(False)
        self.epoll = select.epoll()
        self.epoll.register(self.listener, select.EPOLLIN)
        self.connections: dict[int, Connection] = {}
        self.timers: list[tuple[int, int, Connection]] = []
        self.order = itertools.count()
        self.ready: deque[Connection] = deque()
        self.noticed: list[tuple[int, int]] = []
        self.started = 0

    def run(self, until_ns: int) -> None:
        """Serve until the monotonic clock passes ``until_ns``."""
        listener = self.listener.fileno()
        while (now := monotonic_ns()) < until_ns:
            wait = 0.0 if self.ready else 0.2
            if self.timers and not self.ready:
                wait = min(wait, max(0, self.timers[0][0] - now) / 1e9)
            if wait:
                select.select([self.epoll], [], [], wait)
            for fd, mask in self.epoll.poll(0):
                if fd == listener:
                    self._accept()
                elif (connection := self.connections.get(fd)) is not None:
                    self._on_event(connection, mask)
            self._write_due()
            for _ in range(len(self.ready)):
                self._write_turn(self.ready.popleft())

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(sock)
            self.connections[connection.fd] = connection
            self.epoll.register(connection.fd, select.EPOLLIN | select.EPOLLRDHUP)

    def _on_event(self, connection: Connection, mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush(connection)
        if mask & ~select.EPOLLOUT:
            self._read(connection)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.inbox += data
        head_end = connection.inbox.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = connection.inbox[:head_end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(connection.inbox) < head_end + 4 + length:
            return
        body = connection.inbox[head_end + 4 : head_end + 4 + length]
        connection.inbox = connection.inbox[head_end + 4 + length :]
        self._answer(connection, head, body)

    def _answer(self, connection: Connection, head: bytes, body: bytes) -> None:
        if not head.startswith(b"post") or b"/reset " in head:
            self._send(connection, wire_text.http_answer(self._about(head)))
            return
        plan = Plan.read(body)
        self.started += 1
        connection.id = plan.id
        streamed = wire_text.STREAMED.search(body) is not None
        if not streamed and plan.silent_after < 0:
            self._send(connection, wire_text.http_answer(wire_text.whole_answer(call=plan.call)))
            connection.id = 0
            return
        script = wire_text.CALL if plan.call else wire_text.TEXT
        connection.script = script
        connection.left = plan.chunks
        connection.gap = plan.gap_us * 1000
        connection.silent_at = plan.chunks - plan.silent_after if plan.silent_after >= 0 else -1
        connection.usage = wire_text.USAGE_ASKED.search(body) is not None
        if plan.silent_after == 0 or not streamed:
            return  # not even a status line: a long prefill
        self._send(connection, wire_text.STREAM_HEAD + wire_text.http_chunk(script.opening))
        connection.due = monotonic_ns()
        self._write_turn(connection)

    def _about(self, head: bytes) -> bytes:
        if b"/reset " in head:
            self.noticed.clear()
            return b"{}"
        if b"/models" in head:
            return MODELS
        streams = sum(1 for each in self.connections.values() if each.script is not None)
        about = {"noticed": self.noticed, "streams": streams, "started": self.started}
        return json.dumps(about).encode()

    def _write_due(self) -> None:
        timers = self.timers
        now = monotonic_ns()
        while timers and timers[0][0] <= now:
            connection = heapq.heappop(timers)[2]
            if connection.script is not None:
                self._write_turn(connection)

    def _write_turn(self, connection: Connection) -> None:
        """Write the chunk that is due, or up to ``TURN`` undelayed ones, and plan the next."""
        connection.queued = False
        script = connection.script
        if script is None or connection.blocked:
            return
        before, after = script.before, script.after
        size = b"%x\r\n" % (len(before) + 18 + len(after))
        for _ in range(1 if connection.gap else TURN):
            if connection.left == connection.silent_at:
                return
            if not connection.left:
                self._end(connection, script)
                return
            connection.left -= 1
            data = b"%b%b%018d%b\r\n" % (size, before, monotonic_ns(), after)
            if not self._send(connection, data):
                return
            if script is wire_text.CALL and not connection.left:
                # A held answer's latency counts from its last chunk, so the end comes with it.
                self._end(connection, script)
                return
        self._plan_next(connection)

    def _plan_next(self, connection: Connection) -> None:
        if not connection.gap:
            if not connection.queued:
                connection.queued = True
                self.ready.append(connection)
            return
        connection.due += connection.gap
        heapq.heappush(self.timers, (connection.due, next(self.order), connection))

    def _end(self, connection: Connection, script: Script) -> None:
        ending = script.ending_with_usage if connection.usage else script.ending
        connection.script = None
        connection.id = 0
        self._send(connection, wire_text.http_chunk(ending) + wire_text.LAST_CHUNK)

    def _send(self, connection: Connection, data: bytes) -> bool:
        """Send; False when the rest has to wait for the socket, or the client has gone."""
        try:
            sent = connection.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return False
        if sent == len(data):
            return True
        connection.outbox = data[sent:]
        connection.blocked = True
        self.epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLOUT)
        return False

    def _flush(self, connection: Connection) -> None:
        data, connection.outbox, connection.blocked = connection.outbox, b"", False
        self.epoll.modify(connection.fd, select.EPOLLIN | select.EPOLLRDHUP)
        if self._send(connection, data) and connection.script is not None:
            self._plan_next(connection)

    def _drop(self, connection: Connection) -> None:
        """Forget a client; one that left in mid-answer is noted with the time."""
        if self.connections.pop(connection.fd, None) is None:
            return
        if connection.script is not None:
            self.noticed.append((connection.id, monotonic_ns()))
            connection.script = None
        self.epoll.unregister(connection.fd)
        connection.sock.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--max-seconds", type=float, default=3600)
    options = parser.parse_args()
    if options.cpu >= 0:
        os.sched_setaffinity(0, {options.cpu})
    provider = FakeProvider(options.port)
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and a pause would be measured as latency
    provider.run(monotonic_ns() + int(options.max_seconds * 1e9))


if __name__ == "__main__":
    main()
