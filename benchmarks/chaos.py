"""Providers, workers and clients die at random, and the books are reconciled.

    python -m benchmarks.chaos                       # two minutes
    python -m benchmarks.chaos --seconds 20

``edge serve --workers 2`` with a SQLite ledger, three provider processes behind it, and clients
that ask in many ways, leave and reset. Meanwhile providers and workers get SIGKILL, and providers
are started again (workers are, by their supervisor). Then: every request that was answered is in
the log and in the ledger once; what is missing there ended in the last moment before its worker
was killed; nothing runs at a provider for nobody; and the gateway serves as before and ends with
0. Exit status 1 where a sum does not come out.
"""

import argparse
import json
import os
import platform
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import trio
import trio_websocket

from benchmarks import processes
from benchmarks.endurance import books as bookkeeping
from benchmarks.endurance import disturbed
from benchmarks.endurance.asks import KINDS, Mix
from benchmarks.endurance.books import (
    Books,
    Files,
    Journal,
    read_journal,
    read_ledger_rows,
    read_log,
)
from benchmarks.endurance.clients import HttpClient, Told, run_socket
from benchmarks.endurance.disturbed import Kill, Losses
from benchmarks.endurance.owners import Owners
from benchmarks.endurance.samples import Sample, Watch
from benchmarks.percentiles import summary_us
from benchmarks.processes import Server, tree
from benchmarks.soak import render
from tests.fakes.raw_client import connect

RESULTS = Path(__file__).resolve().parent / "results"
PROVIDERS = ("one", "two", "three")
PATIENCE_S = 60.0

WRITTEN_WITHIN_S = 5.0
"""The oldest row that may be lost with a worker: 0.25 s of waiting for others, and its writing,
which on a machine with much to do takes its time."""

NOTICED_WITHIN_S = 30.0
"""It takes milliseconds on a machine that has time (``noticed_us``); what is never noticed is what
this is about."""

NO_SOCKET = (
    OSError,
    trio.BrokenResourceError,
    trio_websocket.HandshakeError,
    trio_websocket.ConnectionClosed,
)

# Asking by id goes to whichever worker takes the connection, and so does not find every run.
ASKED = tuple(kind for kind in KINDS if kind.leaving != "cancels" and kind.route != "narrow")

GATEWAY = """\
[server]
bind = ["127.0.0.1:{port}"]
workers = 2
drain_s = 5

[telemetry]
ledger = "{ledger}"

{providers}
[[routes]]
model = "live"
targets = {targets}

[[routes]]
model = "held"
targets = {targets}
[routes.output]
buffer = "full"

[[routes]]
model = "passed"
targets = {tunnels}
[routes.output]
buffer = "off"
validate = "off"

[[routes]]
model = "drained"
targets = {targets}
"""

PROVIDER = """\
[[providers]]
name = "{name}"
base_url = "http://127.0.0.1:{port}/{name}/v1"
path = "{path}"

"""


@dataclass
class ProviderProcess:
    """A provider that is killed and started again, with a journal for each of its lives."""

    name: str
    folder: Path
    port: int = field(default_factory=processes.free_port)
    lives: int = 0
    server: Server | None = None

    def start(self) -> None:
        """Start it, and wait until it serves; blocks."""
        self.begin()
        self.wait()

    def begin(self) -> None:
        """Start it."""
        self.lives += 1
        command = [sys.executable, "-m", "benchmarks.endurance.provider"]
        command += ["--port", str(self.port), "--journal", str(self._journal(self.lives))]
        self.server = Server(command, self.folder / f"{self.name}.log")

    def wait(self) -> None:
        """Wait until it serves; blocks."""
        assert self.server is not None
        self.server.wait_for_port(self.port, PATIENCE_S)

    def kill(self) -> None:
        """Kill it."""
        assert self.server is not None
        os.kill(self.server.pid, signal.SIGKILL)
        self.server.process.wait()

    def journals(self) -> list[Journal]:
        """What it wrote down in each of its lives."""
        paths = [self._journal(life) for life in range(1, self.lives + 1)]
        return [read_journal(path, killed=path is not paths[-1]) for path in paths if path.exists()]

    def _journal(self, life: int) -> Path:
        return self.folder / f"journal-{self.name}-{life}"


