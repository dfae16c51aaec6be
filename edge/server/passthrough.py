"""Requests that pass through: chats that nobody here has to look at, and every other POST.

Only the model's name in the body decides who answers. The path is the part behind ``/v1``; it is
checked to be a plain one, so that nothing but the provider's own API can be reached with it.
"""

import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import trio

from edge.core.operations import operation_of
from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.core.path import may_tunnel, prefers_tunnel
from edge.errors import (
    EdgeError,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    ProviderRefused,
    forget_frames,
)
from edge.runs.apart import apart
from edge.runs.dispatch import Dispatcher
from edge.runs.reply import AnswerCut, Reply
from edge.runs.tunnel import Passage, Tunnel, TunnelRun
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.connection import Carry
from edge.server.error_exit import error_event, send_error
from edge.server.exchange import GatewayRequest
from edge.server.naming import new_run_id, request_id, trace_headers
from edge.wire.tunnelled import TunnelBody, json_body, read_tunnelled

PREFIX = "/v1"
CHAT_PATH = "/chat/completions"
COMPLETIONS = frozenset({CHAT_PATH, "/completions"})

USUAL_PATHS = (
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/classify",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/images/generations",
    "/v1/messages",
    "/v1/moderations",
    "/v1/rerank",
    "/v1/responses",
    "/v1/score",
)
"""Those that are worth a short cut; any other one is served all the same."""

_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+")
OWN = frozenset({"mirror", "models", "providers", "runs"})
"""First parts of paths that are the gateway's own, and take no POST."""

_TRAVELS = frozenset(
    {
        b"accept",
        b"accept-language",
        b"anthropic-beta",
        b"anthropic-version",
        b"baggage",
        b"content-type",
        b"idempotency-key",
        b"openai-beta",
        b"user-agent",
        b"x-request-id",
    }
)
"""What of a client's headers a provider gets: a list of what may, so that no kind of credential,
known or not, can be on it. The trace context travels too, as the tracer has it."""


