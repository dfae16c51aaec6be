"""Metrics for Prometheus: an observer of run events, and what a scrape gets.

Nothing is done for a chunk: an attempt or a run that ends is counted, in some ten dictionary
look-ups and additions (:mod:`edge.telemetry.instruments`). What is so now is read when somebody
asks (:mod:`edge.telemetry.gauges`).

With several workers the supervisor gives them a folder in ``PROMETHEUS_MULTIPROC_DIR``
(:mod:`edge.telemetry.shared_metrics`). Every worker keeps its values in files there, and whichever
is scraped sums up all of them, those of workers that have died included.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count as counting
from pathlib import Path

import trio
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunEvent, RunStarted
from edge.core.verdict import OUTPUT_CATEGORIES
from edge.telemetry.gauges import Gauges, Sources
from edge.telemetry.instruments import Instruments
from edge.telemetry.shared_metrics import FOLDER_VARIABLE

OTHER = "other"
NONE = "none"

EVERY_S = 0.5
"""How often the event loop's lag is measured."""

PUBLISH_EVERY = 2
"""So many times later a worker publishes its gauges to the others."""

MAX_WORDS = 100
"""Values of a label that the program's own words fill. There are some forty categories."""

_WASTED = frozenset({"validation_failed", "upstream_error", "timeout", "cancelled", "drained"})


@dataclass(slots=True)
class _LiveRun:
    """What is remembered of a run until it ends."""

    route: str
    started_at: float
    dispatched: bool = False
    unsound: list[tuple[str, str]] = field(default_factory=list)
    """Provider and form of the calls that were refused last: asked for again, or the end?"""


class Metrics:
    """The metrics of one gateway, on a registry of its own; an observer of run events."""

    def __init__(self) -> None:
        self._shared = FOLDER_VARIABLE in os.environ
        self._registry = CollectorRegistry()
        self._count = Instruments(self._registry)
        self._gauges = Gauges(self._registry, shared=self._shared)
        self._sources: Sources | None = None
        self._live: dict[str, _LiveRun] = {}
        self._models: set[str] = set()
        self._words: set[str] = set()

    def know(self, models: Iterable[str]) -> None:
        """Show these names of models as they are; others are one, ``other``."""
        self._models.update(models)

    def watch(self, sources: Sources) -> None:
        """Read what is so now from these."""
        self._sources = sources

    async def run(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        for turn in counting():
            due = trio.current_time() + EVERY_S
            await trio.sleep_until(due)
            self._count.loop_lag.observe(trio.current_time() - due)
            if self._shared and turn % PUBLISH_EVERY == 0:
                self.publish()

    def publish(self) -> None:
        """Bring the gauges up to date."""
        if self._sources is not None:
            self._gauges.publish(self._sources)

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """What a scrape gets: the body, and its content type as ``accept`` prefers it."""
        self.publish()
        registry = self._registry
        if self._shared and Path(os.environ[FOLDER_VARIABLE]).is_dir():
            # Else the supervisor has died, and this worker, which will end soon, tells its own.
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def __call__(self, event: RunEvent) -> None:
        """Count what the event says."""
        match event:
            case AttemptEnded():
                self._attempt_ended(event)
            case RunEnded():
                self._run_ended(event)
            case AttemptStarted():
                self._attempt_started(event)
            case RunStarted():
                self._live[event.run_id] = _LiveRun(event.route, event.at)

    def _attempt_started(self, event: AttemptStarted) -> None:
        run = self._live.get(event.run_id)
        if run is None:
            return
        if not run.dispatched:
            run.dispatched = True
            self._count.waited(run.route).observe(event.at - run.started_at)
        self._settle(run, "retried")

    def _attempt_ended(self, event: AttemptEnded) -> None:
        count = self._count
        provider = event.provider or NONE
        category = self._word(event.category)
        count.attempts(provider, event.path, event.status, category).inc()
        if event.provider:
            self._measure(event, category)
        if event.status in _WASTED:
            self._waste(event, provider)
        if event.status == "drained" or event.category == "give_up":
            count.give_ups(event.phase or NONE).inc()
        if event.cancel_s is not None:
            count.cancel_latency(provider).observe(event.cancel_s)
        self._note_calls(event, provider)

    def _measure(self, event: AttemptEnded, category: str) -> None:
        """Times and tokens of an attempt that was dispatched."""
        count, usage, first_s = self._count, event.usage, event.first_token_s
        model = event.model if event.model in self._models else OTHER
        of_it = (event.operation, event.provider, model)
        error_type = "" if event.status == "success" else category or event.status
        count.attempt_duration(*of_it, error_type).observe(event.total_s)
        if first_s is not None:
            count.first_token(*of_it).observe(first_s)
            count.held(event.response_mode).observe(event.held_s)
        if usage.reported:
            count.tokens(*of_it, "input").observe(usage.input_tokens)
            count.tokens(*of_it, "output").observe(usage.output_tokens)
            if first_s is not None and usage.output_tokens > 1 and event.status == "success":
                rest_s = max(event.total_s - first_s, 0.0)
                count.per_token(*of_it).observe(rest_s / (usage.output_tokens - 1))

    def _waste(self, event: AttemptEnded, provider: str) -> None:
        usage = event.usage
        if usage.input_tokens:
            self._count.wasted(provider, event.status, "input").inc(usage.input_tokens)
        if usage.output_tokens:
            self._count.wasted(provider, event.status, "output").inc(usage.output_tokens)

    def _note_calls(self, event: AttemptEnded, provider: str) -> None:
        """Count calls that were delivered; what becomes of refused ones, the run will show."""
        is_text = event.category in OUTPUT_CATEGORIES
        if event.status == "success":
            observed = bool(event.category) and not is_text
            for call in event.calls_read:
                read = "native" if call.form == "native" else "recovered"
                verdict = "observed" if observed else "repaired" if call.repaired else read
                self._count.tool_calls(provider, self._word(call.form), verdict).inc()
        elif event.status == "validation_failed" and not is_text:
            run = self._live.get(event.run_id)
            refused = [(provider, self._word(call.form)) for call in event.calls_read]
            if not refused and event.category == "tool_parse":
                refused = [(provider, "native")]  # the model server refused it, and kept it
            if run is not None:
                run.unsound += refused

    def _run_ended(self, event: RunEnded) -> None:
        count = self._count
        run = self._live.pop(event.run_id, None)
        if run is not None:
            self._settle(run, "failed")
        count.runs(event.route, event.response_mode, event.status).inc()
        error_type = "" if event.status == "success" else event.error_type or event.status
        count.run_duration(event.route, self._word(error_type)).observe(event.total_s)

    def _settle(self, run: _LiveRun, verdict: str) -> None:
        for provider, form in run.unsound:
            self._count.tool_calls(provider, form, verdict).inc()
        run.unsound.clear()

    def _word(self, word: str) -> str:
        """A word of the program's own as a label: as it is, unless there are far too many."""
        if word in self._words:
            return word
        if len(self._words) >= MAX_WORDS:
            return OTHER
        self._words.add(word)
        return word
