"""What a new configuration replaces, as one value: routes, providers, keys, output policies.

    Common                  what outlives every configuration: live runs, the queue, what watches
      └─ Generation         what one configuration makes of it, up to the handlers of requests
           └─ Generation    the next one, which keeps the providers whose settings did not change

A request is answered by the generation that is current when it comes, to its end: a run asks the
providers, and gives its slots back to the pool, that it began with. A provider that is kept is the
same one in both, with its connections, slots, queue and health. One that changed is a new one.
"""

import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import trio

from edge.core.fleet import ProviderSpec, Route, Target
from edge.core.pool import Pool
from edge.providers.openai import OpenAIOptions, OpenAIProvider
from edge.providers.port import Provider
from edge.providers.proxy import proxy_for
from edge.providers.simulated import SimulatedProvider
from edge.providers.transport import Transport, TransportLimits
from edge.providers.watch import Watch
from edge.runs.admission import Admission
from edge.runs.attempt import Attempts, ProviderOptions
from edge.runs.deadlines import AttemptTimeouts
from edge.runs.dispatch import Dispatcher
from edge.runs.drain import Drainer, DrainTerms
from edge.runs.heartbeats import Heartbeats
from edge.runs.mirror import MirrorHub
from edge.runs.observers import Observers
from edge.runs.registry import Registry
from edge.runs.run import Desk
from edge.runs.tunnel import Tunnel
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.chat import ChatHandler
from edge.server.cors import Cors
from edge.server.mirror import MirrorHandler
from edge.server.models import ModelsHandler
from edge.server.operations import OperationsHandler
from edge.server.passthrough import PassThroughHandler
from edge.server.providers import ProvidersHandler
from edge.server.routing import Handlers
from edge.server.runs import RunsHandler
from edge.server.socket_runs import SocketLimits
from edge.settings import ProviderSettings, Settings
from edge.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all generations of a gateway share.

    Attributes:
        leaving: set when the gateway is to go down.
        created: when it began to serve, seconds since 1970.
        watch: reads the providers' answers.
        heartbeats: keeps waiting clients alive.
    """

    registry: Registry
    observers: Observers
    admission: Admission
    drainer: Drainer
    hub: MirrorHub
    metrics: Metrics
    leaving: trio.Event
    created: int
    watch: Watch = field(default_factory=Watch)
    heartbeats: Heartbeats = field(default_factory=Heartbeats)


@dataclass(frozen=True, slots=True)
class Generation:
    """What one configuration makes of a gateway."""

    settings: Settings
    pool: Pool
    providers: Mapping[str, Provider]
    desk: Desk
    handlers: Handlers

    @classmethod
    def build(
        cls, settings: Settings, common: Common, before: "Generation | None" = None
    ) -> "Generation":
        """Put a generation together, beside or in the place of ``before``; opens nothing.

        Raises:
            ValueError: a provider's address, proxy or CA file is of no use.
        """
        kept = before.unchanged(settings) if before else {}
        providers = {
            each.name: kept.get(each.name) or _provider(each, common.watch)
            for each in settings.providers
        }
        routes = _routes(settings)
        pool = Pool(
            [_pool_spec(each) for each in settings.providers],
            routes,
            before=before.pool if before else None,
            kept=kept,
        )
        before_it = before.desk.dispatcher if before else None
        dispatcher = Dispatcher(pool, providers, before=before_it)
        options = {each.name: _options(each) for each in settings.providers}
        observers, registry = common.observers, common.registry
        attempts = Attempts(dispatcher, observers, options, common.drainer)
        desk = Desk(
            registry,
            observers,
            common.admission,
            dispatcher,
            attempts,
            common.heartbeats,
            random.random,
        )
        doorkeeper = _doorkeeper(settings)
        common.metrics.know(_models(routes))
        policies = {route.model: route.output for route in settings.routes}
        pass_through = PassThroughHandler(Tunnel(desk, options), dispatcher, doorkeeper, policies)
        handlers = Handlers(
            chat=ChatHandler(desk, doorkeeper, policies, pass_through),
            pass_through=pass_through,
            models=ModelsHandler(routes, providers, doorkeeper, created=common.created),
            runs=RunsHandler(registry, doorkeeper),
            providers=ProvidersHandler(dispatcher, doorkeeper),
            mirror=MirrorHandler(common.hub, doorkeeper),
            operations=OperationsHandler(
                routes,
                dispatcher,
                common.leaving.is_set,
                common.metrics.render,
                None if settings.telemetry.open_metrics else doorkeeper,
            ),
            socket_limits=SocketLimits(max_runs=settings.limits.max_socket_runs),
            origins=frozenset(settings.server.cors_origins),
            cors=Cors(frozenset(settings.server.cors_origins), is_open=not settings.keys),
        )
        return cls(settings, pool, providers, desk, handlers)

    def unchanged(self, settings: Settings) -> dict[str, Provider]:
        """The providers that are configured in ``settings`` just as they are here."""
        here = set(self.settings.providers)
        return {each.name: self.providers[each.name] for each in settings.providers if each in here}


def _provider(spec: ProviderSettings, watch: Watch) -> Provider:
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
        Transport(spec.base_url, limits, name=spec.name, watch=watch),
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


def _models(routes: list[Route]) -> set[str]:
    """The names of models that are configured."""
    targets = [target for route in routes for target in route.targets]
    return {route.model for route in routes} | {each.model for each in targets if each.model}


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
                trace=key.trace,
                cancel=key.cancel,
            ),
        )
        for key in settings.keys
    )
