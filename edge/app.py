"""The composition root: builds everything from the settings and opens the root nursery.

Nothing else sees the settings; every class below takes its own small frozen value. Nothing here
decides anything about a run.
"""

import time
from collections.abc import Mapping

import trio

from edge.core.admission import AdmissionLimits
from edge.errors import RunCancelled
from edge.generation import Common, Generation
from edge.providers.port import Provider
from edge.runs.admission import Admission
from edge.runs.drain import Drainer
from edge.runs.mirror import MirrorHub
from edge.runs.observers import Observers
from edge.runs.registry import Registry
from edge.runs.run import Desk
from edge.runs.subscription import MirrorLimits
from edge.server import listener
from edge.server.limits import ServerLimits
from edge.server.routing import Handlers, build_app, direct_routes
from edge.settings import Settings
from edge.telemetry.gauges import Sources
from edge.telemetry.ledger import LedgerStatistics, LedgerWriter, MemoryLedger
from edge.telemetry.ledger_file import LedgerFile
from edge.telemetry.logs import RunLog, hide_secrets
from edge.telemetry.metrics import Metrics

CLOSING_S = 2.0
"""How long the clients of cut runs have to take their error event, after the drain."""


class Gateway:
    """A gateway that is put together and not yet listening.

    Attributes:
        common: what outlives every configuration.
        generation: what the current configuration made of it.
        ledger: the rows of its attempts, for whoever built it.
        writer: puts the same rows into a file; None where none is configured.
    """

    def __init__(
        self,
        settings: Settings,
        common: Common,
        ledger: MemoryLedger,
        writer: LedgerWriter | None,
        tracing: "_Tracing | None" = None,
    ) -> None:
        hide_secrets(settings.secrets())
        self.common = common
        self.generation = Generation.build(settings, common)
        self.ledger = ledger
        self.writer = writer
        self._tracing = tracing
        common.metrics.watch(self._sources())

    @classmethod
    def build(cls, settings: Settings) -> "Gateway":
        """Put a gateway together; opens nothing."""
        registry, ledger = Registry(), MemoryLedger()
        observers = Observers([ledger, RunLog(trace_content=settings.telemetry.trace_content)])
        writer = _ledger_writer(settings)
        if writer is not None:
            observers.add(writer)
        tracing = _Tracing(settings, registry) if settings.telemetry.otel else None
        if tracing is not None:
            observers.add(tracing.observe)
        hub = MirrorHub(registry, _mirror_limits(settings))
        observers.add(hub.observe)
        metrics = Metrics()
        observers.add(metrics)
        common = Common(
            registry=registry,
            observers=observers,
            admission=Admission(_admission_limits(settings)),
            drainer=Drainer(),
            hub=hub,
            metrics=metrics,
            leaving=trio.Event(),
            created=int(time.time()),
        )
        return cls(settings, common, ledger, writer, tracing)

    @property
    def settings(self) -> Settings:
        """Those in use."""
        return self.generation.settings

    @property
    def desk(self) -> Desk:
        """What the runs that begin now share."""
        return self.generation.desk

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Those that runs which begin now may ask."""
        return self.generation.providers

    @property
    def handlers(self) -> Handlers:
        """What answers the requests that come now."""
        return self.generation.handlers

    async def reload(self, settings: Settings) -> None:
        """Answer with these settings what comes from now on; what has begun goes on as it was.

        The tables ``server``, ``limits``, ``mirror`` and ``telemetry`` are not looked at.

        Raises:
            ValueError: they cannot be used; nothing has changed then.
        """
        hide_secrets(settings.secrets())
        old = self.generation
        self.generation = Generation.build(settings, self.common, old)
        kept = self.generation.providers.values()
        for provider in old.providers.values():
            if provider not in kept:
                await provider.aclose()

    async def serve(
        self,
        shutdown: trio.Event,
        *,
        task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until ``shutdown``, then let the open runs end within ``drain_s``.

        Reports the addresses listened on, as URLs.
        """
        async with trio.open_nursery() as beside:
            if self.writer is not None:
                beside.start_soon(self.writer.run)
            beside.start_soon(self.common.metrics.run)
            try:
                await self._serve_clients(shutdown, task_status)
            finally:
                with trio.move_on_after(CLOSING_S, shield=True):
                    for provider in self.providers.values():
                        await provider.aclose()
                # Last, so that the rows of runs which were cut are written too.
                if self.writer is not None:
                    self.writer.stop()
                if self._tracing is not None:
                    await self._tracing.aclose()
                beside.cancel_scope.cancel()

    async def _serve_clients(
        self, shutdown: trio.Event, task_status: trio.TaskStatus[list[str]]
    ) -> None:
        server = self.settings.server
        limits = ServerLimits(
            write_timeout_s=server.write_timeout_s,
            max_body_bytes=server.max_body_bytes,
            body_timeout_s=server.body_timeout_s,
            max_head_bytes=server.max_head_bytes,
            header_timeout_s=server.header_timeout_s,
            keep_alive_s=server.keep_alive_s,
            max_connections=server.max_connections,
            drain_s=server.drain_s + CLOSING_S,
            max_websocket_message_bytes=server.max_body_bytes,
            max_frames_per_s=server.max_frames_per_s,
        )
        async with trio.open_nursery() as nursery:
            closing = trio.Event()
            await nursery.start(self.common.watch.run)
            await nursery.start(self.common.heartbeats.run)
            await nursery.start(self.common.drainer.run)
            await nursery.start(self.common.hub.run)
            nursery.start_soon(self._go_down, shutdown, closing)
            await listener.serve(
                build_app(lambda: self.generation.handlers),
                limits,
                binds=[str(address) for address in server.bind],
                shutdown=closing,
                direct=direct_routes(lambda: self.generation.handlers),
                cors=lambda: self.generation.handlers.cors,
                reuse_port=server.workers > 1,
                task_status=task_status,
            )
            nursery.cancel_scope.cancel()

    def _sources(self) -> Sources:
        common, writer = self.common, self.writer
        return Sources(
            pool=lambda: self.desk.dispatcher.statistics(),
            admission=common.admission.statistics,
            observer_failures=lambda: common.observers.failures,
            ledger=writer.statistics if writer is not None else LedgerStatistics,
            mirror=common.hub.statistics,
            drains=lambda: common.drainer.draining,
            tasks=lambda: trio.lowlevel.current_statistics().tasks_living,
        )

    async def _go_down(self, shutdown: trio.Event, closing: trio.Event) -> None:
        """Say so, stop listening, let the open runs end, and cut what is left at last."""
        await shutdown.wait()
        common, server = self.common, self.settings.server
        common.leaving.set()
        await trio.sleep(server.drain_notice_s)
        common.admission.drain()
        common.hub.drain()
        closing.set()
        await trio.sleep(server.drain_s)
        common.registry.stop_all(RunCancelled("the gateway went down before the run's end"))


