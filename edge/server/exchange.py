"""One request and its answer on a client's connection, and what handlers see of it.

:class:`GatewayRequest` is the request as the gateway's own handlers take it, whichever way they
were reached: straight from the connection, or through a Quart view. :class:`Exchange` joins it to
its :class:`~edge.server.client_reply.ClientReply` and to the cancel scope that a give-up cancels,
and speaks ASGI to Quart.

Towards Quart there is never an ``http.disconnect``: a give-up arrives as cancellation, in the
handler and in whatever it awaits. That holds for every Quart alike, and leaves none of the error
logs and exceptions some of them make of a disconnect.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote_to_bytes

import trio

from edge.errors import GatewayFault
from edge.server.client_reply import ClientReply, SocketWriter
from edge.server.limits import ServerLimits
from edge.server.protocol import HeaderList, IncomingRequest

EXTENSION = "edge.exchange"
"""Where an ASGI scope of ours carries its exchange, below ``extensions``."""

Address: TypeAlias = tuple[str, int] | None


MAX_REQUEST_ID = 200


def new_request_id() -> str:
    """An id for a request whose client gave none."""
    return f"req_{secrets.token_hex(12)}"


class Headers:
    """Request headers: read by name, whatever its case; ``raw`` keeps order and repetition."""

    __slots__ = ("_fields", "raw")

    def __init__(self, raw: HeaderList, fields: Mapping[bytes, bytes] | None = None) -> None:
        self.raw = raw
        self._fields = dict(raw) if fields is None else fields

    def get(self, name: str, default: str | None = None) -> str | None:
        """The value of a header as latin-1 text; of a repeated one the last."""
        value = self._fields.get(name.lower().encode("latin-1"))
        return default if value is None else value.decode("latin-1")

    def get_all(self, name: str) -> list[str]:
        """Every value of a repeated header, in order."""
        key = name.lower().encode("latin-1")
        return [value.decode("latin-1") for found, value in self.raw if found == key]

    def __getitem__(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return name.lower().encode("latin-1") in self._fields

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._fields)


class GatewayRequest:
    """A request as handlers take it.

    Attributes:
        method: in upper case.
        path: decoded, without the query.
        query_string: as sent, without the question mark.
        headers: see :class:`Headers`.
        client: the peer's address and port; None for a local socket.
        scope: the ASGI scope, where the request came through Quart; else empty.
        on_give_up: called at the moment when the client is found to have gone.
    """

    __slots__ = (
        "_body",
        "_request_id",
        "client",
        "headers",
        "method",
        "on_give_up",
        "path",
        "query_string",
        "scope",
    )

    def __init__(
        self,
        method: str,
        path: str,
        query_string: bytes,
        headers: Headers,
        *,
        client: Address,
        body: Callable[[], Awaitable[bytes]],
        scope: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        self.path = path
        self.query_string = query_string
        self.headers = headers
        self.client = client
        self.scope: Mapping[str, Any] = {} if scope is None else scope
        self.on_give_up: Callable[[], None] | None = None
        self._body = body
        self._request_id = ""

    @property
    def request_id(self) -> str:
        """The answer's ``x-request-id``: the client's own, if it is printable, else ours."""
        if not self._request_id:
            given = self.headers.get("x-request-id") or ""
            fit = len(given) <= MAX_REQUEST_ID and given.isascii() and given.isprintable()
            self._request_id = (given if fit else "") or new_request_id()
        return self._request_id

    def part(self) -> None:
        """The answer is over; there is no body to read any more."""
        self._body = _no_body
        self.scope = {}

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            RequestTooLarge: it is longer than ``max_body_bytes``.
            RequestTimeout: it did not arrive within ``body_timeout_s``.
        """
        return await self._body()


class Connection(Protocol):
    """What an exchange needs to know of the connection it is on."""

    peer: Address
    limits: ServerLimits
    writer: SocketWriter

    @property
    def local_address(self) -> Address:
        """Our own end; None for a local socket."""
        ...


async def _no_body() -> bytes:
    raise GatewayFault("The body of a request that was answered cannot be read.")


class Exchange:
    """One request and its answer.

    Attributes:
        scope: cancelled when the client gives up.
    """

    __slots__ = (
        "_body_given",
        "_connection",
        "incoming",
        "reply",
        "request",
        "scope",
    )

    def __init__(
        self, connection: Connection, incoming: IncomingRequest, reply: ClientReply
    ) -> None:
        self.incoming = incoming
        self.reply = reply
        self.scope = trio.CancelScope()
        self._connection = connection
        self._body_given = False
        path, query_string = split_target(incoming.target)
        self.request = GatewayRequest(
            incoming.method,
            path,
            query_string,
            Headers(incoming.headers, incoming.fields),
            client=connection.peer,
            body=self.body,
        )

    def part(self) -> None:
        """Undo that request, reply and exchange know each other; for an exchange that is over."""
        self.request.part()
        self.reply.part()

    async def body(self) -> bytes:
        """See :meth:`GatewayRequest.body`."""
        if self.incoming.expects_continue and not self.reply.started:
            self._connection.writer.write_nowait(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await self.incoming.body(self._connection.limits.body_timeout_s)

    def asgi_scope(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """The ASGI scope of the request."""
        request = self.request
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": self.incoming.http_version,
            "method": request.method,
            "scheme": "http",
            "path": request.path,
            "raw_path": self.incoming.target.partition(b"?")[0],
            "query_string": request.query_string,
            "root_path": "",
            "headers": request.headers.raw,
            "client": request.client,
            "server": self._connection.local_address,
            "state": dict(state),
            "extensions": {EXTENSION: self},
        }

    async def receive(self) -> dict[str, Any]:
        """ASGI: the whole body in one message, then nothing."""
        if self._body_given:
            await trio.sleep_forever()
        self._body_given = True
        return {"type": "http.request", "body": await self.body(), "more_body": False}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI: the answer."""
        if message["type"] == "http.response.start":
            await self._start(message)
        elif message["type"] == "http.response.body":
            body = message.get("body", b"")
            if message.get("more_body", False):
                await self.reply.write(body)
            else:
                await self.reply.finish(body)

    async def _start(self, message: MutableMapping[str, Any]) -> None:
        headers = [(name.lower(), value) for name, value in message.get("headers", ())]
        length = dict(headers).get(b"content-length")
        await self.reply.start(
            message["status"],
            headers,
            content_length=None if length is None else int(length),
        )


def split_target(target: bytes) -> tuple[str, bytes]:
    """Path (decoded) and query of a request target, in origin or absolute form."""
    path, _, query = target.partition(b"?")
    if not path.startswith(b"/"):
        _, scheme_end, rest = path.partition(b"://")
        path = b"/" + rest.partition(b"/")[2] if scheme_end else path
    if b"%" in path:
        path = unquote_to_bytes(path)
    return path.decode("utf-8", "replace"), query
