"""The ledger: one row per attempt, what it cost and how it ended.

A row is an :class:`~edge.core.run_events.AttemptEnded` event. :class:`MemoryLedger` keeps the
newest in memory; :class:`LedgerWriter` puts all of them into a file.

    runs ──(a function call)──▶ queue ──(a batch)──▶ a thread ──▶ SQLite

Telling the writer of a row appends it to a bounded queue, and never waits. A task of the gateway's
takes batches off the queue, at the latest ``flush_s`` after a row came, and writes each in one
transaction in a worker thread; so a process that is killed loses what came in the last ``flush_s``.
A batch that cannot be written (a full disk, a file that another process keeps locked) stays at the
head of the queue and is tried again after a pause; what finds the queue full meanwhile is dropped,
counted, and logged with the outage. None of it is ever felt by a run.
"""

import logging
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Protocol, TypeAlias

import trio

from edge.core.run_events import AttemptEnded, RunEvent

Elsewhere: TypeAlias = Callable[[Callable[[], None]], Awaitable[None]]
"""Calls a function that may block, where that disturbs nobody."""

_log = logging.getLogger("edge.ledger")


class MemoryLedger:
    """Keeps the newest ``capacity`` rows; an observer of run events."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._rows: deque[AttemptEnded] = deque(maxlen=capacity)

    def __call__(self, event: RunEvent) -> None:
        """Take a row; other events are not the ledger's."""
        if isinstance(event, AttemptEnded):
            self._rows.append(event)

    def rows(self, run_id: str | None = None) -> list[AttemptEnded]:
        """The rows kept, oldest first; of one run where ``run_id`` is given."""
        return [row for row in self._rows if run_id is None or row.run_id == run_id]


class RowStore(Protocol):
    """Where rows are written, in a thread: :class:`~edge.telemetry.ledger_file.LedgerFile`."""

    def write(self, rows: Sequence[AttemptEnded]) -> None:
        """Write all of them or none; ``sqlite3.Error`` where it cannot be done now."""
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """How the writer goes about it.

    Attributes:
        queue: rows that may wait to be written; what is more is dropped.
        batch: rows of one transaction. A small one holds the interpreter for a millisecond only.
        flush_s: a row waits so long for others at most.
        first_pause_s: pause after a failure; each further one in a row doubles it.
        longest_pause_s: no pause is longer.
        close_s: what closing may take, the last rows included.
    """

    queue: int = 50_000
    batch: int = 200
    flush_s: float = 0.25
    first_pause_s: float = 0.25
    longest_pause_s: float = 10.0
    close_s: float = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerStatistics:
    """The writer, as of now.

    Attributes:
        written: rows in the file.
        waiting: rows in the queue.
        dropped: rows lost, for want of room in the queue or at the end.
        failures: writes that failed.
    """

    written: int = 0
    waiting: int = 0
    dropped: int = 0
    failures: int = 0


class LedgerWriter:
    """Writes rows to a store; an observer of run events.

    :meth:`run` is its task. It does not end by cancellation, so that rows which others write while
    they are cancelled are not lost; :meth:`stop` ends it, within ``close_s``.

    Args:
        store: where rows are written.
        limits: how to go about it.
        elsewhere: calls a function of the store in a thread, or where a test wants it.
    """

    def __init__(
        self,
        store: RowStore,
        limits: LedgerLimits | None = None,
        *,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._store = store
        self._elsewhere = elsewhere or _thread()
        self._limits = limits or LedgerLimits()
        self._rows: deque[AttemptEnded] = deque()
        self._some = trio.Event()
        self._many = trio.Event()
        self._stopping = trio.Event()
        self._scope = trio.CancelScope(shield=True)
        self._written = 0
        self._dropped = 0
        self._failures = 0
        self._failures_in_a_row = 0

    def __call__(self, event: RunEvent) -> None:
        """Take a row, or count it as dropped; never waits."""
        if not isinstance(event, AttemptEnded):
            return
        waiting = len(self._rows)
        if waiting >= self._limits.queue:
            self._dropped += 1
            return
        self._rows.append(event)
        if not waiting:
            self._some.set()
        if waiting + 1 == self._limits.batch:
            self._many.set()

    def statistics(self) -> LedgerStatistics:
        """Numbers as of now."""
        return LedgerStatistics(
            written=self._written,
            waiting=len(self._rows),
            dropped=self._dropped,
            failures=self._failures,
        )

    def stop(self) -> None:
        """Write what is left, for ``close_s`` at most, and end :meth:`run`."""
        self._stopping.set()
        self._some.set()
        self._many.set()
        self._scope.deadline = trio.current_time() + self._limits.close_s

    async def run(self) -> None:
        """Write until :meth:`stop`."""
        with self._scope:
            while await self._rows_are_due():
                if not await self._write_batch():
                    await self._pause()
            await self._close()
        if self._rows:
            lost = len(self._rows)
            self._dropped += lost
            self._rows.clear()
            _log.error("the ledger could not be written before the end: %d rows are lost", lost)

    async def _rows_are_due(self) -> bool:
        """Wait for a full batch, or for the time of the rows that wait; False at the end."""
        if not self._rows and not self._stopping.is_set():
            self._some = trio.Event()
            await self._some.wait()
        if len(self._rows) < self._limits.batch and not self._stopping.is_set():
            self._many = trio.Event()
            with trio.move_on_after(self._limits.flush_s):
                await self._many.wait()
        return bool(self._rows)

    async def _write_batch(self) -> bool:
        """Write the oldest rows; False where they are to be tried again."""
        batch = list(islice(self._rows, self._limits.batch))
        try:
            await self._elsewhere(partial(self._store.write, batch))
        except (sqlite3.Error, OSError) as error:
            self._note_failure(error)
            return False
        except Exception:
            # Not the file is at fault, but a row that no file would take.
            self._failures += 1
            self._dropped += len(batch)
            _log.exception("rows of the ledger cannot be written, and are dropped")
        else:
            self._written += len(batch)
        for _ in batch:
            self._rows.popleft()
        if self._failures_in_a_row:
            self._failures_in_a_row = 0
            _log.warning("the ledger is being written again; %d rows were dropped", self._dropped)
        return True

    async def _close(self) -> None:
        try:
            await self._elsewhere(self._store.close)
        except sqlite3.Error as error:
            self._note_failure(error)

    async def _pause(self) -> None:
        limits = self._limits
        doubled: float = limits.first_pause_s * 2.0 ** min(self._failures_in_a_row - 1, 30)
        pause_s = min(doubled, limits.longest_pause_s)
        if self._stopping.is_set():
            await trio.sleep(min(pause_s, limits.first_pause_s))
        else:
            with trio.move_on_after(pause_s):
                await self._stopping.wait()

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._failures_in_a_row += 1
        if self._failures_in_a_row == 1:
            _log.error("the ledger cannot be written, its rows wait: %s", error)


def _thread() -> Elsewhere:
    one_at_a_time = trio.CapacityLimiter(1)

    async def in_thread(call: Callable[[], None]) -> None:
        # At the deadline of the end a thread that hangs in a file system is left behind.
        await trio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=one_at_a_time)

    return in_thread