class _Tracing:
    """Makes spans of runs, and exports them. The SDK is loaded only where it is wanted."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        from edge.telemetry.tracing import RunTracer, otlp_provider

        self._registry = registry
        self._spans = otlp_provider()
        self.observe = RunTracer(
            self._spans.get_tracer("edge"),
            headers_of=self._headers_of,
            pass_on=self._pass_on,
            trace_content=settings.telemetry.trace_content,
        )

    async def aclose(self) -> None:
        """Export what is left, for a bounded time: the exporter's thread may wait for a server."""
        with trio.move_on_after(CLOSING_S, shield=True):
            await trio.to_thread.run_sync(self._spans.shutdown, abandon_on_cancel=True)

    def _headers_of(self, run_id: str) -> dict[str, str]:
        run = self._registry.find(run_id)
        return run.trace_headers if run is not None else {}

    def _pass_on(self, run_id: str, headers: dict[str, str]) -> None:
        run = self._registry.find(run_id)
        if run is not None:
            run.trace_headers = headers


def _ledger_writer(settings: Settings) -> LedgerWriter | None:
    path = settings.telemetry.ledger
    return None if path is None else LedgerWriter(LedgerFile(path))


def _admission_limits(settings: Settings) -> AdmissionLimits:
    limits = settings.limits
    return AdmissionLimits(
        max_runs=limits.max_runs, queue=limits.queue, queue_timeout_s=limits.queue_timeout_s
    )


def _mirror_limits(settings: Settings) -> MirrorLimits:
    mirror = settings.mirror
    return MirrorLimits(
        replay_bytes=mirror.replay_bytes,
        subscriber_buffer=mirror.subscriber_buffer,
        ended_bytes=64 * mirror.replay_bytes,
    )
