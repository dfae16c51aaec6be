"""``GET /v1/providers``: the model servers as the gateway sees them now.

Each with its slots, its health, and, for every target at it, what ``least_busy`` weighs it with:
the measured validity of its tool calls and the penalty that follows from it. Only for keys with
``observe``, since it tells of the load that others make.
"""

from typing import Annotated, Literal, TypedDict

from edge.core.pool_statistics import ProviderStatistics, TargetStatistics
from edge.runs.dispatch import Dispatcher
from edge.server.auth import Doorkeeper
from edge.server.exchange import GatewayRequest


class TargetSummary(TypedDict):
    """A provider, with the model it is asked for."""

    name: str
    model: Annotated[str | None, "Null where the client's name is passed on."]
    call_validity: Annotated[float | None, "Share of sound tool calls; null where none was judged."]
    judged: Annotated[int, "Answers that this rests on."]
    penalty: Annotated[float, "What `least_busy` multiplies its load with."]


class ProviderSummary(TypedDict):
    """A model server as the gateway sees it now."""

    object: Literal["edge.provider"]
    name: str
    max_concurrent: Annotated[int, "Its slots; 0 is no cap."]
    busy: Annotated[int, "Slots taken."]
    waiting: Annotated[int, "Runs that would take one."]
    health: Annotated[str, "`closed` (well), `open`, `probing` or `paused`."]
    failures: Annotated[int, "Failures in a row."]
    resumes_in_s: Annotated[float, "Until it is asked again; 0 where it is not paused."]
    call_validity: float | None
    judged: int
    targets: list[TargetSummary]


class ProviderList(TypedDict):
    """The model servers, in the order of the configuration."""

    object: Literal["list"]
    data: list[ProviderSummary]
    waiting: Annotated[int, "Runs that wait for any slot, each counted once."]


class ProvidersHandler:
    """Shows the providers."""

    def __init__(self, dispatcher: Dispatcher, doorkeeper: Doorkeeper) -> None:
        self._dispatcher = dispatcher
        self._doorkeeper = doorkeeper

    async def list_all(self, request: GatewayRequest) -> ProviderList:
        """All providers, in the order of the configuration.

        Raises:
            Forbidden: the key may not see what others do.
        """
        self._doorkeeper.identify_observer(request.headers)
        statistics = self._dispatcher.statistics()
        shown = [
            _provider(each, [t for t in statistics.targets if t.provider == each.name])
            for each in statistics.providers
        ]
        return {"object": "list", "data": shown, "waiting": statistics.waiting}


def _provider(provider: ProviderStatistics, targets: list[TargetStatistics]) -> ProviderSummary:
    judged = sum(each.judged for each in targets)
    sound = sum(each.call_validity * each.judged for each in targets)
    return {
        "object": "edge.provider",
        "name": provider.name,
        "max_concurrent": provider.max_concurrent,
        "busy": provider.busy,
        "waiting": provider.waiting,
        "health": provider.health,
        "failures": provider.failures,
        "resumes_in_s": round(provider.resumes_in_s, 3),
        "call_validity": round(sound / judged, 4) if judged else None,
        "judged": judged,
        "targets": [_target(each) for each in targets],
    }


def _target(target: TargetStatistics) -> TargetSummary:
    return {
        "name": target.name,
        "model": target.model,
        "call_validity": round(target.call_validity, 4) if target.judged else None,
        "judged": target.judged,
        "penalty": round(target.penalty, 4),
    }
