"""Keeps the connections of waiting clients alive, in one task for all of them.

Theory of operation. A task and a nursery for each run would cost a tenth of what a short run costs
(docs/design/030). So a run that streams says once whom to look after, for as long as it lasts:

    with heartbeats.keep(answer, every_s):
        ...

Who is kept stands in a heap, by the time at which it is to be looked at. One task sleeps until the
earliest of these times. Whoever has been silent for ``every_s`` by then gets a heartbeat, which is
written in a task of its own since it may have to wait; anybody else is looked at again ``every_s``
after the last write. An answer that ends is not looked for in the heap: its entry is empty
from then on, and is dropped when its time comes or when half of the heap is like it.
"""

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import trio

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

        A client that has left, or stopped reading, is for the heart to tell of.
        """
        ...


class _Kept:
    """One heart, from the beginning of its run to its end.

    Attributes:
        heart: None once the run has ended.
        beating: of the task that sends a heartbeat; meanwhile there is no entry in the heap.
    """

    __slots__ = ("beating", "every_s", "heart")

    def __init__(self, heart: Heart, every_s: float) -> None:
        self.heart: Heart | None = heart
        self.every_s = every_s
        self.beating: trio.CancelScope | None = None


class Heartbeats:
    """See the module's docstring; ``run`` is its task."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _Kept]] = []
        self._number = 0  # tells entries of one time apart
        self._empty = 0
        self._pause = trio.CancelScope()

    @contextmanager
    def keep(self, heart: Heart, every_s: float) -> Iterator[None]:
        """Look after ``heart``: it beats whenever it has been silent for ``every_s`` seconds."""
        kept = _Kept(heart, every_s)
        self._look_again(kept, heart.last_write + every_s)
        try:
            yield
        finally:
            kept.heart = None
            if kept.beating is None:
                self._note_empty()
            else:
                kept.beating.cancel()  # it may wait for the client

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

    def _look_again(self, kept: _Kept, at: float) -> None:
        self._number += 1
        heapq.heappush(self._heap, (at, self._number, kept))
        if at < self._pause.deadline:
            self._pause.deadline = at

    def _note_empty(self) -> None:
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
                self._look_again(kept, due)
            else:
                kept.beating = trio.CancelScope()
                nursery.start_soon(self._beat, kept, kept.beating)

    async def _beat(self, kept: _Kept, beating: trio.CancelScope) -> None:
        with beating:
            if kept.heart is not None:  # else the run has ended before this task began
                await kept.heart.beat()
        kept.beating = None
        if kept.heart is not None:
            self._look_again(kept, trio.current_time() + kept.every_s)
