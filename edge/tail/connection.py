"""Follows runs of a gateway over its mirror, for as long as that makes sense.

    follow()          one connection after the other, with pauses that grow
      └─ _session()   one connection, from the handshake to its end, which is a value

The first connection must succeed: a mistyped address is told at once. A later one is tried again
until it is there, since gateways restart and laptops sleep. A connection on which nothing answers
a ping has ended, whatever the kernel believes.
"""

import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias
from urllib.parse import SplitResult, urlsplit

import orjson
import trio
from trio_websocket import (
    ConnectionClosed,
    ConnectionRejected,
    WebSocketConnection,
    wrap_client_stream,
)

from edge.tail.places import Frame, Places

OVER, NOT_ALLOWED, NO_SUCH_RUN, BROKEN = 1000, 1008, 4404, 1006
"""Close codes of the mirror, and that of a connection which just broke."""

_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses of a gateway that may accept the same handshake a moment later."""

_MAX_FRAME = 64 * 1024 * 1024
"""Longest frame in bytes: an answer that is not streamed comes in one."""


class CannotFollow(Exception):
    """Following has no use, or none any more; the message says why."""


class Watcher(Protocol):
    """Whoever is told."""

    def frame(self, text: str, frame: Frame) -> None:
        """A frame, as it came and read."""
        ...

    def lost(self, why: str, after_s: float) -> None:
        """The connection is gone; the next one is tried in so many seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is followed.

    Attributes:
        url: the gateway's, ``http://host:port``; a path, but for ``/v1``, is kept.
        run_id: the only run; None follows all.
        key: the client key, or empty.
        types: types of frames to ask for; empty asks for all.
    """

    url: str
    run_id: str | None = None
    key: str = ""
    types: tuple[str, ...] = ()

    @property
    def parts(self) -> SplitResult:
        """The address in parts.

        Raises:
            ValueError: it is no address of a gateway.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{self.url!r} is no address such as http://127.0.0.1:8080")
        _ = parts.port  # raises for one that is none
        return parts

    @property
    def resource(self) -> str:
        """Path and query of the mirror."""
        before = self.parts.path.rstrip("/").removesuffix("/v1")
        path = "/v1/mirror" if self.run_id is None else f"/v1/runs/{self.run_id}/mirror"
        return before + path + (f"?types={','.join(self.types)}" if self.types else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Times in seconds.

    Attributes:
        connect_s: for a connection and its handshake.
        first_s: pause before the first new try; it doubles with each, up to ``longest_s``.
        ping_every_s: how often an idle connection is asked whether it lives.
        pong_s: how long it may take to answer.
    """

    connect_s: float = 10.0
    first_s: float = 0.25
    longest_s: float = 8.0
    ping_every_s: float = 20.0
    pong_s: float = 20.0


@dataclass(frozen=True, slots=True)
class _Closed:
    code: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Refused:
    status: int
    why: str


@dataclass(frozen=True, slots=True)
class _Unreachable:
    why: str


_End: TypeAlias = _Closed | _Refused | _Unreachable


@dataclass(slots=True)
class Follower:
    """Tells a watcher every frame once.

    Args:
        target: what to follow.
        watcher: who is told; an OSError of its own ends the following.
        patience: how long to wait for what.
        jitter: gives numbers in [0, 1), so that many followers do not come back together.
    """

    target: Target
    watcher: Watcher
    patience: Patience = Patience()
    jitter: Callable[[], float] = random.random
    _places: Places = field(default_factory=Places)
    _tries: int = 0
    _connected: bool = False
    _finished: bool = False
    _failure: OSError | None = None

    async def follow(self) -> None:
        """Follow to the end of the one run, or until cancelled.

        Raises:
            CannotFollow: nobody answers, the key is refused, there is no such run…
            OSError: out of the watcher.
        """
        while True:
            end = await self._session()
            if self._failure is not None:
                raise self._failure
            if self._finished or (isinstance(end, _Closed) and end.code == OVER):
                return
            why = self._why_again(end)
            pause = min(self.patience.first_s * 2.0**self._tries, self.patience.longest_s)
            pause *= 0.5 + self.jitter() / 2
            self._tries += 1
            self.watcher.lost(why, pause)
            await trio.sleep(pause)

    def _why_again(self, end: _End) -> str:
        """Why the connection ended, in words; raises where another one would end as well."""
        match end:
            case _Closed(code=code, reason=reason) if code == NO_SUCH_RUN and self._connected:
                raise CannotFollow(f"the run cannot be followed any more: {reason}")
            case _Closed(code=code, reason=reason) if code in (NOT_ALLOWED, NO_SUCH_RUN):
                raise CannotFollow(reason or f"the gateway closed with {code}")
            case _Refused(status=status, why=why) if status not in _LATER:
                raise CannotFollow(why)
            case _Unreachable(why=why) | _Refused(why=why) if not self._connected:
                raise CannotFollow(why)
            case _Closed(code=code, reason=reason):
                return reason or ("the connection broke" if code == BROKEN else f"closed ({code})")
            case _Unreachable(why=why) | _Refused(why=why):
                return why

    async def _session(self) -> _End:
        """One connection, from its beginning to its end."""
        try:
            with trio.fail_after(self.patience.connect_s):
                stream = await self._open_stream()
        except trio.TooSlowError:
            return _Unreachable(f"{self.target.url} does not answer")
        except (OSError, trio.BrokenResourceError) as error:
            return _Unreachable(f"{self.target.url} cannot be reached: {error}")
        try:
            return await self._over(stream)
        finally:
            # Without a farewell: the gateway sees the end of the connection at once.
            await trio.aclose_forcefully(stream)

    async def _open_stream(self) -> trio.SocketStream | trio.SSLStream[trio.SocketStream]:
        parts = self.target.parts
        host = parts.hostname or ""
        if parts.scheme == "http":
            return await trio.open_tcp_stream(host, parts.port or 80)
        stream = await trio.open_ssl_over_tcp_stream(
            host, parts.port or 443, ssl_context=ssl.create_default_context(), https_compatible=True
        )
        try:
            await stream.do_handshake()
        except trio.BrokenResourceError as error:
            await trio.aclose_forcefully(stream)
            raise OSError(str(error.__cause__ or error)) from error
        return stream

    async def _over(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> _End:
        end: _End = _Unreachable(f"{self.target.url} does not answer as a gateway")
        key = self.target.key.encode()
        try:
            async with trio.open_nursery() as nursery:
                with trio.CancelScope(
                    deadline=trio.current_time() + self.patience.connect_s
                ) as handshake:
                    connection = await wrap_client_stream(
                        nursery,
                        stream,
                        self.target.parts.netloc.rpartition("@")[2],
                        self.target.resource,
                        extra_headers=[(b"authorization", b"Bearer " + key)] if key else [],
                        max_message_size=_MAX_FRAME,
                    )
                if not handshake.cancelled_caught:
                    nursery.start_soon(self._watch_over, connection, nursery.cancel_scope)
                    end = _Closed(BROKEN, "the gateway answers no ping any more")
                    end = await self._listen(connection)
                nursery.cancel_scope.cancel()
        except* ConnectionRejected as group:
            end = _refused(group, self.target.url)
        return end

    async def _listen(self, connection: WebSocketConnection) -> _End:
        while self._failure is None:
            try:
                message = await connection.get_message()
            except ConnectionClosed as closed:
                if closed.reason is None:
                    return _Closed(BROKEN)
                return _Closed(int(closed.reason.code), str(closed.reason.reason or ""))
            self._take(message if isinstance(message, str) else message.decode())
        return _Closed(BROKEN)

    def _take(self, text: str) -> None:
        self._connected, self._tries = True, 0
        came: Frame = orjson.loads(text)
        frame = self._places.admit(came)
        if frame is None:
            return
        try:
            self.watcher.frame(text if frame is came else orjson.dumps(frame).decode(), frame)
        except OSError as error:
            self._failure = error
        if self.target.run_id is not None and frame.get("type") == "run.finished":
            self._finished = True

    async def _watch_over(self, connection: WebSocketConnection, scope: trio.CancelScope) -> None:
        """End the connection when it has died without a word."""
        try:
            while True:
                await trio.sleep(self.patience.ping_every_s)
                with trio.fail_after(self.patience.pong_s):
                    await connection.ping()
        except trio.TooSlowError:
            scope.cancel()
        except ConnectionClosed:
            return  # whoever listens hears of it


def _refused(group: BaseExceptionGroup[ConnectionRejected], url: str) -> _Refused:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, ConnectionRejected)  # noqa: S101 - what the group was caught by
    try:
        told = orjson.loads(error.body or b"")["error"]["message"]
    except (ValueError, TypeError, KeyError):
        told = "is there a gateway?"
    return _Refused(error.status_code, f"{url} answers {error.status_code}: {told}")
