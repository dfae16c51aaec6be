"""Many clients in one epoll loop, kept as light as Python can be.

Each client is a closed loop: it sends a request, reads the answer to its end and sends the next
over the same connection. Answers are not parsed, only scanned. A chunk is an ``@``, a byte that
cannot be cut in two, and its stamp is the provider's clock at the write (see ``wire_text``). An
answer ends with the last HTTP chunk or its content-length.
"""

import json
import select
import socket
import sys
from array import array
from dataclasses import dataclass, field, replace
from time import monotonic_ns

from benchmarks import wire_text
from benchmarks.processes import pause
from benchmarks.wire_text import STAMP_LEN, Plan

END = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """What to ask, of whom and how often."""

    port: int
    model: str
    concurrency: int
    seconds: float
    plan: Plan
    stream: bool = True
    tools: bool = False
    held: bool = False
    leave_after: int = -1
    leave_ms: int = -1
    count: int = 1_000_000
    ramp_s: float = 0.0
    drain_s: float = 3.0


@dataclass(slots=True)
class Tally:
    """What was seen; times in nanoseconds."""

    added: "array[int]" = field(default_factory=lambda: array("q"))
    first: "array[int]" = field(default_factory=lambda: array("q"))
    total: "array[int]" = field(default_factory=lambda: array("q"))
    left: dict[int, int] = field(default_factory=dict)
    started: int = 0
    finished: int = 0
    finished_in_time: int = 0
    chunks: int = 0
    chunks_in_time: int = 0
    failed: int = 0
    unfinished: int = 0
    stale: int = 0  # kept connections that were closed before a byte of the next answer came
    first_error: str = ""

    def fail(self, what: str) -> None:
        """Count a failure and keep the words of the first."""
        self.failed += 1
        self.first_error = self.first_error or what[:300]


class Client:
    """One client of the closed loop."""

    __slots__ = (
        "body_left", "chunks", "cut", "end", "fd", "head", "id", "sent_at", "sock", "used",
    )  # fmt: skip

    def __init__(self) -> None:
        self.sock: socket.socket | None = None
        self.fd = -1
        self.used = False  # whether its connection has brought an answer
        self.begin(0)

    def begin(self, ident: int) -> None:
        """Forget the last answer and await the one to request ``ident``."""
        self.id = ident  # 0: no answer is awaited
        self.head: bytes | None = b""  # the head while it is incomplete
        self.body_left = -1  # bytes missing, where a content-length was given
        self.chunks = 0
        self.sent_at = 0
        self.cut = b""  # a stamp whose end has not come yet
        self.end = b""  # the last few bytes


