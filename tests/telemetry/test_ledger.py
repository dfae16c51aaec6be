"""The writer: what it promises to those who tell it of rows, whatever the file does."""

import logging
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing
from trio.testing import MockClock as Clock

from edge.core.run_events import AttemptEnded
from edge.telemetry.ledger import LedgerLimits, LedgerStatistics, LedgerWriter, MemoryLedger
from edge.telemetry.ledger_file import LedgerFile, read_ledger
from tests.fakes.run_events import attempt_ended, run_ended


class FakeStore:
    """Takes rows; ``broken`` says why it does not, ``gate`` holds it until it is set."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.broken: Exception | None = None
        self.tried_at: list[float] = []
        self.closed = 0
        self.threads: set[int] = set()
        self.gate: threading.Event | None = None
        self.reached = threading.Event()

    def write(self, rows: Sequence[AttemptEnded]) -> None:
        self.threads.add(threading.get_ident())
        self.reached.set()
        if trio.lowlevel.in_trio_run() and trio.lowlevel.in_trio_task():
            self.tried_at.append(trio.current_time())
        if self.gate is not None:
            self.gate.wait(10)
        if self.broken is not None:
            raise self.broken
        self.batches.append([row.run_id for row in rows])

    def close(self) -> None:
        self.closed += 1

    @property
    def rows(self) -> list[str]:
        return [run_id for batch in self.batches for run_id in batch]


async def here(call: Callable[[], None]) -> None:
    """In place of a thread: virtual time does not wait for threads."""
    await trio.lowlevel.checkpoint()
    call()


@asynccontextmanager
async def running(writer: LedgerWriter) -> AsyncGenerator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        try:
            yield
        finally:
            writer.stop()


def tell(writer: LedgerWriter, *numbers: int) -> None:
    for number in numbers:
        writer(attempt_ended(f"run_{number}"))


def names(*numbers: int) -> list[str]:
    return [f"run_{number}" for number in numbers]


FULL = sqlite3.OperationalError("database or disk is full")


async def test_rows_are_written_in_another_thread_and_in_their_order() -> None:
    store = FakeStore()
    writer = LedgerWriter(store)
    async with running(writer):
        tell(writer, *range(5))
        writer(run_ended())

    assert store.rows == names(*range(5))
    assert threading.get_ident() not in store.threads
    assert writer.statistics() == LedgerStatistics(written=5)
    assert store.closed == 1


async def test_a_row_waits_for_others_but_not_longer_than_flush_s(autojump_clock: Clock) -> None:
    store = FakeStore()
    writer = LedgerWriter(store, LedgerLimits(flush_s=5), elsewhere=here)
    async with running(writer):
        await trio.sleep(60)
        tell(writer, 1)
        await trio.sleep(4.9)
        tell(writer, 2)
        assert store.batches == []
        await trio.sleep(0.2)
        assert store.batches == [names(1, 2)]


async def test_a_full_batch_does_not_wait(autojump_clock: Clock) -> None:
    store = FakeStore()
    writer = LedgerWriter(store, LedgerLimits(flush_s=5, batch=3), elsewhere=here)
    async with running(writer):
        await trio.testing.wait_all_tasks_blocked()
        tell(writer, 1)
        await trio.testing.wait_all_tasks_blocked()
        tell(writer, 2, 3, 4)
        await trio.testing.wait_all_tasks_blocked()
        assert store.batches == [names(1, 2, 3)]
        await trio.sleep(5.1)
        assert store.batches == [names(1, 2, 3), names(4)]


async def test_a_batch_that_fails_is_tried_again_and_nothing_is_lost(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore()
    store.broken = FULL
    writer = LedgerWriter(store, elsewhere=here)
    async with running(writer):
        tell(writer, 1, 2)
        await trio.sleep(5)
        tell(writer, 3)
        failures = len(store.tried_at)
        store.broken = None
        await trio.sleep(20)
        assert store.rows == names(1, 2, 3)

    assert failures > 2
    assert writer.statistics() == LedgerStatistics(written=3, failures=failures)
    # One line for the beginning of the outage, one for its end.
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "disk is full" in caplog.text


async def test_pauses_between_tries_grow_up_to_a_bound(autojump_clock: Clock) -> None:
    store = FakeStore()
    store.broken = FULL
    limits = LedgerLimits(flush_s=0, first_pause_s=1, longest_pause_s=8, close_s=0.01)
    async with running(writer := LedgerWriter(store, limits, elsewhere=here)):
        tell(writer, 1)
        await trio.sleep(35)

        pauses = [later - at for at, later in pairwise(store.tried_at)]
        assert pauses == pytest.approx([1, 2, 4, 8, 8, 8])


async def test_a_full_queue_drops_the_newest_and_counts_them(autojump_clock: Clock) -> None:
    store = FakeStore()
    writer = LedgerWriter(store, LedgerLimits(queue=3), elsewhere=here)
    async with running(writer):
        tell(writer, *range(10))
        assert writer.statistics() == LedgerStatistics(waiting=3, dropped=7)

    assert store.rows == names(0, 1, 2)


async def test_telling_of_rows_waits_for_nothing_while_the_file_hangs() -> None:
    store = FakeStore()
    store.gate = threading.Event()
    writer = LedgerWriter(store, LedgerLimits(flush_s=0))
    async with running(writer):
        tell(writer, 1)
        await trio.to_thread.run_sync(store.reached.wait, 10)
        tell(writer, *range(2, 100))
        assert writer.statistics() == LedgerStatistics(waiting=99)
        store.gate.set()

    assert store.rows == names(*range(1, 100))


async def test_the_end_writes_what_is_left_at_once(autojump_clock: Clock) -> None:
    store = FakeStore()
    writer = LedgerWriter(store, LedgerLimits(flush_s=60, batch=2), elsewhere=here)
    async with running(writer):
        await trio.testing.wait_all_tasks_blocked()
        tell(writer, 1)
        await trio.testing.wait_all_tasks_blocked()
        tell(writer, 2, 3)
        began = trio.current_time()

    assert trio.current_time() == began
    assert store.rows == names(1, 2, 3)
    assert store.closed == 1


async def test_cancelling_everything_does_not_lose_the_rows_of_what_is_cancelled() -> None:
    store = FakeStore()
    writer = LedgerWriter(store)

    async def run_of_a_client() -> None:
        try:
            await trio.sleep_forever()
        finally:
            tell(writer, 1)

    async def gateway() -> None:
        try:
            async with trio.open_nursery() as runs:  # noqa: ASYNC112 - the nursery is what is tested
                runs.start_soon(run_of_a_client)
        finally:
            writer.stop()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        nursery.start_soon(gateway)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert store.rows == names(1)


async def test_an_end_that_cannot_be_written_is_bounded_and_its_rows_are_counted(
    autojump_clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore()
    store.broken = FULL
    writer = LedgerWriter(store, LedgerLimits(close_s=3), elsewhere=here)
    async with running(writer):
        tell(writer, 1, 2)
        await trio.sleep(60)
        began = trio.current_time()

    assert trio.current_time() - began == pytest.approx(3)
    assert writer.statistics().dropped == 2
    assert "2 rows are lost" in caplog.text


async def test_a_file_that_hangs_does_not_hold_the_end() -> None:
    store = FakeStore()
    store.gate = threading.Event()
    writer = LedgerWriter(store, LedgerLimits(flush_s=0, close_s=0.01))
    with trio.fail_after(5):
        async with running(writer):
            tell(writer, 1)
            await trio.to_thread.run_sync(store.reached.wait, 10)
    store.gate.set()

    assert writer.statistics().dropped == 1


async def test_rows_that_no_file_takes_do_not_hold_up_the_others(autojump_clock: Clock) -> None:
    store = FakeStore()
    store.broken = UnicodeEncodeError("utf-8", "x", 0, 1, "no")
    writer = LedgerWriter(store, elsewhere=here)
    async with running(writer):
        tell(writer, 1)
        await trio.sleep(1)
        store.broken = None
        tell(writer, 2)

    assert store.rows == names(2)
    assert writer.statistics() == LedgerStatistics(written=1, dropped=1, failures=1)


WRITE_FOR_EVER = """
import itertools, sys
from pathlib import Path
import trio
from edge.telemetry.ledger import LedgerLimits, LedgerWriter
from edge.telemetry.ledger_file import LedgerFile
from tests.fakes.run_events import attempt_ended

