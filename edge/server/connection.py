"""How the gateway's views meet the clients' connections.

A view answers in one of two ways. An ordinary one returns what any Quart view returns. One that
writes its own answer returns a :class:`RunResponse`: its ``carry`` gets the
:class:`~edge.runs.reply.Reply` and runs in the request's own task, so that the status line can
wait for the first byte, nurseries and cancel scopes are at home, and a client that leaves cancels
it at whatever await it is.

Handlers named in a dispatch table (``direct`` of :func:`edge.server.listener.serve`) are called
with the :class:`~edge.server.exchange.GatewayRequest` straight from the connection and return such
a ``carry``; Quart's contexts, hooks, responses and routing are for everything else. A handler can
serve both ways: in a view, :meth:`gateway_request` gives the same object.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import trio
from quart import Request, Response
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection, TrioASGIWebsocketConnection
from quart_trio.wrappers import TrioResponse
from werkzeug.datastructures import Headers as WireHeaders
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.routing import RequestRedirect

from edge.errors import (
    EdgeError,
    GatewayFault,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RequestTimeout,
    RequestTooLarge,
    forget_frames,
)
from edge.runs.reply import Reply
from edge.server.client_socket import intake_of
from edge.server.error_exit import error_response
from edge.server.exchange import EXTENSION, Exchange, GatewayRequest, Headers

__all__ = [
    "Carry",
    "DirectHandler",
    "DirectRoutes",
    "GatewayRequest",
    "Headers",
    "RunResponse",
    "carry_out",
    "gateway_request",
    "prepare",
    "read_body",
]

log = logging.getLogger("edge.server")


Carry: TypeAlias = Callable[[Reply], Awaitable[None]]
"""Starts, writes and finishes the reply it is given."""


class RunResponse(TrioResponse):
    """A response that writes itself.

    Args:
        carry: writes it. Headers set on the response object by hooks are not sent; what is sent is
            what ``carry`` sends.
    """

    def __init__(self, carry: Carry) -> None:
        super().__init__()
        self.carry = carry
        self.timeout = None


DirectHandler: TypeAlias = Callable[[GatewayRequest], Awaitable[Carry]]
DirectRoutes: TypeAlias = Mapping[tuple[str, str], DirectHandler]
"""Handlers by method and exact path."""


async def carry_out(carry: Carry, reply: Reply) -> None:
    """Let an answer be written, and end what was left open.

    Raises:
        GatewayFault: it wrote nothing.
    """
    await carry(reply)
    if not reply.started:
        raise GatewayFault("The gateway gave no answer to this request.")
    await reply.finish()


class GatewayHTTPConnection(TrioASGIHTTPConnection):
    """Quart's side of one request."""

    async def handle_messages(  # type: ignore[override]
        self, nursery: Any, request: Any, receive: Any
    ) -> None:
        """Give the view its body, or the error that takes its place."""
        exchange = exchange_of(self.scope)
        if exchange is None:
            await super().handle_messages(nursery, request, receive)
            return
        try:
            request.body.set_result(await exchange.body())
        except EdgeError as error:
            forget_frames(error)  # among them is this one, which knows the request
            # What Quart itself does for a body that is too long: whoever reads it, gets this.
            request.body._must_raise = error
            request.body.set_complete()

    async def _send_response(self, send: Any, response: Any) -> None:
        if isinstance(response, RunResponse):
            exchange = exchange_of(self.scope)
            reply: Reply = AsgiReply(send) if exchange is None else exchange.reply
            await carry_out(response.carry, reply)
        else:
            await super()._send_response(send, response)


class GatewayWebsocketConnection(TrioASGIWebsocketConnection):
    """Quart's side of one WebSocket."""

    async def __call__(self, receive: Any, send: Any) -> None:
        """Serve it until it is closed; a client that leaves cancels its view.

        It gives way before each message: to a client that has left, hypercorn's send returns
        without waiting for anything; a view that only sends would never learn of it, and stop the
        whole process. And it reads no more than the view takes (see
        :mod:`edge.server.client_socket`).
        """
        life = trio.CancelScope()
        intake = intake_of(self.scope)

        async def receive_or_end() -> Any:
            if intake is not None:
                await intake.room()
            message = await receive()
            if message["type"] == "websocket.disconnect":
                if intake is not None and intake.on_give_up is not None:
                    intake.on_give_up()
                life.cancel(reason="the client has gone")
                await trio.sleep_forever()
            if message["type"] == "websocket.receive" and intake is not None:
                intake.came()
            return message

        async def send_and_give_way(message: Any) -> None:
            await trio.lowlevel.checkpoint()
            await send(message)

        try:
            with life:
                await self._speak(receive_or_end, send_and_give_way, life)
        finally:
            if intake is not None:
                intake.on_give_up = None  # it knows the view, which knows the scope

    async def _speak(self, receive: Any, send: Any, life: trio.CancelScope) -> None:
        try:
            await super().__call__(receive, send)
        except BaseException as error:
            if life.cancel_called:
                forget_frames(error)
            raise