class Load:
    """The loop."""

    def __init__(self, plan: LoadPlan) -> None:
        self.plan = plan
        self.tally = Tally()
        self.epoll = select.epoll()
        self.by_fd: dict[int, Client] = {}
        self.clients = [Client() for _ in range(plan.concurrency)]
        self.next_id = monotonic_ns() // 1000
        self.window = (0, 0)
        self.open = 0

    def run(self) -> None:
        """Load until the time is over and every open answer has ended, or the drain time too."""
        begin = monotonic_ns()
        ramp = int(self.plan.ramp_s * 1e9)
        stop = begin + ramp + int(self.plan.seconds * 1e9)
        self.window = (begin + ramp, stop)
        waiting = self.clients[::-1]
        step = ramp // len(waiting)
        while (now := monotonic_ns()) < stop + int(self.plan.drain_s * 1e9):
            while waiting and now >= begin + (len(self.clients) - len(waiting)) * step:
                self._request(waiting.pop())
            if not self.open and self._over(now):
                return
            self._poll(0.001 if waiting or self.plan.leave_ms >= 0 else 0.05)
            if self.plan.leave_ms >= 0:
                self._leave_by_time()
        self.tally.unfinished = self.open

    def hold(self) -> None:
        """Open every stream, wait for its first chunk, say so, keep it until stdin ends."""
        until = monotonic_ns() + int(self.plan.seconds * 1e9)
        self.window = (0, until)
        for client in self.clients:
            self._request(client)
        while monotonic_ns() < until and not all(client.chunks for client in self.clients):
            self._poll(0.05)
        held = self.plan.held  # nothing is shown of a held answer; that it is awaited must do
        opened = self.open if held else sum(1 for client in self.clients if client.chunks)
        print(json.dumps({"open": opened, "first_error": self.tally.first_error}), flush=True)
        sys.stdin.read()

    def _over(self, now: int) -> bool:
        return now >= self.window[1] or self.tally.started >= self.plan.count

    def _poll(self, wait_s: float) -> None:
        by_fd, read = self.by_fd, self._read
        for fd, _ in self.epoll.poll(wait_s):
            client = by_fd.get(fd)
            if client is not None:
                read(client)

    def _request(self, client: Client) -> None:
        """Send the client's next request, unless the load is over."""
        plan = self.plan
        if self._over(monotonic_ns()):
            return
        if client.sock is None:
            self._connect(client)
        self.next_id += 1
        self.tally.started += 1
        self.open += 1
        client.begin(self.next_id)
        body = wire_text.request_body(
            plan.model, replace(plan.plan, id=client.id), stream=plan.stream, tools=plan.tools
        )
        head = (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n"
        ) % (plan.port, len(body))
        client.sent_at = monotonic_ns()
        try:
            client.sock.send(head + body)  # type: ignore[union-attr]  # connected above
        except OSError as error:
            self._fail(client, f"send: {error}")

    def _connect(self, client: Client) -> None:
        sock = socket.create_connection(("127.0.0.1", self.plan.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        client.sock, client.fd, client.used = sock, sock.fileno(), False
        self.by_fd[client.fd] = client
        self.epoll.register(client.fd, select.EPOLLIN | select.EPOLLRDHUP)

    def _close(self, client: Client) -> None:
        """Close the client's connection and forget what it awaited."""
        if client.sock is not None:
            del self.by_fd[client.fd]
            self.epoll.unregister(client.fd)
            client.sock.close()
            client.sock = None
        self.open -= bool(client.id)
        client.id = 0

    def _fail(self, client: Client, what: str) -> None:
        self.tally.fail(what)
        self._close(client)
        pause(0.001)  # a server that refuses everything must not turn this into a storm
        self._request(client)

    def _stale(self, client: Client) -> None:
        """A server may close a kept connection at any time; clients then ask again."""
        self.tally.stale += 1
        self.tally.started -= 1
        self._close(client)
        self._request(client)

    def _read(self, client: Client) -> None:
        try:
            data = client.sock.recv(262144)  # type: ignore[union-attr]  # it is in by_fd
        except BlockingIOError:
            return
        except OSError:
            data = b""
        now = monotonic_ns()
        if not client.id:
            self._close(client)  # an idle connection was closed, which a server may do
        elif not data and client.used and client.head == b"":
            self._stale(client)
        elif not data:
            self._fail(client, "the connection was closed in mid-answer")
        elif client.head is None:
            self._body(client, data, now)
        else:
            self._head(client, client.head + data, now)

    def _head(self, client: Client, data: bytes, now: int) -> None:
        head, found, body = data.partition(b"\r\n\r\n")
        if not found:
            client.head = data
            return
        client.head = None
        if head[9:12] != b"200":
            self._fail(client, f"{head[:40]!r} {body[:200]!r}")
            return
        at = head.lower().find(b"content-length:")
        if at >= 0:
            client.body_left = int(head[at + 15 :].split(b"\r\n", 1)[0])
        if body:
            self._body(client, body, now)

    def _body(self, client: Client, data: bytes, now: int) -> None:
        count = data.count(b"@")
        if count:
            self._chunks(client, count, now)
        if self.plan.plan.gap_us or not self.plan.stream:
            self._latencies(client, data, now)
        if 0 < self.plan.leave_after <= client.chunks:
            self._leave(client)
            return
        if client.body_left >= 0:
            client.body_left -= len(data)
            if client.body_left <= 0:
                self._finished(client, now)
            return
        client.end = (client.end + data[-len(END) :])[-len(END) :]
        if client.end == END:
            self._finished(client, now)

    def _chunks(self, client: Client, count: int, now: int) -> None:
        tally = self.tally
        if not client.chunks:
            tally.first.append(now - client.sent_at)
        client.chunks += count
        tally.chunks += count
        if self.window[0] <= now < self.window[1]:
            tally.chunks_in_time += count

    def _latencies(self, client: Client, data: bytes, now: int) -> None:
        """Note how old each stamp is (of a held answer: the last one)."""
        data = client.cut + data
        client.cut = b""
        at = data.rfind(b"@") if self.plan.held else data.find(b"@")
        while at >= 0:
            digits = data[at + 1 : at + STAMP_LEN]
            if digits.isdigit() and len(digits) == STAMP_LEN - 1:
                self.tally.added.append(now - int(digits))
            elif at + STAMP_LEN > len(data):
                client.cut = data[at:]
            at = -1 if self.plan.held else data.find(b"@", at + 1)

    def _finished(self, client: Client, now: int) -> None:
        tally = self.tally
        wanted = self.plan.plan.chunks if self.plan.stream else 1
        if client.chunks != wanted:
            self._fail(client, f"{client.chunks} chunks instead of {wanted}")
            return
        tally.finished += 1
        tally.total.append(now - client.sent_at)
        if self.window[0] <= now < self.window[1]:
            tally.finished_in_time += 1
        self.open -= 1
        client.id = 0
        client.used = True
        self._request(client)

    def _leave(self, client: Client) -> None:
        ident = client.id
        self._close(client)
        self.tally.left[ident] = monotonic_ns()
        self._request(client)

    def _leave_by_time(self) -> None:
        before = monotonic_ns() - self.plan.leave_ms * 1_000_000
        for client in self.clients:
            if client.id and client.sent_at <= before:
                self._leave(client)