@dataclass
class World(Files):
    """What lives and dies."""

    dice: random.Random
    url: str = ""
    edge: Server | None = None
    providers: list[ProviderProcess] = field(default_factory=list)
    worker_kills: list[Kill] = field(default_factory=list)
    provider_kills: int = 0
    told: list[Told] = field(default_factory=list)
    status: int | None = None

    def start(self) -> None:
        """Start everything; blocks."""
        self.providers = [ProviderProcess(name, self.folder) for name in PROVIDERS]
        for provider in self.providers:
            provider.begin()
        port = processes.free_port()
        config = self.folder / "edge.toml"
        config.write_text(_configuration(self.providers, port, self.ledger))
        command = [sys.executable, "-m", "edge", "serve", "--config", str(config)]
        self.edge = Server(command, self.log)
        for provider in self.providers:
            provider.wait()
        self.edge.wait_for_line(b"edge: serving", PATIENCE_S)
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop everything, the gateway first and by its own drain; blocks."""
        if self.edge is not None:
            self.edge.process.terminate()
            try:
                self.status = self.edge.process.wait(PATIENCE_S)
            finally:
                self.edge.stop()
        for provider in self.providers:
            if provider.server is not None:
                provider.server.stop()

    def workers(self) -> list[int]:
        """The processes that serve."""
        assert self.edge is not None
        return [pid for pid in tree(self.edge.pid) if pid != self.edge.pid]

    @cached_property
    def _owners(self) -> Owners:
        return Owners(self.workers)

    async def whole(self) -> None:
        """Wait until both workers live, and one serves."""
        with trio.fail_after(PATIENCE_S):
            while True:
                await trio.sleep(0.1)  # nothing tells of it
                if len(self.workers()) == 2 and await self._is_ready():
                    return

    async def _is_ready(self) -> bool:
        try:
            async with connect(self.url) as client:
                return (await client.get("/readyz")).status == 200
        except OSError:
            return False

    async def disturb(self, seconds: float) -> None:
        """Load the gateway while its parts die."""
        deadline = trio.current_time() + seconds
        mix = Mix(ASKED, self.dice.randrange(1 << 30))
        async with trio.open_nursery() as clients:
            for number in range(12):
                clients.start_soon(self._http_client, mix, deadline)
                if number < 2:
                    clients.start_soon(self._socket_client, mix, deadline, number)
            with trio.move_on_at(deadline):
                async with trio.open_nursery() as killers:
                    killers.start_soon(self._kill_workers, min(seconds, 50.0))
                    killers.start_soon(self._kill_providers, min(seconds, 30.0))
            # Whoever is dead at that moment comes back: the last clients still wait for answers.
            for provider in self.providers:
                if provider.server is not None and provider.server.process.poll() is not None:
                    await trio.to_thread.run_sync(provider.start)

    async def _http_client(self, mix: Mix, deadline: float) -> None:
        client = HttpClient(self.url, self._owners.of)
        while trio.current_time() < deadline:
            ask = mix.draw()
            if ask.kind.socket:
                continue
            self.told.append(await client.carry(ask))
            if self.told[-1].end == "refused":
                await trio.sleep(0.2)
        await client.aclose()

    async def _socket_client(self, mix: Mix, deadline: float, number: int) -> None:
        opened = 0
        while trio.current_time() < deadline:
            opened += 1
            try:
                async with run_socket(
                    self.url, f"socket-{number}-{opened}", self._owners.of
                ) as socket:
                    while trio.current_time() < deadline:
                        ask = mix.draw()
                        if ask.kind.leaving or ask.kind.route == "passed":
                            continue
                        self.told.append(await socket.carry(ask))
                        if self.told[-1].end == "cut":
                            break
            except* NO_SOCKET:
                await trio.sleep(0.2)

    async def _kill_workers(self, span_s: float) -> None:
        while True:
            await trio.sleep(self.dice.uniform(0.2, 0.4) * span_s)
            if workers := self.workers():
                pid = self.dice.choice(workers)
                os.kill(pid, signal.SIGKILL)
                self.worker_kills.append(Kill(pid, time.time(), time.monotonic_ns()))

    async def _kill_providers(self, span_s: float) -> None:
        while True:
            await trio.sleep(self.dice.uniform(0.05, 0.2) * span_s)
            provider = self.dice.choice(self.providers)
            provider.kill()
            self.provider_kills += 1
            await trio.sleep(self.dice.uniform(0.0, 0.5))
            await trio.to_thread.run_sync(provider.start)


def _configuration(providers: list[ProviderProcess], port: int, ledger: Path) -> str:
    tables = "".join(
        PROVIDER.format(name=name, port=each.port, path=path)
        for each in providers
        for name, path in ((each.name, "normalized"), (f"tunnel-{each.name}", "tunnel"))
    )

    def targets(prefix: str) -> str:
        named = ", ".join(f'{{ provider = "{prefix}{each.name}" }}' for each in providers)
        return f"[{named}]"

    return GATEWAY.format(
        port=port,
        ledger=ledger,
        providers=tables,
        targets=targets(""),
        tunnels=targets("tunnel-"),
    )


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The gateway once everybody has gone."""

    sample: Sample
    counts: dict[str, int]
    workers: int


