"""Requests to one provider over HTTP/1.1: a pool of connections and the exchange of a request.

    transport = Transport("http://127.0.0.1:8000/v1", name="gpu1")
    async with transport.request("POST", "/chat/completions", headers, body) as answer:
        while data := await answer.receive():
            ...

The pool is a stack of idle connections and a few counters; nothing in it is locked, awaited or
searched, so that a request costs the same whatever the number of connections. The most recently
used one is taken first. One that has been idle for too long is closed when the pool is next used
(there is no task for it); one that the provider has closed meanwhile is noticed by a look at its
socket. If it closes just then, and not a byte of an answer came, the request goes out once more, on
a new connection.

A connection belongs to the pool or to exactly one exchange. Leaving the ``async with`` gives it
back if the answer has come to its end, and otherwise closes it at once, before anything else is
awaited: that is how a model server is told to stop. An interrupted connection is never reused. How
many requests run at a time is not decided here (slots are the dispatcher's), only how many
connections are kept idle.

All failures are ``ProviderError``s, which name the provider as it is configured and no address.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import trio

from edge.errors import (
    GatewayFault,
    ProviderProtocolError,
    ProviderTimeout,
    ProviderUnreachable,
)
from edge.providers.connection import Connection
from edge.providers.dial import Dial, Dialer
from edge.providers.origin import Origin
from edge.providers.proxy import Proxy
from edge.providers.tls import tls_context
from edge.providers.watch import Watch

HOP_BY_HOP: Final = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
"""Fields that speak of one connection (RFC 9110 section 7.6.1); they never travel."""

_OURS: Final = HOP_BY_HOP | {b"accept-encoding", b"content-length", b"expect", b"host"}
"""Header fields that belong to this connection; a caller's are left out."""

_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH"))
_FEW: Final = 2
"""An answer of so few reads is not worth being watched: that begins and ends with a system call."""

_TARGET: Final = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportLimits:
    """How connections to a provider are made and kept.

    Attributes:
        connect_timeout_s: for name look-up, TCP, proxy and TLS together.
        max_idle: connections kept for later; more are closed after their answer.
        idle_expiry_s: how long they are kept. Below the keep-alive time of most servers.
        max_header_bytes: of an answer's head.
        ca_file: PEM file of trusted authorities; empty for the system's.
        verify: whether certificates are checked.
        proxy: ``http://[user:password@]host:port``; empty for none.
    """

    connect_timeout_s: float = 5.0
    max_idle: int = 256
    idle_expiry_s: float = 55.0
    max_header_bytes: int = 65536
    ca_file: str = ""
    verify: bool = True
    proxy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportStatistics:
    """A look at the pool.

    Attributes:
        idle, leased, connecting: connections now.
        opened, reused, stale: since the start: new connections, requests on a used one, and used
            ones that turned out to be closed by the provider.
    """

    idle: int
    leased: int
    connecting: int
    opened: int
    reused: int
    stale: int

    @property
    def open(self) -> int:
        """Connections that hold a socket."""
        return self.idle + self.leased