class AsgiReply:
    """A :class:`~edge.runs.reply.Reply` over plain ASGI: Quart's test client, or another server."""

    def __init__(self, send: Callable[[Any], Awaitable[None]]) -> None:
        self._send = send
        self._waiting = b""
        self._finished = False
        self.started = False

    async def start(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        content_length: int | None = None,
    ) -> None:
        """Send the head."""
        fields = list(headers)
        if content_length is not None:
            fields.append((b"content-length", b"%d" % content_length))
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": fields})

    async def write(self, data: bytes) -> None:
        """Send body bytes."""
        data, self._waiting = self._waiting + data, b""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def write_now(self, data: bytes) -> bool:
        """ASGI sends nothing without a wait."""
        self._waiting += data
        return False

    async def finish(self, data: bytes = b"") -> None:
        """Send the last body bytes and end the body."""
        if not self._finished:
            self._finished = True
            data, self._waiting = self._waiting + data, b""
            await self._send({"type": "http.response.body", "body": data, "more_body": False})


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    """The exchange behind an ASGI scope; None where another server made the scope."""
    exchange = (scope.get("extensions") or {}).get(EXTENSION)
    return exchange if isinstance(exchange, Exchange) else None


def gateway_request(request: Request) -> GatewayRequest:
    """The request of a Quart view, as the gateway's handlers take it."""
    scope: Mapping[str, Any] = request.scope
    exchange = exchange_of(scope)
    if exchange is not None:
        return exchange.request

    async def body() -> bytes:
        return bytes(await request.get_data(as_text=False, cache=True, parse_form_data=False))

    return GatewayRequest(
        request.method,
        request.path,
        request.query_string,
        Headers([(name.lower(), value) for name, value in scope["headers"]]),
        client=scope.get("client"),
        body=body,
        scope=scope,
    )


async def read_body(request: Request) -> bytes:
    """The whole body of a Quart view's request.

    Raises:
        RequestTooLarge: it is longer than ``max_body_bytes``; raised while it arrives.
        RequestTimeout: it did not arrive in time.
    """
    return await gateway_request(request).body()


def prepare(app: QuartTrio) -> QuartTrio:
    """Make a fresh Quart app fit for the gateway; call it before any route is added.

    Limits and deadlines are the connection's and the run's, so Quart's own are switched off.
    Errors of every kind become JSON in the shape of OpenAI's API.
    """
    app.asgi_http_class = GatewayHTTPConnection
    app.asgi_websocket_class = GatewayWebsocketConnection
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False  # a redirect would name a host, and take the request's word
    app.config.update(
        RESPONSE_TIMEOUT=None,
        BODY_TIMEOUT=None,
        MAX_CONTENT_LENGTH=None,
        PROVIDE_AUTOMATIC_OPTIONS=False,
    )
    app.register_error_handler(HTTPException, _http_exception)
    app.register_error_handler(EdgeError, _edge_error)
    app.register_error_handler(Exception, _bug)
    return app


_EDGE_ERRORS: Mapping[int, type[EdgeError]] = {
    404: NotFound,
    405: MethodNotAllowed,
    408: RequestTimeout,
    413: RequestTooLarge,
}


async def _http_exception(error: HTTPException) -> Response | HTTPException:
    forget_frames(error)  # Quart keeps it in the request, which the frames know
    if isinstance(error, RequestRedirect):
        return error
    status = error.code or 500
    kind = _EDGE_ERRORS.get(status, InvalidRequest if status < 500 else GatewayFault)
    told = kind(error.description or error.name)
    told.status = status
    allow = error.valid_methods if isinstance(error, WrongMethod) else None
    return _response(told, [(b"allow", ", ".join(sorted(allow)).encode("ascii"))] if allow else [])


async def _edge_error(error: EdgeError) -> Response:
    return _response(error)


async def _bug(error: Exception) -> Response:
    log.error("a view failed", exc_info=error)
    return _response(GatewayFault("The gateway failed to answer this request."))


def _response(error: EdgeError, headers: Sequence[tuple[bytes, bytes]] = ()) -> Response:
    status, fields, body = error_response(error, headers)
    pairs = [(name.decode("ascii"), value.decode("latin-1")) for name, value in fields]
    return TrioResponse(body, status, WireHeaders(pairs))