async def live_through(world: World, seconds: float) -> Aftermath:
    """Disturb it, then look at it in peace."""
    with trio.fail_after(seconds + PATIENCE_S):
        await world.disturb(seconds)
    await world.whole()
    # Each worker shows its numbers to the other once a second.
    sample = await Watch(world.url).settled(PATIENCE_S)
    return Aftermath(sample, await Watch(world.url).counts(), len(world.workers()))


def chaos(folder: Path, seconds: float, seed: int) -> tuple[Books, dict[str, Any]]:
    """The whole of it: live through it and reconcile."""
    world = World(folder, random.Random(seed))  # noqa: S311 - chance, no secret
    try:
        world.start()
        aftermath = trio.run(partial(live_through, world, seconds))
    finally:
        world.stop()
    return reconcile(world, aftermath)


def reconcile(world: World, aftermath: Aftermath) -> tuple[Books, dict[str, Any]]:
    """All sums, and the figures that they leave."""
    journals = [journal for provider in world.providers for journal in provider.journals()]
    served = [each for journal in journals for each in journal.served]
    log, rows, kills = read_log(world.log), read_ledger_rows(world.ledger), world.worker_kills
    books = Books(world.told, rows, log, served, in_peace=False)
    losses = Losses(kills, WRITTEN_WITHIN_S)
    disturbed.reconcile_rows(books, losses)
    disturbed.reconcile_requests(books, losses)
    disturbed.reconcile_ends(books, losses)
    again = bookkeeping.reconcile_providers(books)
    disturbed.reconcile_providers(books, losses)
    late = disturbed.reconcile_orphans(books, journals, kills, NOTICED_WITHIN_S)
    _reconcile_gateway(books, world, aftermath)
    return books, {
        "requests": len(world.told),
        "ends": dict(Counter(told.end for told in world.told)),
        "runs": len(log.runs),
        "rows": sum(map(len, rows.values())),
        "requests_at_providers": len(served),
        "workers_killed": len(kills),
        "providers_killed": world.provider_kills,
        "runs_whose_rows_went_down_with_a_worker": losses.rows,
        "oldest_of_these_s": round(losses.oldest_s, 3),
        "answers_whose_line_went_down_with_a_worker": losses.lines,
        "requests_whose_run_went_down_or_never_was": losses.under_way,
        "sent_again_on_a_new_connection": again,
        "noticed_us": summary_us(late),
    }


def _reconcile_gateway(books: Books, world: World, aftermath: Aftermath) -> None:
    kills = len(world.worker_kills)
    near = books.sum(
        "the counters of all workers, dead ones too, are the log's, but for one a kill"
    )
    runs = aftermath.counts["runs"]
    near.check(abs(runs - len(books.log.runs)) <= kills, (runs, len(books.log.runs)))
    for name in ("rows_dropped", "observer_failures"):
        near.check(aftermath.counts[name] == 0, (name, aftermath.counts[name]))
    idle = books.sum("no run, no taken slot, nobody who waits")
    idle.check(aftermath.sample.is_idle, aftermath.sample)
    alive = books.sum("two workers serve, and the end is an orderly one")
    alive.check(aftermath.workers == 2, aftermath.workers)
    alive.check(world.status == 0, world.status)
    sound = books.sum("the ledger's file is sound")
    with closing(sqlite3.connect(world.ledger)) as ledger:
        (said,) = ledger.execute("PRAGMA integrity_check").fetchone()
    sound.check(said == "ok", said)
    calm = books.sum("the log tells of no fault but the kills")
    faults = [line for line in books.log.faults if "was killed by SIGKILL" not in line]
    calm.check(not faults, faults[:3])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the numbers go (default: results/)")
    parser.add_argument("--keep", type=Path, help="keep ledger, log and journals in this folder")
    options = parser.parse_args()
    stamp = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="edge-chaos-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        books, figures = chaos(folder, options.seconds, options.seed)
    figures |= {"seconds": options.seconds, "seed": options.seed}
    figures |= {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}
    figures |= {"when": stamp.isoformat(timespec="seconds")}
    print(render(books, figures))
    path = options.json or RESULTS / f"{stamp:%Y%m%dT%H%M%S}-chaos.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"figures": figures, "sums": [asdict(each) for each in books.sums]}
    path.write_text(json.dumps(record, indent=1))
    print(f"\nnumbers: {path}")
    return 1 if any(each.faults for each in books.sums) else 0


if __name__ == "__main__":
    sys.exit(main())
