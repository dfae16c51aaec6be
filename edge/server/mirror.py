"""``/v1/runs/{id}/mirror`` and ``/v1/mirror``: runs as they happen, over a WebSocket.

A key may follow the runs it may see, if it has the right ``mirror``. What is told of traced runs
alone (what a provider sent, what is held back) is told to keys with the right ``trace``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import trio

from edge.core.mirror_frames import TRACED, TYPES
from edge.errors import InvalidRequest
from edge.runs.mirror import MirrorHub
from edge.runs.subscription import NOT_ALLOWED, OVER, Ending, Subscription
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.client_socket import ClientSocket, hold
from edge.wire.websocket import PING

NO_SUCH_RUN = Ending(4404, "there is no such run, or nothing is kept of it any more")
PING_EVERY_S = 20.0
"""Proxies close connections on which nothing moves, most of them after a minute."""


class MirrorHandler:
    """Lets clients follow runs."""

    def __init__(self, hub: MirrorHub, doorkeeper: Doorkeeper) -> None:
        self._hub = hub
        self._doorkeeper = doorkeeper

    async def one(self, socket: ClientSocket, run_id: str) -> None:
        """Follow one run to its end.

        Raises:
            Unauthorized, InvalidRequest: before the handshake is complete.
        """
        rights = self._doorkeeper.identify(socket.request.headers)
        wish = _wish(socket, rights)
        await hold(socket, partial(self._one, socket, run_id, rights, wish))

    async def all(self, socket: ClientSocket) -> None:
        """Follow every run the key may see, until the client leaves; raises as :meth:`one`."""
        rights = self._doorkeeper.identify(socket.request.headers)
        wish = _wish(socket, rights)
        await hold(socket, partial(self._all, socket, rights, wish))

    async def _one(
        self, socket: ClientSocket, run_id: str, rights: KeyRights, wish: "_Wish"
    ) -> Ending:
        if not rights.mirror:
            return NOT_ALLOWED
        subscription = self._hub.follow(
            run_id, rights.may_see, types=wish.types, batched=wish.batched
        )
        if subscription is None:
            return NO_SUCH_RUN
        return await _tell(socket, subscription)

    async def _all(self, socket: ClientSocket, rights: KeyRights, wish: "_Wish") -> Ending:
        if not rights.mirror:
            return NOT_ALLOWED
        subscription = self._hub.follow_all(rights.may_see, types=wish.types, batched=wish.batched)
        return await _tell(socket, subscription)


@dataclass(frozen=True, slots=True)
class _Wish:
    """How a client wants to be told; ``types`` None for all."""

    types: frozenset[str] | None
    batched: bool


def _wish(socket: ClientSocket, rights: KeyRights) -> _Wish:
    arguments = socket.arguments
    return _Wish(told_types(rights, wanted_types(arguments)), wants_batches(arguments))


def wants_batches(arguments: Mapping[str, str]) -> bool:
    """Whether ``?batch=true`` asks for frames that come together to be one message.

    Raises:
        InvalidRequest: it says something else.
    """
    said = arguments.get("batch", "false")
    if said not in ("true", "false"):
        raise InvalidRequest(f"{said!r} is neither true nor false", param="batch")
    return said == "true"


def wanted_types(arguments: Mapping[str, str]) -> frozenset[str] | None:
    """The types of frames that ``?types=a,b`` asks for; None for all.

    Raises:
        InvalidRequest: one of them does not exist.
    """
    if "types" not in arguments:
        return None
    types = frozenset(arguments["types"].split(","))
    unknown = sorted(types - TYPES)
    if unknown:
        known = ", ".join(sorted(TYPES))
        raise InvalidRequest(f"{unknown[0]!r} is no type; there are {known}", param="types")
    return types


def told_types(rights: KeyRights, wanted: frozenset[str] | None) -> frozenset[str] | None:
    """Of the wanted types those that the key may be told; None for all."""
    return wanted if rights.trace else (TYPES if wanted is None else wanted) - TRACED


async def _tell(socket: ClientSocket, subscription: Subscription) -> Ending:
    with subscription:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.ignore_messages)
            while subscription.is_open:
                frames = PING
                with trio.move_on_after(PING_EVERY_S):
                    frames = await subscription.receive()
                await socket.send(frames)
            nursery.cancel_scope.cancel()
    return subscription.ending or OVER
