"""Half an hour of mixed load, and books that must agree to the last request.

    python -m benchmarks.soak                     # 30 minutes
    python -m benchmarks.soak --minutes 1         # a quick look

One gateway with a SQLite ledger, a provider process that does what each request tells it, and
clients that ask in every way there is (``endurance/asks.py``): a fifth of them give up, a tenth is
answered with malformed calls, and for one in twenty the provider dies. At the end every request
must be found in the log, in the ledger and at the provider, once and with the right end; slots,
tasks and descriptors must be back; and memory must not have grown. Exit status 1 where a sum does
not come out.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import trio

from benchmarks import processes
from benchmarks.endurance import books as bookkeeping
from benchmarks.endurance.asks import KINDS, Mix
from benchmarks.endurance.books import Books, Files
from benchmarks.endurance.clients import Follower, HttpClient, RunSocket, Told, run_socket
from benchmarks.endurance.samples import Sample, Watch, as_json, growth
from benchmarks.percentiles import summary_us
from benchmarks.processes import Server

RESULTS = Path(__file__).resolve().parent / "results"
SOCKETS = 2
WARM_ATTEMPTS = 15_000
"""By then the newest rows, runs and frames, which are kept in memory, have reached their bounds."""

MAY_GROW_MIB_PER_HOUR = 4.0
LONG_S = 900.0
"""A shorter run says nothing of growth."""

GATEWAY = """\
[server]
bind = ["127.0.0.1:{port}"]

[telemetry]
ledger = "{ledger}"

# No deadline may pass only because the machine is busy with something else.
[limits]
queue_timeout_s = 120

[[providers]]
name = "a"
base_url = "http://127.0.0.1:{provider}/a/v1"
connect_timeout_s = 60
max_concurrent = {slots}

[[providers]]
name = "b"
base_url = "http://127.0.0.1:{provider}/b/v1"
connect_timeout_s = 60
max_concurrent = {slots}

[[providers]]
name = "tunnel-a"
base_url = "http://127.0.0.1:{provider}/tunnel-a/v1"
connect_timeout_s = 60
path = "tunnel"
max_concurrent = {slots}

[[providers]]
name = "tunnel-b"
base_url = "http://127.0.0.1:{provider}/tunnel-b/v1"
connect_timeout_s = 60
path = "tunnel"
max_concurrent = {slots}

[[providers]]
name = "narrow"
base_url = "http://127.0.0.1:{provider}/narrow/v1"
connect_timeout_s = 60
max_concurrent = 2

[[providers]]
name = "drained"
base_url = "http://127.0.0.1:{provider}/drained/v1"
connect_timeout_s = 60
max_concurrent = {slots}
on_give_up = "drain"
drain_s = 60
drain_tokens = 20

[[routes]]
model = "live"
targets = [{{ provider = "a" }}, {{ provider = "b" }}]

[[routes]]
model = "held"
targets = [{{ provider = "a" }}, {{ provider = "b" }}]
[routes.output]
buffer = "full"

[[routes]]
model = "passed"
targets = [{{ provider = "tunnel-a" }}, {{ provider = "tunnel-b" }}]
[routes.output]
buffer = "off"
validate = "off"

[[routes]]
model = "narrow"
targets = [{{ provider = "narrow" }}]

[[routes]]
model = "drained"
targets = [{{ provider = "drained" }}]