class PassThroughHandler:
    """Turns requests into tunnelled runs."""

    def __init__(
        self,
        tunnel: Tunnel,
        dispatcher: Dispatcher,
        doorkeeper: Doorkeeper,
        policies: Mapping[str, OutputPolicy],
        *,
        new_id: Callable[[], str] = new_run_id,
    ) -> None:
        """``policies`` holds the output policy of every route, by its model name."""
        self._tunnel = tunnel
        self._dispatcher = dispatcher
        self._doorkeeper = doorkeeper
        self._policies = policies
        self._new_id = new_id
        self._preferred = {
            route: prefers_tunnel(
                normalized=len(dispatcher.targets(route, need_normalized=True)),
                tunnels=sum(
                    not tunnel.drains(target.provider)
                    for target in dispatcher.targets(route, need_tunnel=True)
                ),
            )
            for route in policies
        }

    async def __call__(self, request: GatewayRequest) -> Carry:
        """Pass a request of any kind but chat through to its model's provider.

        Raises:
            ClientError: the request is at fault.
        """
        started_at = trio.current_time()
        rights = self._doorkeeper.identify(request.headers)
        path = provider_path(request.path)
        data = await request.body()
        media = request.headers.get("content-type") or ""
        body = await apart(len(data), read_tunnelled, data, media)
        rights.check_model(body.model)
        route = self._dispatcher.route_for(body.model)
        if route is None:
            raise ModelNotFound(f"the model {body.model!r} does not exist", param="model")
        policy = self._policy(request, route, body.edge_metadata)
        return self._response(request, path, body, rights, route, policy, started_at)

    def chat(
        self,
        request: GatewayRequest,
        data: bytes,
        tree: object,
        rights: KeyRights,
        started_at: float,
    ) -> Carry | None:
        """Pass a chat request through, if it may be; None where it must not, or its fault be told.

        Args:
            request: the request.
            data: its body,
            tree: and the same, parsed.
            rights: the key's.
            started_at: when the request came.
        """
        model = tree.get("model") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(model, str) or not rights.may_use(model):
            return None
        route = self._dispatcher.route_for(model)
        if route is None or not model or not self._preferred[route]:
            return None
        metadata = tree.get("metadata")
        policy = self._policy(request, route, metadata if isinstance(metadata, dict) else {})
        if not may_tunnel(policy, offers_tools=bool(tree.get("tools") or tree.get("functions"))):
            return None
        body = json_body(data, tree)
        return self._response(request, CHAT_PATH, body, rights, route, policy, started_at)

    def _policy(
        self, request: GatewayRequest, route: str, metadata: Mapping[str, Any]
    ) -> OutputPolicy:
        policy = self._policies[route]
        if not metadata and "x-edge-output" not in request.headers:
            return policy
        header = ";".join(request.headers.get_all("x-edge-output")) or None
        return apply_overrides(policy, header=header, metadata=metadata)

    def _response(
        self,
        request: GatewayRequest,
        path: str,
        body: TunnelBody,
        rights: KeyRights,
        route: str,
        policy: OutputPolicy,
        started_at: float,
    ) -> Carry:
        run_id = self._new_id()
        query = request.query_string
        run = TunnelRun(
            id=run_id,
            request_id=request_id(request) or run_id,
            key=rights.name,
            key_limit=rights.max_concurrent,
            route=route,
            model=body.model,
            created=int(time.time()),
            stream=body.stream,
            policy=policy,
            operation=operation_of(path),
            trace_headers=trace_headers(request),
            started_at=started_at,
            path=f"{path}?{query.decode('latin-1')}" if query else path,
            body=body,
            headers=_travelling(request),
            is_completion=path in COMPLETIONS,
        )
        request.on_give_up = run.note_cancelled
        return partial(self._carry, run)

    async def _carry(self, run: TunnelRun, reply: Reply) -> None:
        passage = Passage(run, reply)
        try:
            await self._tunnel.carry(run, passage)
        except EdgeError as error:
            failure = error
        else:
            return
        forget_frames(failure)
        if not reply.started:
            await _send_refusal(run, reply, failure)
        elif passage.may_tell:
            await reply.finish(error_event(failure))
        else:
            raise AnswerCut(failure.message) from failure


def _travelling(request: GatewayRequest) -> list[tuple[bytes, bytes]]:
    headers = [field for field in request.headers.raw if field[0] in _TRAVELS]
    if "content-type" not in request.headers:  # then the body has been read as JSON
        headers.append((b"content-type", b"application/json"))
    return headers


async def _send_refusal(run: TunnelRun, reply: Reply, error: EdgeError) -> None:
    """An error as the whole answer: the provider's own where there is one, else ours."""
    ours = [
        (b"x-request-id", run.request_id.encode("latin-1", "replace")),
        (b"x-edge-run-id", run.id.encode()),
        (b"x-edge-attempts", str(len(run.rows)).encode()),
    ]
    if not isinstance(error, ProviderRefused) or error.upstream_headers is None:
        await send_error(reply, error, ours)
        return
    ours.append((b"x-edge-provider", error.provider.encode("ascii", "replace")))
    if error.spent:
        ours.append((b"x-should-retry", b"false"))
    theirs = [field for field in error.upstream_headers if field[0] != b"x-should-retry"]
    body = error.upstream_body
    await reply.start(error.upstream_status, [*theirs, *ours], content_length=len(body))
    await reply.finish(body)


def provider_path(path: str) -> str:
    """The part of a request's path that a provider is asked for: what is behind ``/v1``.

    Raises:
        NotFound: it is no plain path.
        MethodNotAllowed: it is the gateway's own.
    """
    rest = path.removeprefix(PREFIX)
    if not path.startswith(f"{PREFIX}/") or not _PATH.fullmatch(rest):
        raise NotFound("there is nothing at this address")
    if rest.split("/")[1] in OWN:
        raise MethodNotAllowed("this address takes no POST")
    return rest
