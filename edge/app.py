"""The composition root: builds everything from the settings and opens the root nursery.

Nothing else sees the settings; every class below takes its own small frozen value. Nothing here
decides anything about a run.
"""

import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

import trio

from edge.core.admission import AdmissionLimits
from edge.core.fleet import ProviderSpec, Route, Target
from edge.core.pool import Pool
from edge.errors import RunCancelled
from edge.providers.openai import OpenAIOptions, OpenAIProvider
from edge.providers.port import Provider
from edge.providers.proxy import proxy_for
from edge.providers.simulated import SimulatedProvider
from edge.providers.transport import Transport, TransportLimits
from edge.runs.admission import Admission
from edge.runs.attempt import Attempts, ProviderOptions
from edge.runs.deadlines import AttemptTimeouts
from edge.runs.dispatch import Dispatcher
from edge.runs.drain import Drainer, DrainTerms
from edge.runs.mirror import MirrorHub
from edge.runs.observers import Observers
from edge.runs.registry import Registry
from edge.runs.run import Desk
from edge.runs.subscription import MirrorLimits
from edge.runs.tunnel import Tunnel
from edge.server import listener
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.chat import ChatHandler
from edge.server.limits import ServerLimits
from edge.server.mirror import MirrorHandler
from edge.server.models import ModelsHandler
from edge.server.operations import OperationsHandler
from edge.server.passthrough import PassThroughHandler
from edge.server.routing import Handlers, build_app, direct_routes
from edge.server.runs import RunsHandler
from edge.settings import ProviderSettings, Settings
from edge.telemetry.ledger import LedgerWriter, MemoryLedger
from edge.telemetry.ledger_file import LedgerFile
from edge.telemetry.logs import RunLog

