"""Takes slots for attempts: asks the pool, waits where the pool says so, hands slots back.

The pool (``core.pool``) decides everything; here is the clock, the randomness and the waiting. A
run that waits sleeps on an event of its own and is woken alone. One that is cancelled while it
waits has left every queue before the cancellation goes on, and a slot it was granted in that very
moment goes to the next in line.
"""

import math
import random
from collections.abc import Mapping

import trio

from edge.core.attempt import AttemptOutcome
from edge.core.fleet import Target
from edge.core.pool import Pool
from edge.core.pool_member import Need, NoneLeft, Slot, Wait
from edge.core.pool_statistics import PoolStatistics
from edge.errors import NoPath, Overloaded
from edge.providers.port import Provider


class Lease:
    """One slot of a provider, from dispatch to the end of the attempt.

    Attributes:
        provider: who answers.
        provider_name: its name.
        model: the target's model name, None where the client's is passed on.
        target: the target's name, for ``AttemptOutcome.target``.
        call_validity: of the target, when it was chosen (``core.call_validity``).
    """

    __slots__ = (
        "_dispatcher",
        "_slot",
        "call_validity",
        "model",
        "provider",
        "provider_name",
        "target",
    )

    def __init__(self, dispatcher: "Dispatcher", slot: Slot, provider: Provider) -> None:
        self._dispatcher = dispatcher
        self._slot = slot
        self.provider = provider
        self.provider_name = slot.target.provider
        self.model = slot.target.model
        self.target = slot.target.name
        self.call_validity = slot.candidate.validity.value(trio.current_time())

    def release(self, outcome: AttemptOutcome | None) -> None:
        """Give the slot back; None for an attempt that says nothing of the provider's health.

        Never waits. A second call does nothing.
        """
        if not self._slot.given_back:
            self._dispatcher.give_back(self._slot, outcome)


class Dispatcher:
    """Waits for slots of the pool.

    Args:
        pool: decides.
        providers: by name, all that the pool knows.
        rng: where ``weighted`` draws from.
        before: the dispatcher whose place this one takes, where ``pool`` takes its pool's.
    """

    def __init__(
        self,
        pool: Pool,
        providers: Mapping[str, Provider],
        *,
        rng: random.Random | None = None,
        before: "Dispatcher | None" = None,
    ) -> None:
        self._pool = pool
        self._providers = providers
        self._draw = (rng or random.Random()).random  # noqa: S311 - shares load, guards nothing
        self._bells: dict[Wait, trio.Event] = {} if before is None else before._bells

    async def lease(
        self,
        route: str,
        *,
        avoid: frozenset[str] = frozenset(),
        need_normalized: bool = True,
        need_tunnel: bool = False,
    ) -> Lease:
        """Wait for a slot of ``route``.

        Args:
            route: the route's name (:meth:`route_for`).
            avoid: names of targets or providers to use only if no other is up.
            need_normalized: the answer must be decoded, so a tunnel will not do.
            need_tunnel: bytes must pass through.

        Raises:
            Overloaded: none may come soon; ``retry_after_s`` says when one may.
            NoPath: no target has the needed path at all.
        """
        # A slot that is free is taken without giving way to other tasks: the attempt that follows
        # is full of such points.
        await trio.lowlevel.checkpoint_if_cancelled()
        answer = self._pool.take(
            route,
            trio.current_time(),
            avoid=avoid,
            need_normalized=need_normalized,
            need_tunnel=need_tunnel,
            pick=self._draw(),
        )
        self._ring()
        if isinstance(answer, Wait):
            answer = await self._wait(answer)
        if isinstance(answer, NoneLeft):
            raise _refusal(answer)
        return Lease(self, answer, self._providers[answer.target.provider])

    def give_back(self, slot: Slot, outcome: AttemptOutcome | None) -> None:
        """End a slot, once; :meth:`Lease.release` is the usual way."""
        self._pool.give_back(slot, outcome, trio.current_time())
        self._ring()

    def route_for(self, model: str) -> str | None:
        """The name of the route that serves ``model``; ``*`` takes what no other route names."""
        return self._pool.route_for(model)

    def targets(
        self, route: str, *, need_normalized: bool = False, need_tunnel: bool = False
    ) -> tuple[Target, ...]:
        """The route's targets that have the needed path, for ``RetryPolicy.targets``."""
        return self._pool.targets(route, Need(need_normalized, need_tunnel))

    def saturated(self, route: str) -> bool:
        """Whether so many runs wait for the route that no attempt may be added."""
        return self._pool.is_saturated(route, trio.current_time())

    def can_serve(self, route: str) -> bool:
        """Whether a provider of the route is up."""
        return self._pool.can_serve(route, trio.current_time())

    def statistics(self) -> PoolStatistics:
        """Slots, health and measured validity, as of now."""
        return self._pool.statistics(trio.current_time())

    async def _wait(self, wait: Wait) -> Slot | NoneLeft:
        granted: Slot | NoneLeft | None = None
        try:
            while granted is None:
                await self._sleep(wait)
                granted = wait.slot or wait.refused
        finally:
            if granted is None:
                self._pool.leave(wait, trio.current_time())
                self._ring()
        return granted

    async def _sleep(self, wait: Wait) -> None:
        """Until the pool has news of ``wait``, or its time has come."""
        bell = self._bells[wait] = trio.Event()
        try:
            with trio.CancelScope(deadline=wait.until) as scope:
                await bell.wait()
        finally:
            self._bells.pop(wait, None)
        if scope.cancelled_caught and not wait.is_settled:
            self._pool.poll(wait, trio.current_time())
            self._ring()

    def _ring(self) -> None:
        for wait in self._pool.woken():
            bell = self._bells.pop(wait, None)
            if bell is not None:
                bell.set()


def _refusal(answer: NoneLeft) -> Overloaded | NoPath:
    seconds = answer.retry_after_s
    if seconds is None:
        # Asking again changes nothing: it is how the route is configured.
        return NoPath(answer.why, param="model", code="no_path")
    return Overloaded(answer.why, retry_after_s=max(1.0, math.ceil(seconds)))
