"""Which handler answers which address."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, TypeAlias

from quart import request, websocket
from quart_trio import QuartTrio
from quart_trio.wrappers import TrioResponse
from werkzeug.routing import PathConverter, WebsocketMismatch

from edge.core.run_summary import RunSummary
from edge.errors import InvalidRequest
from edge.server.auth import check_origin
from edge.server.chat import ChatHandler
from edge.server.client_socket import ClientSocket
from edge.server.connection import (
    Carry,
    DirectHandler,
    DirectRoutes,
    RunResponse,
    gateway_request,
    prepare,
)
from edge.server.cors import Cors
from edge.server.error_exit import error_response
from edge.server.exchange import GatewayRequest
from edge.server.mirror import MirrorHandler
from edge.server.models import Model, ModelList, ModelsHandler
from edge.server.openapi import PATH, Document
from edge.server.operations import Health, OperationsHandler, Readiness
from edge.server.page import INDEX, page_response
from edge.server.passthrough import OWN, USUAL_PATHS, PassThroughHandler
from edge.server.providers import ProviderList, ProvidersHandler
from edge.server.runs import CancelledRun, RunPage, RunsHandler
from edge.server.socket_runs import SocketLimits, serve_runs

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Handlers:
    """Everything that answers."""

    chat: ChatHandler
    pass_through: PassThroughHandler
    models: ModelsHandler
    runs: RunsHandler
    providers: ProvidersHandler
    mirror: MirrorHandler
    operations: OperationsHandler
    socket_limits: SocketLimits = SocketLimits()
    """Of a WebSocket that carries chats."""
    origins: frozenset[str] = frozenset()
    """Those of web pages, besides the gateway's own, that may open WebSockets."""
    cors: Cors = Cors()
    """What web pages may do otherwise."""


Current: TypeAlias = Callable[[], Handlers]
"""Gives the handlers of the configuration that is in use."""


def direct_routes(current: Current) -> DirectRoutes:
    """The handlers that are called without Quart's dispatch: those of the hot path."""

    def chat(request: GatewayRequest) -> Awaitable[Carry]:
        return current().chat(request)

    def pass_through(request: GatewayRequest) -> Awaitable[Carry]:
        return current().pass_through(request)

    routes: dict[tuple[str, str], DirectHandler] = dict.fromkeys(
        [("POST", path) for path in USUAL_PATHS], pass_through
    )
    routes["POST", CHAT] = chat
    return routes


def build_app(current: Current) -> QuartTrio:
    """The Quart app with every address the gateway answers; ``current`` is asked each time."""
    app = prepare(QuartTrio("edge", static_folder=None))
    app.url_map.converters["provider_path"] = _ProviderPath
    app.register_error_handler(WebsocketMismatch, _not_upgraded)

    @app.post(CHAT)
    async def chat() -> RunResponse:
        return RunResponse(await current().chat(gateway_request(request)))

    @app.post("/v1/<provider_path:rest>")
    async def pass_through(rest: str) -> RunResponse:  # noqa: ARG001 - the handler reads the path itself
        return RunResponse(await current().pass_through(gateway_request(request)))

    _add_models_and_runs(app, current)
    _add_sockets(app, current)
    _add_operations(app, current)
    _add_document(app)
    return app


def _add_models_and_runs(app: QuartTrio, current: Current) -> None:
    @app.get("/v1/models")
    async def models() -> ModelList:
        return await current().models.list_all(gateway_request(request))

    @app.get("/v1/models/<path:model>")
    async def model(model: str) -> Model:
        return await current().models.show(gateway_request(request), model)

    @app.get("/v1/providers")
    async def providers() -> ProviderList:
        return await current().providers.list_all(gateway_request(request))

    @app.get("/v1/runs")
    async def runs() -> RunPage:
        return await current().runs.list_all(gateway_request(request))

    @app.get("/v1/runs/<run_id>")
    async def run(run_id: str) -> RunSummary:
        return await current().runs.show(gateway_request(request), run_id)

    @app.delete("/v1/runs/<run_id>")
    async def cancel(run_id: str) -> CancelledRun:
        return await current().runs.cancel(gateway_request(request), run_id)


def _add_sockets(app: QuartTrio, current: Current) -> None:
    @app.websocket(CHAT)
    async def chat_socket() -> None:
        await serve_runs(_socket(current), lambda: current().chat, current().socket_limits)

    @app.websocket("/v1/runs/<run_id>/mirror")
    async def mirror(run_id: str) -> None:
        await current().mirror.one(_socket(current), run_id)

    @app.websocket("/v1/mirror")
    async def mirror_of_all() -> None:
        await current().mirror.all(_socket(current))

    for rule in app.url_map.iter_rules():
        if rule.websocket:
            rule.methods = None  # nor does a 405 tell of any that would do without an upgrade


def _add_operations(app: QuartTrio, current: Current) -> None:
    @app.get("/healthz")
    async def health() -> Health:
        return current().operations.health()

    @app.get("/readyz")
    async def readiness() -> Readiness:
        return current().operations.readiness()

    @app.get("/metrics")
    async def metrics() -> TrioResponse:
        return current().operations.metrics(gateway_request(request))

    @app.get("/ui")
    async def page() -> TrioResponse:
        return page_response(INDEX, request.headers.get("if-none-match"))

    @app.get("/ui/<name>")
    async def page_file(name: str) -> TrioResponse:
        return page_response(name, request.headers.get("if-none-match"))


def _add_document(app: QuartTrio) -> None:
    @cache
    def document() -> Document:
        return Document.of(app.url_map)

    @app.get(PATH)
    async def openapi() -> TrioResponse:
        return document().response(request.headers.get("if-none-match"))


class _ProviderPath(PathConverter):
    """Any path but the gateway's own, so that a wrong method there is told the right ones."""

    regex = rf"(?!(?:{'|'.join(sorted(OWN))})(?:/|$))" + PathConverter.regex


async def _not_upgraded(_: Exception) -> TrioResponse:
    """What is only a WebSocket was asked for as if it were a page."""
    error = InvalidRequest("this address is a WebSocket: connect to it with an upgrade")
    error.status = HTTPStatus.UPGRADE_REQUIRED
    status, fields, body = error_response(error, [(b"upgrade", b"websocket")])
    return TrioResponse(body, status, {name.decode(): value.decode() for name, value in fields})


def _socket(current: Current) -> ClientSocket:
    proxy: Any = websocket
    socket = ClientSocket(proxy._get_current_object())
    check_origin(socket.request.headers, current().origins)
    return socket
