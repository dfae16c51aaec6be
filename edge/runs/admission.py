"""Lets runs in: at once, after a wait in the queue, or not at all.

The queue (``core.admission``) decides; here are the clock and the waiting. A client that leaves
while it is queued is out of the queue before its cancellation goes on.
"""

from types import TracebackType

import trio

from edge.core.admission import AdmissionLimits, AdmissionQueue, AdmissionStatistics, Place, Ticket
from edge.errors import Busy


class Admission:
    """The gate in front of every run.

    Attributes:
        drain_began: set when new runs are refused from then on.
    """

    def __init__(self, limits: AdmissionLimits | None = None) -> None:
        self._limits = limits or AdmissionLimits()
        self._queue = AdmissionQueue(self._limits)
        self._bells: dict[Ticket, trio.Event] = {}
        self.drain_began = trio.Event()

    def admit(self, key: str, key_limit: int = 0) -> "Admitted":
        """``async with admission.admit(name, limit):`` holds a place for the body's time.

        Entering raises ``RateLimited`` where the key's own share is used up, and ``Overloaded``
        where the gateway is full or draining; at once where the queue is full too, else after
        ``queue_timeout_s``.

        Args:
            key: name of the client's key, empty where the gateway is open.
            key_limit: how many runs of this key may be active, 0 for no limit of its own.
        """
        return Admitted(self, key, key_limit)

    @property
    def draining(self) -> bool:
        """Whether new runs are refused."""
        return self._queue.draining

    def drain(self) -> None:
        """Refuse new runs from now on; those that wait in the queue keep their turn."""
        self._queue.draining = True
        self.drain_began.set()

    def statistics(self) -> AdmissionStatistics:
        """Active and waiting runs, in all and by key."""
        return self._queue.statistics()

    async def enter(self, key: str, key_limit: int) -> Place:
        """Wait for a place; :meth:`admit` is the usual way."""
        # A free place is taken without giving way to other tasks.
        await trio.lowlevel.checkpoint_if_cancelled()
        answer = self._queue.ask(key, key_limit, trio.current_time())
        self._ring()
        if isinstance(answer, Ticket):
            return await self._wait(answer)
        if isinstance(answer, Busy):
            raise answer
        return answer

    def leave(self, place: Place) -> None:
        """Give a place back; never waits."""
        self._queue.give_back(place, trio.current_time())
        self._ring()

    async def _wait(self, ticket: Ticket) -> Place:
        bell = self._bells[ticket] = trio.Event()
        done = False
        try:
            with trio.move_on_after(self._limits.queue_timeout_s):
                await bell.wait()
            done = True
        finally:
            self._bells.pop(ticket, None)
            if not done:
                self._queue.leave(ticket, trio.current_time())
                self._ring()
        if ticket.place is not None:
            return ticket.place
        raise ticket.refused or self._queue.time_out(ticket)

    def _ring(self) -> None:
        for ticket in self._queue.woken():
            bell = self._bells.pop(ticket, None)
            if bell is not None:
                bell.set()


class Admitted:
    """One run's place, from entering to leaving."""

    __slots__ = ("_admission", "_key", "_limit", "_place")

    def __init__(self, admission: Admission, key: str, key_limit: int) -> None:
        self._admission = admission
        self._key = key
        self._limit = key_limit
        self._place: Place | None = None

    async def __aenter__(self) -> None:
        self._place = await self._admission.enter(self._key, self._limit)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        place, self._place = self._place, None
        if place is not None:
            self._admission.leave(place)
