"""What a gateway shows of itself, time after time, and whether it grows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import trio

from tests.fakes.raw_client import RawClient, connect
from tests.fakes.scraped import Scraped

MIB = 1024 * 1024
LONGEST_S = 60.0

GAUGES = {
    "memory_bytes": "edge_resident_memory_bytes",
    "files": "edge_open_files",
    "tasks": "edge_tasks",
    "runs": "edge_runs_active",
    "queued": "edge_queue_length",
    "slot_waiters": "edge_slot_waiters",
    "busy_slots": "edge_provider_busy_slots",
    "drains": "edge_drains",
    "rows_waiting": "edge_ledger_waiting_rows",
    "attempts": "edge_attempts_total",
}

COUNTS = {
    "runs": "edge_runs_total",
    "attempts": "edge_attempts_total",
    "rows": "edge_ledger_rows_total",
    "rows_dropped": "edge_ledger_dropped_rows_total",
    "write_failures": "edge_ledger_failures_total",
    "observer_failures": "edge_observer_failures_total",
    "frames_dropped": "edge_mirror_dropped_frames_total",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; ``at_s`` since the first."""

    at_s: float
    memory_bytes: float
    files: float
    tasks: float
    runs: float
    queued: float
    slot_waiters: float
    busy_slots: float
    drains: float
    rows_waiting: float
    attempts: float

    @property
    def is_idle(self) -> bool:
        """Nothing is under way."""
        under_way = (self.runs, self.queued, self.slot_waiters, self.busy_slots, self.drains)
        return not any(under_way) and not self.rows_waiting


class Watch:
    """Looks at a gateway over a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._began = trio.current_time()
        self.samples: list[Sample] = []

    async def scrape(self) -> Scraped:
        """One answer of ``/metrics``."""
        async with connect(self._url, patience_s=LONGEST_S) as client:
            return await _scraped(client)

    async def look(self) -> Sample:
        """One sample, which is not kept."""
        seen = await self.scrape()
        values = {name: seen.total(metric) for name, metric in GAUGES.items()}
        return Sample(round(trio.current_time() - self._began, 2), **values)

    async def look_every(self, seconds: float) -> None:
        """Samples that are kept, until cancelled."""
        while True:
            self.samples.append(await self.look())
            await trio.sleep(seconds)

    async def settled(self, patience_s: float) -> Sample:
        """The first sample in which nothing is under way, or the last one in time."""
        deadline = trio.current_time() + patience_s
        while True:
            sample = await self.look()
            if sample.is_idle or trio.current_time() > deadline:
                return sample
            await trio.sleep(0.1)

    async def counts(self) -> dict[str, int]:
        """The counters, summed over their labels."""
        seen = await self.scrape()
        return {name: int(seen.total(metric)) for name, metric in COUNTS.items()}


async def _scraped(client: RawClient) -> Scraped:
    answer = await client.get("/metrics")
    assert answer.status == 200, answer.head
    return Scraped(answer.body)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The least-squares line's rise for each unit of the first coordinate."""
    count = len(points)
    if count < 2:
        return 0.0
    middle_x = sum(x for x, _ in points) / count
    middle_y = sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def growth(samples: Sequence[Sample], warm_attempts: int) -> dict[str, float]:
    """How memory went once so many attempts had been made; MiB. Empty where they never were."""
    warm = [each for each in samples if each.attempts >= warm_attempts]
    if len(warm) < 2:
        return {}
    over_time = [(each.at_s / 3600, each.memory_bytes / MIB) for each in warm]
    over_attempts = [(each.attempts / 1000, each.memory_bytes / MIB) for each in warm]
    levels = [mib for _, mib in over_time]
    fifth = max(1, len(warm) // 5)
    return {
        "from_s": warm[0].at_s,
        "start": round(sum(levels[:fifth]) / fifth, 2),
        "end": round(sum(levels[-fifth:]) / fifth, 2),
        "highest": round(max(levels), 2),
        "slope_per_hour": round(slope(over_time), 2),
        "slope_per_1000_attempts": round(slope(over_attempts), 4),
    }


def as_json(samples: Sequence[Sample]) -> list[dict[str, float]]:
    """Samples, for a file."""
    return [asdict(sample) for sample in samples]
