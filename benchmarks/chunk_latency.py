"""The measurement: every phase at every concurrency against one target.

* ``plain``: not streamed, one word back at once. Requests a second, CPU a request.
* ``paced``: streams of chunks in a steady rhythm. The phase to judge latency by: each chunk carries
  the clock of its write, so what it shows is the chunk's whole way, which is compared with the
  direct connection's in the same run. Also time to first chunk and CPU a chunk.
* ``burst``: streams whose chunks follow each other at once. Chunks a second, CPU a chunk.
* ``leave``: clients that hang up while the provider talks, while it is silent in mid-stream, and
  while it has said nothing yet to a request that is not streamed; when the provider notices.
* ``memory``: idle, and with streams held open.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from benchmarks import processes
from benchmarks.floors import Running
from benchmarks.processes import Cores

Result = dict[str, Any]
CROWD = 500  # at this many streams the rhythm is slower: what is asked for stays near one core's


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how many."""

    seconds: float
    concurrency: tuple[int, ...]
    hangups: int
    open_streams: int

    @staticmethod
    def quick() -> "Effort":
        """A look in a minute; its figures are rough."""
        return Effort(1.0, (1, 16), hangups=8, open_streams=64)

    @staticmethod
    def full() -> "Effort":
        """What the README's tables are made of."""
        return Effort(3.0, (1, 16, 128, 1000), hangups=48, open_streams=500)


def rhythm_us(concurrency: int) -> int:
    """Microseconds between two chunks of a paced stream."""
    return 100_000 if concurrency >= CROWD else 10_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """Loads one running target from the load's core."""

    running: Running
    provider_port: int
    cores: Cores
    effort: Effort

    def all_phases(self) -> dict[str, Result]:
        """Every phase by name (``paced@16``)."""
        results = {"idle": self._idle()}
        if self.running.server:
            # Before the loads: what those leave behind would be taken again and look like nothing.
            results["open"] = self.open_streams()
        for concurrency in self.effort.concurrency:
            results[f"plain@{concurrency}"] = self.plain(concurrency)
            results[f"paced@{concurrency}"] = self.paced(concurrency)
            results[f"burst@{concurrency}"] = self.burst(concurrency)
        if not self.running.target.own_provider:
            results |= self.leave()
        return results

    def warm_up(self) -> None:
        """Imports, caches and connections, which are no part of any figure.

        Raises:
            RuntimeError: the target does not answer as it should.
        """
        for options in ({"no_stream": True, "chunks": 1}, {"chunks": 8}):
            result = self._load(concurrency=4, seconds=5, count=40, **options)
            if result["failed"] or not result["finished"]:
                raise RuntimeError(f"no sound answer: {result['first_error']}")

    def plain(self, concurrency: int) -> Result:
        """Requests that are answered with one word at once."""
        return self._load(
            concurrency=concurrency,
            seconds=self.effort.seconds,
            ramp=0.2 if concurrency < CROWD else 1.0,
            no_stream=True,
            chunks=1,
        )

    def paced(self, concurrency: int) -> Result:
        """Streams of 50 chunks in the rhythm of ``rhythm_us``."""
        return self._load(
            concurrency=concurrency,
            seconds=self.effort.seconds,
            ramp=0.5 if concurrency < CROWD else 2.0,
            chunks=50,
            gap_us=rhythm_us(concurrency),
        )

    def burst(self, concurrency: int) -> Result:
        """Streams of 100 chunks, each written as soon as the socket takes it."""
        return self._load(
            concurrency=concurrency, seconds=self.effort.seconds, ramp=0.2, chunks=100
        )

    def leave(self) -> dict[str, Result]:
        """Hang-ups; a client that is shown nothing while it waits leaves after 100 ms."""
        count = self.effort.hangups
        common: dict[str, Any] = {"concurrency": 8, "count": count, "seconds": 10}
        when = {"leave_ms": 100} if self.running.target.held else {"leave_after": 5}
        talking = self._load(**common, **when, chunks=200, gap_us=20_000)
        silent = self._load(**common, **when, chunks=50, gap_us=5_000, silent_after=5)
        unstreamed = self._load(**common, leave_ms=100, no_stream=True, silent_after=0)
        return {
            "leave talking": talking,
            "leave silent": silent,
            "leave unstreamed": unstreamed,
        }

    def open_streams(self) -> Result:
        """Memory with many streams held open, each after its first chunk."""
        assert self.running.server is not None
        pid = self.running.server.pid
        processes.settle(pid)
        before = processes.memory_kib(pid, "Anonymous")
        held = self.running.target.held
        command = self._command(
            concurrency=self.effort.open_streams,
            seconds=3 if held else 20,
            chunks=50,
            gap_us=10_000,
            silent_after=5,
            hold=True,
        )
        with subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as load:
            assert load.stdout is not None and load.stdin is not None  # noqa: PT018
            opened = json.loads(load.stdout.readline())
            after = processes.memory_kib(pid, "Anonymous")
            total = processes.memory_kib(pid)
            load.stdin.close()
        processes.settle(pid)
        streams = self.effort.open_streams
        return {
            "streams": streams,
            "opened": opened["open"],
            "kib": total,
            "kib_per_stream": (after - before) / streams,
            "first_error": opened["first_error"],
        }

    def _idle(self) -> Result:
        server = self.running.server
        return {"kib": processes.memory_kib(server.pid) if server else None}

    def _command(self, **options: Any) -> list[str]:
        target = self.running.target
        shape = {"tools": target.tools, "call": target.call, "held": target.held}
        command = [sys.executable, "-m", "benchmarks.load", "--model", target.model]
        command += ["--port", str(self.running.port), "--provider-port", str(self.provider_port)]
        command += ["--cpu", str(self.cores.load)]
        for name, value in (shape | options).items():
            if value is not False:
                command.append("--" + name.replace("_", "-"))
            if not isinstance(value, bool):
                command.append(str(value))
        return command

    def _load(self, **options: Any) -> Result:
        """Run one load to its end and add what the server spent on it."""
        server = self.running.server
        before = processes.cpu_seconds(server.pid) if server else 0.0
        done = subprocess.run(  # noqa: S603 - our own command
            self._command(**options), capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise RuntimeError(f"the load failed: {done.stderr[-800:]}")
        result: Result = json.loads(done.stdout)
        if server:
            result["cpu_s"] = processes.cpu_seconds(server.pid) - before
            result["kib"] = processes.memory_kib(server.pid)
            processes.settle(server.pid)
        return result