CLOSING_S = 2.0
"""How long the clients of cut runs have to take their error event, after the drain."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that is put together and not yet listening.

    Attributes:
        ledger: the rows of its attempts, for whoever built it.
        writer: puts the same rows into a file; None where none is configured.
    """

    settings: Settings
    desk: Desk
    providers: Mapping[str, Provider]
    handlers: Handlers
    ledger: MemoryLedger
    drainer: Drainer
    hub: MirrorHub
    writer: LedgerWriter | None = None

    @classmethod
    def build(cls, settings: Settings) -> "Gateway":
        """Put a gateway together; opens nothing."""
        providers = {spec.name: _provider(spec) for spec in settings.providers}
        routes = _routes(settings)
        pool = Pool([_pool_spec(spec) for spec in settings.providers], routes)
        dispatcher = Dispatcher(pool, providers)
        registry, ledger = Registry(), MemoryLedger()
        observers = Observers([ledger, RunLog(trace_content=settings.telemetry.trace_content)])
        writer = _ledger_writer(settings)
        if writer is not None:
            observers.add(writer)
        admission = Admission(_admission_limits(settings))
        drainer = Drainer()
        options = {spec.name: _options(spec) for spec in settings.providers}
        attempts = Attempts(dispatcher, observers, options, drainer)
        desk = Desk(registry, observers, admission, dispatcher, attempts, random.random)
        doorkeeper = _doorkeeper(settings)
        policies = {route.model: route.output for route in settings.routes}
        pass_through = PassThroughHandler(Tunnel(desk, options), dispatcher, doorkeeper, policies)
        hub = MirrorHub(registry, _mirror_limits(settings))
        observers.add(hub.observe)
        handlers = Handlers(
            chat=ChatHandler(desk, doorkeeper, policies, pass_through),
            pass_through=pass_through,
            models=ModelsHandler(routes, providers, doorkeeper, created=int(time.time())),
            runs=RunsHandler(registry, doorkeeper),
            mirror=MirrorHandler(hub, doorkeeper),
            operations=OperationsHandler(routes, dispatcher, lambda: admission.draining),
        )
        return cls(settings, desk, providers, handlers, ledger, drainer, hub, writer)

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
            try:
                await self._serve_clients(shutdown, task_status)
            finally:
                with trio.move_on_after(CLOSING_S, shield=True):
                    for provider in self.providers.values():
                        await provider.aclose()
                # Last, so that the rows of runs which were cut are written too.
                if self.writer is not None:
                    self.writer.stop()

    async def _serve_clients(
        self, shutdown: trio.Event, task_status: trio.TaskStatus[list[str]]
    ) -> None:
        server = self.settings.server
        limits = ServerLimits(
            write_timeout_s=server.write_timeout_s,
            max_body_bytes=server.max_body_bytes,
            drain_s=server.drain_s + CLOSING_S,
            max_websocket_message_bytes=server.max_body_bytes,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(self.drainer.run)
            await nursery.start(self.hub.run)
            nursery.start_soon(self._drain_on, shutdown)
            await listener.serve(
                build_app(self.handlers),
                limits,
                binds=[str(address) for address in server.bind],
                shutdown=shutdown,
                direct=direct_routes(self.handlers),
                reuse_port=server.workers > 1,
                task_status=task_status,
            )
            nursery.cancel_scope.cancel()

    async def _drain_on(self, shutdown: trio.Event) -> None:
        """Refuse new runs once ``shutdown`` is set, and cut what is left when its time is over."""
        await shutdown.wait()
        self.desk.admission.drain()
        self.hub.drain()
        await trio.sleep(self.settings.server.drain_s)
        self.desk.registry.stop_all(RunCancelled("the gateway went down before the run's end"))


def _provider(spec: ProviderSettings) -> Provider:
    if spec.kind == "simulated":
        return SimulatedProvider(spec.name)
    limits = TransportLimits(
        connect_timeout_s=spec.connect_timeout_s,
        ca_file=str(spec.ca_file or ""),
        verify=spec.verify,
        proxy=proxy_for(spec.base_url, os.environ),
    )
    return OpenAIProvider(
        spec.name,
        Transport(spec.base_url, limits, name=spec.name),
        OpenAIOptions(
            api_key=spec.api_key.value if spec.api_key else "",
            can_tunnel=spec.path != "normalized",
        ),
    )


def _pool_spec(spec: ProviderSettings) -> ProviderSpec:
    return ProviderSpec(
        name=spec.name,
        max_concurrent=spec.max_concurrent,
        normalized=spec.path != "tunnel",
        tunnel=spec.kind == "openai" and spec.path != "normalized",
    )


def _options(spec: ProviderSettings) -> ProviderOptions:
    return ProviderOptions(
        timeouts=AttemptTimeouts(
            first_token_s=spec.first_token_timeout_s, idle_s=spec.idle_timeout_s
        ),
        strict_tools=spec.strict_tools,
        send_metadata=spec.send_metadata,
        ask_usage=spec.ask_usage,
        continuous_usage=spec.continuous_usage,
        drain=_drain_terms(spec) if spec.on_give_up == "drain" else None,
    )


def _drain_terms(spec: ProviderSettings) -> DrainTerms:
    return DrainTerms(drain_s=spec.drain_s, drain_tokens=spec.drain_tokens)


def _ledger_writer(settings: Settings) -> LedgerWriter | None:
    path = settings.telemetry.ledger
    return None if path is None else LedgerWriter(LedgerFile(path))


def _routes(settings: Settings) -> list[Route]:
    return [
        Route(
            model=route.model,
            policy=route.policy,
            targets=tuple(
                Target(provider=t.provider, model=t.model or None, weight=t.weight)
                for t in route.targets
            ),
        )
        for route in settings.routes
    ]


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


def _doorkeeper(settings: Settings) -> Doorkeeper:
    return Doorkeeper(
        (
            key.key.value,
            KeyRights(
                name=key.name,
                max_concurrent=key.max_concurrent,
                models=frozenset(key.models),
                observe=key.observe,
                mirror=key.mirror,
                cancel=key.cancel,
            ),
        )
        for key in settings.keys
    )
