"""Metrics of what is so now follow those who know it."""

from dataclasses import dataclass, field, replace

import pytest

from edge import __version__
from edge.core.admission import AdmissionStatistics
from edge.core.pool_statistics import PoolStatistics, ProviderStatistics, TargetStatistics
from edge.telemetry.gauges import Sources
from edge.telemetry.ledger import LedgerStatistics
from edge.telemetry.metrics import Metrics
from tests.fakes.scraped import Scraped


@dataclass(frozen=True)
class FakeMirror:
    subscribers: int = 0
    dropped: int = 0
    hopeless: int = 0


GPU1 = ProviderStatistics(
    name="gpu1", max_concurrent=8, busy=3, waiting=2, health="closed", failures=0, resumes_in_s=0
)
GPU2 = replace(GPU1, name="gpu2", max_concurrent=0, busy=0, waiting=0, health="open", failures=5)
TARGET = TargetStatistics(
    name="gpu1/qwen", provider="gpu1", model="qwen", call_validity=0.5, judged=10, penalty=4.0
)


@dataclass
class World:
    """What the gauges are read from."""

    pool: PoolStatistics = PoolStatistics(waiting=2, providers=(GPU1, GPU2), targets=(TARGET,))
    admission: AdmissionStatistics = AdmissionStatistics(
        active=5, queued=4, refused=0, draining=False, mean_run_s=None, keys=()
    )
    failures: int = 0
    ledger: LedgerStatistics = LedgerStatistics()
    mirror: FakeMirror = FakeMirror()
    drains: int = 0
    tasks: int = 0
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.metrics.watch(
            Sources(
                pool=lambda: self.pool,
                admission=lambda: self.admission,
                observer_failures=lambda: self.failures,
                ledger=lambda: self.ledger,
                mirror=lambda: self.mirror,
                drains=lambda: self.drains,
                tasks=lambda: self.tasks,
            )
        )

    def scrape(self) -> Scraped:
        return Scraped(self.metrics.render()[0])


@pytest.fixture
def world() -> World:
    return World()


def test_load_is_shown_as_it_is_when_somebody_asks(world: World) -> None:
    world.drains, world.tasks = 2, 40
    seen = world.scrape()

    assert seen.value("edge_runs_active") == 5
    assert seen.value("edge_queue_length") == 4
    assert seen.value("edge_slot_waiters") == 2
    assert seen.value("edge_drains") == 2
    assert seen.value("edge_tasks") == 40

    world.admission = replace(world.admission, active=0, queued=0)
    assert world.scrape().value("edge_runs_active") == 0


def test_every_provider_has_its_slots_its_health_and_its_targets(world: World) -> None:
    seen = world.scrape()

    assert seen.value("edge_provider_slots", provider="gpu1") == 8
    assert seen.value("edge_provider_busy_slots", provider="gpu1") == 3
    assert seen.value("edge_provider_waiters", provider="gpu1") == 2
    assert seen.value("edge_provider_failures", provider="gpu2") == 5
    of_target = {"provider": "gpu1", "target": "gpu1/qwen"}
    assert seen.value("edge_target_call_validity", **of_target) == 0.5
    assert seen.value("edge_target_penalty", **of_target) == 4


@pytest.mark.parametrize("state", ["closed", "open", "probing", "paused"])
def test_a_breaker_is_in_one_state(world: World, state: str) -> None:
    world.pool = replace(world.pool, providers=(replace(GPU1, health=state),))
    seen = world.scrape()

    assert seen.value("edge_provider_health", provider="gpu1", state=state) == 1
    assert seen.total("edge_provider_health", provider="gpu1") == 1


def test_a_provider_that_is_configured_no_more_is_shown_no_more(world: World) -> None:
    world.scrape()
    world.pool = replace(world.pool, providers=(GPU2,), targets=())
    seen = world.scrape()

    assert seen.labels("edge_provider_slots", "provider") == {"gpu2"}
    assert seen.labels("edge_target_penalty", "provider") == set()


def test_counts_that_others_keep_are_followed(world: World) -> None:
    world.scrape()
    world.failures = 3
    world.admission = replace(world.admission, refused=7)
    world.ledger = LedgerStatistics(written=100, waiting=5, dropped=2, failures=1)
    world.mirror = FakeMirror(subscribers=4, dropped=20, hopeless=1)
    world.scrape()
    world.mirror = FakeMirror(subscribers=3, dropped=25, hopeless=1)
    seen = world.scrape()

    assert seen.value("edge_observer_failures_total") == 3
    assert seen.value("edge_refused_runs_total") == 7
    assert seen.value("edge_ledger_rows_total") == 100
    assert seen.value("edge_ledger_waiting_rows") == 5
    assert seen.value("edge_ledger_dropped_rows_total") == 2
    assert seen.value("edge_ledger_failures_total") == 1
    assert seen.value("edge_mirror_subscribers") == 3
    assert seen.value("edge_mirror_dropped_frames_total") == 25
    assert seen.value("edge_mirror_hopeless_total") == 1


def test_a_count_never_falls(world: World) -> None:
    world.mirror = FakeMirror(dropped=20)
    world.scrape()
    world.mirror = FakeMirror(dropped=5)  # a follower has gone, and its count with it
    assert world.scrape().value("edge_mirror_dropped_frames_total") == 20
    world.mirror = FakeMirror(dropped=6)
    assert world.scrape().value("edge_mirror_dropped_frames_total") == 21


def test_the_process_says_what_it_is_and_what_it_takes(world: World) -> None:
    seen = world.scrape()

    assert seen.value("edge_info", version=__version__) == 1
    memory, files = seen.value("edge_resident_memory_bytes"), seen.value("edge_open_files")
    assert memory is not None
    assert memory > 1_000_000
    assert files is not None
    assert files >= 3


def test_without_sources_nothing_is_read_and_nothing_fails() -> None:
    assert Scraped(Metrics().render()[0]).value("edge_runs_active") is not None