[output]
heartbeat_s = 1
"""


@dataclass
class Place(Files):
    """Where a soak happens: its files and its processes."""

    concurrency: int
    url: str = ""
    started: list[Server] = field(default_factory=list)

    @property
    def journal(self) -> Path:
        """What the provider writes down."""
        return self.folder / "journal"

    def start(self) -> None:
        """Start the provider and the gateway."""
        provider, port = processes.free_port(), processes.free_port()
        command = [sys.executable, "-m", "benchmarks.endurance.provider"]
        command += ["--port", str(provider), "--journal", str(self.journal)]
        self._start(command, self.folder / "provider.log", provider)
        config = self.folder / "edge.toml"
        config.write_text(
            GATEWAY.format(port=port, provider=provider, ledger=self.ledger, slots=self.concurrency)
        )
        command = [sys.executable, "-m", "edge", "serve", "--config", str(config)]
        self._start(command, self.log, port)
        self.url = f"http://127.0.0.1:{port}"

    def stop(self) -> None:
        """Stop both, the gateway first; says so of one that has ended by itself."""
        for server in reversed(self.started):
            if end := server.end():
                print(f"# {end}", file=sys.stderr)
            server.stop()

    def _start(self, command: list[str], log: Path, port: int) -> None:
        server = Server(command, log)
        self.started.append(server)
        server.wait_for_port(port)


@dataclass
class Load:
    """Clients, so many at once."""

    url: str
    concurrency: int
    mix: Mix
    name: str
    told: list[Told] = field(default_factory=list)

    async def run(self, seconds: float) -> None:
        """Ask until the time is over, and see every request to its end."""
        async with AsyncExitStack() as stack:
            opening = [run_socket(self.url, f"{self.name}-{n}") for n in range(SOCKETS)]
            sockets = [await stack.enter_async_context(each) for each in opening]
            deadline = trio.current_time() + seconds
            async with trio.open_nursery() as nursery:
                for number in range(self.concurrency):
                    socket = sockets[number % SOCKETS]
                    nursery.start_soon(self._client, socket, deadline)
            strays = [stray for socket in sockets for stray in socket.strays]
            if strays:
                raise AssertionError(f"messages that belong to no request: {strays[:3]}")

    async def _client(self, socket: RunSocket, deadline: float) -> None:
        client = HttpClient(self.url)
        while trio.current_time() < deadline:
            ask = self.mix.draw()
            carry = socket.carry if ask.kind.socket else client.carry
            self.told.append(await carry(ask))
        await client.aclose()


@dataclass
class Found:
    """What was seen while the gateway lived."""

    told: list[Told]
    samples: list[Sample]
    before: Sample
    after: Sample
    connections_before: int
    connections_after: int
    counts: dict[str, int]
    follower: Follower
    seconds: float


async def soak(place: Place, seconds: float, seed: int) -> Found:
    """Load a gateway, and look at it before, meanwhile and afterwards."""
    watch, follower = Watch(place.url), Follower()
    async with trio.open_nursery() as nursery:
        await nursery.start(follower.follow, place.url)
        # What is only made once (the ledger's descriptors, the first connections) is made here.
        first = Load(place.url, place.concurrency, Mix(KINDS, seed + 1, "first"), "sockets-first")
        await first.run(3.0)
        before = await watch.settled(30.0)
        connections_before = bookkeeping.read_journal(place.journal).open_connections
        load = Load(place.url, place.concurrency, Mix(KINDS, seed), "sockets")
        began = time.monotonic()
        async with trio.open_nursery() as looking:
            looking.start_soon(watch.look_every, max(1.0, min(15.0, seconds / 60)))
            looking.start_soon(_say_how_it_goes, load, watch)
            await load.run(seconds)
            looking.cancel_scope.cancel()
        lasted = time.monotonic() - began
        after = await _as_before(place, watch, before, connections_before)
        counts = await watch.counts()
        await trio.sleep(0.5)  # for what the follower has yet to read
        nursery.cancel_scope.cancel()
    return Found(
        told=first.told + load.told,
        samples=watch.samples,
        before=before,
        after=after,
        connections_before=connections_before,
        connections_after=bookkeeping.read_journal(place.journal).open_connections,
        counts=counts,
        follower=follower,
        seconds=lasted,
    )


async def _as_before(place: Place, watch: Watch, before: Sample, connections: int) -> Sample:
    """Wait until tasks and descriptors are what they were; the last look."""
    deadline = trio.current_time() + 30.0
    while True:
        after = await watch.settled(30.0)
        opened = bookkeeping.read_journal(place.journal).open_connections - connections
        same = after.tasks == before.tasks and after.files == before.files + opened
        if same or trio.current_time() > deadline:
            return after
        await trio.sleep(1.0)


async def _say_how_it_goes(load: Load, watch: Watch) -> None:
    while True:
        await trio.sleep(60.0)
        last = watch.samples[-1]
        mib = last.memory_bytes / 2**20
        print(
            f"# {last.at_s:.0f} s: {len(load.told)} requests, {mib:.1f} MiB, "
            f"{last.files:.0f} descriptors, {last.tasks:.0f} tasks",
            file=sys.stderr,
            flush=True,
        )


def reconcile(place: Place, found: Found) -> tuple[Books, dict[str, Any]]:
    """All sums, and the figures that they leave."""
    journal = bookkeeping.read_journal(place.journal)
    log = bookkeeping.read_log(place.log)
    rows = bookkeeping.read_ledger_rows(place.ledger)
    books = Books(found.told, rows, log, journal.served)
    bookkeeping.reconcile_rows(books)
    unborn = bookkeeping.reconcile_requests(books)
    bookkeeping.reconcile_ends(books)
    again = bookkeeping.reconcile_providers(books)
    bookkeeping.reconcile_orphans(books, [journal])
    reconcile_gateway(books, found)
    groups = Counter(told.ask.kind.group for told in found.told)
    noticed = bookkeeping.noticed_ns(books)
    return books, {
        "seconds": round(found.seconds, 1),
        "requests": len(found.told),
        "requests_per_s": round(len(found.told) / found.seconds, 1),
        "shares_percent": {
            group: round(100 * count / len(found.told), 1) for group, count in groups.items()
        },
        "runs": len(log.runs),
        "rows": sum(map(len, rows.values())),
        "requests_at_the_provider": len(journal.served),
        "left_before_they_were_a_run": unborn,
        "sent_again_on_a_new_connection": again,
        "noticed_us": summary_us(noticed),
        "frames_missed_by_the_follower": found.follower.missed,
        "memory_mib": growth(found.samples, WARM_ATTEMPTS),
        "before": asdict(found.before),
        "after": asdict(found.after),
        "connections_to_the_provider": [found.connections_before, found.connections_after],
    }


def reconcile_gateway(books: Books, found: Found) -> None:
    """What the gateway shows of itself fits the books, and it is as it was."""
    rows, counts = sum(map(len, books.rows.values())), found.counts
    told = books.sum("the gateway's counters are the books' sums")
    for name, right in (("runs", len(books.log.runs)), ("attempts", rows), ("rows", rows)):
        told.check(counts[name] == right, (name, counts[name], right))
    for name in ("rows_dropped", "write_failures", "observer_failures"):
        told.check(counts[name] == 0, (name, counts[name]))
    seen = books.sum("the mirror told its follower of every run's end")
    ends = found.follower.finished
    right = ends == len(books.log.runs) or found.follower.missed > 0
    seen.check(right and not found.follower.sent_away, (ends, found.follower))
    calm = books.sum("the log tells of no fault of the gateway's")
    calm.check(not books.log.faults, books.log.faults[:3])
    before, after = found.before, found.after
    idle = books.sum("no run, no taken slot, nobody who waits")
    idle.check(after.is_idle, after)
    tasks = books.sum("as many tasks as before")
    tasks.check(after.tasks == before.tasks, (before.tasks, after.tasks))
    files = books.sum("as many descriptors as before, idle connections to providers counted out")
    opened = found.connections_after - found.connections_before
    files.check(after.files == before.files + opened, (before.files, after.files, opened))
    flat = books.sum(f"memory grows by less than {MAY_GROW_MIB_PER_HOUR:g} MiB an hour")
    if found.seconds >= LONG_S:
        went = growth(found.samples, WARM_ATTEMPTS)
        flat.check(went.get("slope_per_hour", 0.0) < MAY_GROW_MIB_PER_HOUR, went)


def render(books: Books, figures: dict[str, Any]) -> str:
    """Sums and figures, as tables."""
    lines = ["| sum | looked at | wrong |", "| --- | --- | --- |"]
    lines += [f"| {each.says} | {each.checked} | {each.faults} |" for each in books.sums]
    lines += ["", "| figure | |", "| --- | --- |"]
    lines += [f"| {name} | {json.dumps(value)} |" for name, value in figures.items()]
    for each in books.sums:
        lines += [f"WRONG: {each.says}: {example}" for example in each.examples]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--concurrency", type=int, default=24, help="clients at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the numbers go (default: results/)")
    parser.add_argument("--keep", type=Path, help="keep ledger, log and journal in this folder")
    options = parser.parse_args()
    processes.raise_descriptor_limit()
    stamp = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="edge-soak-") as temporary:
        place = Place(options.keep or Path(temporary), min(options.concurrency, 512))
        place.folder.mkdir(parents=True, exist_ok=True)
        try:
            place.start()
            found = trio.run(partial(soak, place, options.minutes * 60, options.seed))
        finally:
            place.stop()
        books, figures = reconcile(place, found)
    figures |= {"python": platform.python_version(), "cores": len(os.sched_getaffinity(0))}
    figures |= {"when": stamp.isoformat(timespec="seconds"), "seed": options.seed}
    figures |= {"concurrency": options.concurrency}
    print(render(books, figures))
    path = options.json or RESULTS / f"{stamp:%Y%m%dT%H%M%S}-soak.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {
        "figures": figures,
        "sums": [asdict(each) for each in books.sums],
        "samples": as_json(found.samples),
    }
    path.write_text(json.dumps(record, indent=1))
    print(f"\nnumbers: {path}")
    return 1 if any(each.faults for each in books.sums) else 0


if __name__ == "__main__":
    sys.exit(main())
