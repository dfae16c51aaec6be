"""The metrics of what is so now: read from those who know when somebody asks, and never pushed.

Counts that others keep (drops, failures) are counters here that follow them. With several workers
each publishes its gauges every second, and what is shown is made of all of them: sums, but for the
validity of tool calls, of which the worst is shown.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge

from edge import __version__
from edge.core.admission import AdmissionStatistics
from edge.core.pool_statistics import PoolStatistics
from edge.telemetry.ledger import LedgerStatistics

HEALTHS = ("closed", "open", "probing", "paused")

Together: TypeAlias = Literal["livesum", "livemin", "livemax"]
"""What several workers' values are together."""


class MirrorCounts(Protocol):
    """What the mirror knows of itself."""

    @property
    def subscribers(self) -> int:
        """Followers now."""
        ...

    @property
    def dropped(self) -> int:
        """Frames that followers have missed, ever."""
        ...

    @property
    def hopeless(self) -> int:
        """Followers that were sent away for not reading, ever."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Who knows what; every function is asked at each scrape, and must be quick."""

    pool: Callable[[], PoolStatistics]
    admission: Callable[[], AdmissionStatistics]
    observer_failures: Callable[[], int]
    ledger: Callable[[], LedgerStatistics]
    mirror: Callable[[], MirrorCounts]
    drains: Callable[[], int]
    tasks: Callable[[], int]


class _Level:
    """A gauge of one value for each label."""

    def __init__(self, gauge: Gauge, *, forgets: bool) -> None:
        self._gauge = gauge
        self._forgets = forgets
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: dict[tuple[str, ...], float]) -> None:
        """Show these, and no more what is not among them."""
        for labels in self._shown - values.keys():
            # What several workers share can be set to nothing, and not be taken out.
            self._gauge.remove(*labels) if self._forgets else self._gauge.labels(*labels).set(0)
        for labels, value in values.items():
            (self._gauge.labels(*labels) if labels else self._gauge).set(value)
        self._shown = set(values)


class _Follower:
    """A counter that follows a count somebody else keeps."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._last = 0

    def follow(self, count: int) -> None:
        """Count what has come since the last time."""
        if count > self._last:
            self._counter.inc(count - self._last)
        self._last = count


class Gauges:
    """All of them.

    Args:
        registry: where they are.
        shared: several workers publish theirs together.
    """

    def __init__(self, registry: CollectorRegistry, *, shared: bool) -> None:
        self._registry = registry
        self._shared = shared
        self._add_load()
        self._add_providers()
        self._add_watchers()
        self._level(
            "edge_info", "1, and the version as a label.", ("version",), together="livemax"
        ).show({(__version__,): 1})

    def _add_load(self) -> None:
        self._runs = self._level("edge_runs_active", "Runs under way.")
        self._queued = self._level("edge_queue_length", "Runs that wait to be let in.")
        self._refused = self._follower("edge_refused_runs", "Runs that were not let in.")
        self._for_slots = self._level("edge_slot_waiters", "Runs that wait for a provider's slot.")
        self._drains = self._level(
            "edge_drains", "Answers that are read on for the bill after their client has gone."
        )
        self._memory = self._level(
            "edge_resident_memory_bytes", "Memory of the process, as far as it is in use."
        )
        self._files = self._level("edge_open_files", "Open descriptors of the process.")
        self._tasks = self._level("edge_tasks", "Tasks of the event loop.")

    def _add_providers(self) -> None:
        of_provider, of_target = ("provider",), ("provider", "target")
        self._slots = self._level("edge_provider_slots", "Slots, 0 for no cap.", of_provider)
        self._busy = self._level("edge_provider_busy_slots", "Slots that are taken.", of_provider)
        self._waiting = self._level(
            "edge_provider_waiters", "Runs that would take one of its slots.", of_provider
        )
        self._health = self._level(
            "edge_provider_health",
            "1 for the state its breaker is in: closed (well), open, probing or paused.",
            ("provider", "state"),
        )
        self._failures = self._level(
            "edge_provider_failures", "Failures in a row.", of_provider, together="livemax"
        )
        self._validity = self._level(
            "edge_target_call_validity",
            "Measured share of sound tool calls.",
            of_target,
            together="livemin",
        )
        self._penalty = self._level(
            "edge_target_penalty",
            "The factor on its load when the least busy is chosen.",
            of_target,
            together="livemax",
        )

    def _add_watchers(self) -> None:
        self._observer_failures = self._follower(
            "edge_observer_failures", "Run events that something watching choked on."
        )
        self._rows = self._follower("edge_ledger_rows", "Rows in the ledger's file.")
        self._rows_waiting = self._level("edge_ledger_waiting_rows", "Rows not yet written.")
        self._rows_dropped = self._follower("edge_ledger_dropped_rows", "Rows that are lost.")
        self._write_failures = self._follower(
            "edge_ledger_failures", "Writes that failed; they are tried again."
        )
        self._followers = self._level("edge_mirror_subscribers", "Followers of runs.")
        self._frames_dropped = self._follower(
            "edge_mirror_dropped_frames", "Frames that followers missed for not reading."
        )
        self._sent_away = self._follower(
            "edge_mirror_hopeless", "Followers that were sent away for not reading."
        )

    def publish(self, sources: Sources) -> None:
        """Take over what is so now."""
        admission, pool = sources.admission(), sources.pool()
        ledger, mirror = sources.ledger(), sources.mirror()
        self._runs.show({(): admission.active})
        self._queued.show({(): admission.queued})
        self._refused.follow(admission.refused)
        self._for_slots.show({(): pool.waiting})
        self._drains.show({(): sources.drains()})
        self._memory.show({(): _resident_bytes()})
        self._files.show({(): _open_files()})
        self._tasks.show({(): sources.tasks()})
        self._publish_pool(pool)
        self._observer_failures.follow(sources.observer_failures())
        self._rows.follow(ledger.written)
        self._rows_waiting.show({(): ledger.waiting})
        self._rows_dropped.follow(ledger.dropped)
        self._write_failures.follow(ledger.failures)
        self._followers.show({(): mirror.subscribers})
        self._frames_dropped.follow(mirror.dropped)
        self._sent_away.follow(mirror.hopeless)

    def _publish_pool(self, pool: PoolStatistics) -> None:
        providers, targets = pool.providers, pool.targets
        self._slots.show({(each.name,): each.max_concurrent for each in providers})
        self._busy.show({(each.name,): each.busy for each in providers})
        self._waiting.show({(each.name,): each.waiting for each in providers})
        self._failures.show({(each.name,): each.failures for each in providers})
        self._health.show(
            {
                (each.name, state): float(each.health == state)
                for each in providers
                for state in HEALTHS
            }
        )
        self._validity.show({(each.provider, each.name): each.call_validity for each in targets})
        self._penalty.show({(each.provider, each.name): each.penalty for each in targets})

    def _level(
        self,
        name: str,
        help_text: str,
        labels: tuple[str, ...] = (),
        *,
        together: Together = "livesum",
    ) -> _Level:
        gauge = Gauge(name, help_text, labels, registry=self._registry, multiprocess_mode=together)
        return _Level(gauge, forgets=not self._shared)

    def _follower(self, name: str, help_text: str) -> _Follower:
        return _Follower(Counter(name, help_text, registry=self._registry))


def _resident_bytes() -> int:
    """Of this process; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return 0
