"""Keeps the connections of waiting clients alive, in one task for all of them.

Theory of operation. A task and a nursery for each run would cost a tenth of what a short run costs
(docs/design/030). So a run that streams says once whom to look after, for as long as it lasts:

    with heartbeats.keep(answer, every_s, on_gone):
        ...

Who is kept stands in a heap, by the time at which it is to be looked at. One task sleeps until the
earliest of these times. Whoever has been silent for ``every_s`` by then gets a heartbeat, which is
written in a task of its own since it may have to wait; anybody else is looked at again ``every_s``
after the last write. An answer that ends is not looked for in the heap: its entry is empty
from then on, and is dropped when its time comes or when half of the heap is like it.
"""

import heapq
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

import trio

from edge.runs.reply import ClientGone

_FEW = 64
"""Empty entries that are not worth tidying up."""


class Heart(Protocol):
    """What is kept beating."""

    @property
    def last_write(self) -> float:
        """When bytes were last given to the client, in trio's clock."""
        ...

    async def beat(self) -> None:
        """Send a heartbeat, unless a write is under way; may wait for the client.

        Raises:
            ClientGone: the client has left, or stopped reading.
        """
        ...


class _Kept:
    """One heart, from the beginning of its run to its end.

    Attributes:
        heart: None once the run has ended.
        beats: whether a heartbeat is being sent; then there is no entry in the heap.
        scope: of the task that sends it, once it has begun.
    """

    __slots__ = ("_heartbeats", "beats", "every_s", "heart", "on_gone", "scope")

    def __init__(
        self, heartbeats: "Heartbeats", heart: Heart, every_s: float, on_gone: Callable[[], None]
    ) -> None:
        self._heartbeats = heartbeats
        self.heart: Heart | None = heart
        self.every_s = every_s
        self.on_gone = on_gone
        self.beats = False
        self.scope: trio.CancelScope | None = None

    def __enter__(self) -> None:
        assert self.heart is not None  # noqa: S101 - it is entered once
        self._heartbeats.look_again(self, self.heart.last_write + self.every_s)

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.heart, self.on_gone = None, _nobody
        if not self.beats:
            self._heartbeats.forget_one()
        elif self.scope is not None:
            self.scope.cancel()  # it waits for the client


class Heartbeats:
    """See the module's docstring; ``run`` is its task."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Kept]] = []
        self._number = 0  # tells entries of one time apart
        self._empty = 0
        self._pause = trio.CancelScope()

    def keep(self, heart: Heart, every_s: float, on_gone: Callable[[], None]) -> _Kept:
        """A context in which ``heart`` is looked after.

        Args:
            heart: the answer.
            every_s: silence after which a heartbeat is sent, seconds.
            on_gone: called where a heartbeat finds that the client has gone.
        """
        return _Kept(self, heart, every_s, on_gone)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look after all that are kept, until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                with trio.CancelScope(deadline=self._earliest()) as self._pause:
                    await trio.sleep_forever()
                self._look(nursery)

    @property
    def entries(self) -> int:
        """How many entries there are, empty ones with them."""
        return len(self._heap)

    def look_again(self, kept: _Kept, at: float) -> None:
        """Look at this one again, at that time."""
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, kept))
        if at < self._pause.deadline:
            self._pause.deadline = at

    def forget_one(self) -> None:
        """One entry has become empty."""
        self._empty += 1
        if self._empty > _FEW and self._empty * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].heart is not None]
            heapq.heapify(self._heap)
            self._empty = 0

    def _earliest(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")

    def _look(self, nursery: trio.Nursery) -> None:
        now = trio.current_time()
        while self._earliest() <= now:
            _, _, kept = heapq.heappop(self._heap)
            heart = kept.heart
            if heart is None:
                self._empty -= 1
            elif (due := heart.last_write + kept.every_s) > now:
                self.look_again(kept, due)
            else:
                kept.beats = True
                nursery.start_soon(self._beat, kept)

    async def _beat(self, kept: _Kept) -> None:
        with trio.CancelScope() as kept.scope:
            if kept.heart is not None:
                try:
                    await kept.heart.beat()
                except ClientGone:
                    kept.on_gone()
        kept.scope, kept.beats = None, False
        if kept.heart is not None:
            self.look_again(kept, trio.current_time() + kept.every_s)


def _nobody() -> None:
    pass