async def main():
    writer = LedgerWriter(LedgerFile(Path(sys.argv[1])), LedgerLimits(flush_s=0.005))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        for number in itertools.count():
            writer(attempt_ended(f"run_{number}"))
            if number % 50 == 0:
                print(writer.statistics().written, flush=True)
            await trio.sleep(0.0001)

trio.run(main)
"""


def test_a_killed_process_loses_nothing_that_was_written_and_leaves_a_sound_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = 0
        while told < 300:
            told = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        last = [int(line) for line in process.stdout.read().split()]
    told = max([told, *last])

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with closing(read_ledger(path)) as connection:
        (rows,) = connection.execute("SELECT COUNT(*) FROM attempts").fetchone()
        numbers = connection.execute("SELECT run_id FROM attempts ORDER BY rowid").fetchall()
    assert rows >= told
    assert numbers == [(f"run_{number}",) for number in range(rows)]


async def test_rows_of_a_writer_come_into_the_real_file(tmp_path: Path) -> None:
    writer = LedgerWriter(LedgerFile(tmp_path / "ledger.db"), LedgerLimits(batch=7))
    async with running(writer):
        tell(writer, *range(100))

    with closing(read_ledger(tmp_path / "ledger.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM attempts").fetchone() == (100,)
    assert writer.statistics() == LedgerStatistics(written=100)


def test_the_ledger_in_memory_keeps_the_newest_rows() -> None:
    ledger = MemoryLedger(capacity=2)
    for number in (1, 2, 2):
        ledger(attempt_ended(f"run_{number}"))
    ledger(run_ended())

    assert [row.run_id for row in ledger.rows()] == names(2, 2)
    assert ledger.rows("run_1") == []