class Transport:
    """The connections to one provider."""

    def __init__(
        self,
        base_url: str,
        limits: TransportLimits | None = None,
        *,
        name: str = "provider",
        dial: Dial | None = None,
        watch: Watch | None = None,
        now: Callable[[], float] = trio.current_time,
    ) -> None:
        """Take the address apart; nothing is opened yet.

        Args:
            base_url: ``http(s)://host[:port][/path]``; request paths are appended to it.
            limits: see there.
            name: the provider's configured name, for error messages.
            dial: makes connections; another one for tests.
            watch: reads answers that come in many pieces; without it their readers do.
            now: the clock of idle connections, seconds.

        Raises:
            ValueError: the base URL, the proxy or the CA file is of no use.
        """
        self.name = name
        self._limits = limits or TransportLimits()
        self._origin = Origin.parse(base_url)
        self._dial = dial or self._dialer(watch)
        self._now = now
        self._common_head = (
            f"host: {self._origin.host_header}\r\naccept-encoding: identity\r\n".encode("ascii")
        )
        self._idle: deque[Connection] = deque()  # the longest idle one first
        self._leased = self._connecting = 0
        self._opened = self._reused = self._stale = 0
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        headers: Sequence[tuple[bytes, bytes]] = (),
        body: bytes = b"",
    ) -> "Exchange":
        """Prepare a request; entering what is returned sends it.

        Host, framing, connection and ``accept-encoding: identity`` are set here; what ``headers``
        holds of these is left out.

        Raises:
            GatewayFault: a header holds a line break.
        """
        return Exchange(self, method, self._head(method, path, headers, body), body)

    def statistics(self) -> TransportStatistics:
        """Counts of now and since the start."""
        return TransportStatistics(
            idle=len(self._idle),
            leased=self._leased,
            connecting=self._connecting,
            opened=self._opened,
            reused=self._reused,
            stale=self._stale,
        )

    async def aclose(self) -> None:
        """Close idle connections, and from now on every one when its exchange ends.

        What has begun may still ask: a run that goes on with a configuration that was replaced.
        """
        self._closed = True
        while self._idle:
            self._idle.pop().close()
        await trio.lowlevel.checkpoint()

    def _dialer(self, watch: Watch | None) -> Dialer:
        limits = self._limits
        secure = self._origin.secure
        return Dialer(
            self._origin,
            name=self.name,
            context=tls_context(limits.ca_file, verify=limits.verify) if secure else None,
            proxy=Proxy.parse(limits.proxy) if limits.proxy else None,
            max_head_bytes=limits.max_header_bytes,
            watch=watch,
        )

    def _head(
        self, method: str, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> bytes:
        target = self._origin.base_path + path
        if not _TARGET.fullmatch(target):
            target = quote(target, safe="/?&=%:@!$'()*+,;~-._[]")
        lines = [b"%b: %b" % field for field in headers if field[0].lower() not in _OURS]
        lines.append(b"")
        fields = b"\r\n".join(lines)
        if fields.count(b"\n") != len(lines) - 1 or fields.count(b"\r") != len(lines) - 1:
            raise GatewayFault("a header for a provider holds a line break")
        framing = b""
        if body or method in _WITH_BODY:
            framing = b"content-length: %d\r\n" % len(body)
        start = f"{method} {target or '/'} HTTP/1.1\r\n".encode("ascii")
        return b"".join((start, self._common_head, fields, framing, b"\r\n"))

    # The pool. Every connection that leaves it comes back through _give_back, once.

    def _take_idle(self) -> Connection | None:
        """The most recently used connection that is alive; it is leased from here on."""
        idle = self._idle
        oldest = self._now() - self._limits.idle_expiry_s
        while idle:
            connection = idle.pop()
            if connection.idle_since < oldest:
                connection.close()  # so are all the others: they are older
            elif connection.is_quiet():
                self._leased += 1
                self._reused += 1
                return connection
            else:
                self._stale += 1
                connection.close()
        return None

    async def _connect(self) -> Connection:
        """A new connection; it is leased from here on."""
        deadline_s = self._limits.connect_timeout_s
        self._connecting += 1
        try:
            with trio.move_on_after(deadline_s):
                channel = await self._dial()
                self._opened += 1
                self._leased += 1
                return Connection(channel, self._limits.max_header_bytes)
        finally:
            self._connecting -= 1
        raise ProviderTimeout(
            f"provider {self.name!r} did not accept a connection within {deadline_s:g} s",
            provider=self.name,
        )

    def _give_back(self, connection: Connection) -> None:
        """End a lease: keep the connection if its answer has ended soundly, else hang up."""
        self._leased -= 1
        if self._closed or not connection.is_reusable():
            connection.close()
            return
        now = connection.idle_since = self._now()
        idle = self._idle
        idle.append(connection)
        oldest = now - self._limits.idle_expiry_s
        while idle and (len(idle) > self._limits.max_idle or idle[0].idle_since < oldest):
            idle.popleft().close()


class Exchange:
    """One request and its answer; an async context manager that may be entered once.

    Attributes:
        status: of the final answer, redirects and errors included.
        headers: in the order they came, names in lower case.
    """

    __slots__ = (
        "_body",
        "_connection",
        "_head",
        "_method",
        "_transport",
        "_waits",
        "headers",
        "status",
    )

    def __init__(self, transport: Transport, method: str, head: bytes, body: bytes) -> None:
        self._transport = transport
        self._method = method
        self._head = head
        self._body = body
        self._connection: Connection | None = None
        self._waits = 0
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []

    async def __aenter__(self) -> Self:
        """Connect if need be, send, and wait for the answer's head.

        Raises:
            ProviderUnreachable: no connection, or it was closed before a byte of an answer came.
            ProviderTimeout: no connection within ``connect_timeout_s``.
            ProviderProtocolError: what came is no HTTP/1.1 head.
        """
        transport = self._transport
        used = transport._take_idle()
        if used is not None and await self._ask(used):
            return self
        if used is not None:
            transport._stale += 1
        if not await self._ask(await transport._connect()):
            raise ProviderUnreachable(
                f"provider {transport.name!r} closed the connection before it answered",
                provider=transport.name,
            )
        return self

    async def receive(self) -> bytes:
        """What one read brings of the body; empty at its end.

        Raises:
            ProviderProtocolError: the framing is broken, or the body stopped before its end. What
                came before that has been returned.
        """
        connection = self._connection
        if connection is None:
            raise RuntimeError("an exchange is only read inside its async with")
        parser = connection.parser
        while True:
            if data := parser.take():
                return data
            if parser.fault is not None:
                raise self._protocol_error(parser.fault)
            if parser.complete:
                return b""
            await connection.read()

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        """As :meth:`edge.providers.port.ByteStream.receive_each`, behind a :meth:`receive`."""
        connection = self._connection
        self._waits += 1
        if self._waits > _FEW and connection is not None and connection.parser.is_under_way:
            await connection.read_each(take)

    @property
    def ended(self) -> bool:
        """Whether the body has come to its end, and all of it has been received."""
        connection = self._connection
        return connection is None or (connection.parser.complete and not connection.parser.pending)

    def header(self, name: bytes) -> bytes | None:
        """The first field of a (lower-case) name."""
        return next((value for field, value in self.headers if field == name), None)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """See :meth:`close`."""
        self._let_go()

    def close(self) -> None:
        """Give the connection back, or hang up, before anything else happens."""
        self._let_go()

    async def _ask(self, connection: Connection) -> bool:
        """Put the request to a leased connection; False if it may be put to another one."""
        self._connection = connection
        try:
            answered = await connection.ask(self._method, self._head, self._body)
            parser = connection.parser
            if answered and not parser.head_done:
                raise self._protocol_error(parser.fault or "sent no head")
        except BaseException:
            self._let_go()
            raise
        if not answered:
            self._let_go()
            return False
        self.status = parser.status
        self.headers = parser.headers
        return True

    def _let_go(self) -> None:
        connection = self._connection
        if connection is not None:
            self._connection = None
            self._transport._give_back(connection)

    def _protocol_error(self, fault: str) -> ProviderProtocolError:
        name = self._transport.name
        return ProviderProtocolError(f"provider {name!r} {fault}", provider=name)
