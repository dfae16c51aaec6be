"""``POST /v1/chat/completions``: everything that may answer 4xx, and then the run."""

import time
from collections.abc import Callable, Mapping
from functools import partial

import trio

from edge.core.history import heal
from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.core.request_contract import contract_of
from edge.core.schemas import compile_contract
from edge.errors import EdgeError, ModelNotFound, forget_frames
from edge.runs.apart import apart
from edge.runs.registry import ChatRun
from edge.runs.reply import Reply
from edge.runs.run import Desk, carry_run
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.connection import Carry
from edge.server.error_exit import error_event, send_error
from edge.server.exchange import GatewayRequest
from edge.server.naming import new_run_id, request_id, trace_headers
from edge.server.passthrough import PassThroughHandler
from edge.wire.openai_chat import chat_request
from edge.wire.strict_json import decode


class ChatHandler:
    """Turns chat requests into runs."""

    def __init__(
        self,
        desk: Desk,
        doorkeeper: Doorkeeper,
        policies: Mapping[str, OutputPolicy],
        pass_through: PassThroughHandler,
        *,
        new_id: Callable[[], str] = new_run_id,
    ) -> None:
        """Take what is shared.

        Args:
            desk: what all runs share.
            doorkeeper: tells keys apart.
            policies: the output policy of every route, by its model name.
            pass_through: takes the requests whose answers need not be looked at.
            new_id: makes run ids.
        """
        self.desk = desk
        self._doorkeeper = doorkeeper
        self._policies = policies
        self._pass_through = pass_through
        self._new_id = new_id

    async def __call__(self, request: GatewayRequest) -> Carry:
        """Decode, authenticate and look up the route; what is returned carries the run.

        Raises:
            ClientError: the request is at fault.
        """
        started_at = trio.current_time()
        rights = self._doorkeeper.identify(request.headers)
        body = await request.body()
        tree = await apart(len(body), partial(decode, what="The body"), body)
        passed = self._pass_through.chat(request, body, tree, rights, started_at)
        if passed is not None:
            return passed
        run = await self.run_for(request, tree, rights, started_at, size=len(body))
        request.on_give_up = run.note_cancelled
        return partial(self._carry, run)

    def rights(self, request: GatewayRequest) -> KeyRights:
        """What the key of a request may do; raises ``Unauthorized``."""
        return self._doorkeeper.identify(request.headers)

    async def run_for(
        self,
        request: GatewayRequest,
        tree: object,
        rights: KeyRights,
        started_at: float,
        *,
        size: int,
    ) -> ChatRun:
        """A run for a chat request, ready to be carried.

        Args:
            request: its headers count.
            tree: the chat request, parsed.
            rights: of its key.
            started_at: when it came.
            size: of its text.

        Raises:
            ClientError: the request is at fault.
        """
        chat = await apart(size, chat_request, tree)
        route = self.route(chat.model, rights)
        policy = apply_overrides(
            self._policies[route],
            header=";".join(request.headers.get_all("x-edge-output")) or None,
            metadata=chat.metadata,
        )
        contract = contract_of(
            chat, xml_completion_tool=policy.xml_completion_tool, strict=policy.strict
        )
        messages = chat.messages
        healed: tuple[str, ...] = ()
        if policy.heal_history:
            messages, healed = await apart(size, heal, messages)
        run_id = self._new_id()
        return ChatRun(
            id=run_id,
            request_id=request_id(request) or run_id,
            key=rights.name,
            key_limit=rights.max_concurrent,
            route=route,
            model=chat.model,
            created=int(time.time()),
            stream=chat.stream,
            request=chat,
            messages=messages,
            healed=healed,
            compiled=compile_contract(contract),
            policy=policy,
            trace_headers=trace_headers(request),
            started_at=started_at,
        )

    def route(self, model: str, rights: KeyRights) -> str:
        """The route that serves a model name for this key."""
        rights.check_model(model)
        route = self.desk.dispatcher.route_for(model)
        if route is None:
            raise ModelNotFound(f"the model {model!r} does not exist", param="model")
        return route

    async def _carry(self, run: ChatRun, reply: Reply) -> None:
        try:
            await carry_run(run, reply, self.desk)
        except EdgeError as error:
            await self._tell(run, reply, error)
            forget_frames(error)
        # ClientGone passes: the give-up is in the books, and there is nobody to tell.

    async def _tell(self, run: ChatRun, reply: Reply, error: EdgeError) -> None:
        if reply.started:
            await reply.finish(error_event(error))
            return
        headers = [
            (b"x-request-id", run.request_id.encode("latin-1", "replace")),
            (b"x-edge-run-id", run.id.encode()),
            (b"x-edge-attempts", str(len(run.rows)).encode()),
        ]
        await send_error(reply, error, headers)
