"""``GET /v1/providers``: the model servers as the gateway sees them now.

Each with its slots, its health, and, for every target at it, what ``least_busy`` weighs it with:
the measured validity of its tool calls and the penalty that follows from it. Only for keys with
``observe``, since it tells of the load that others make.
"""

from typing import Any

from edge.core.pool_statistics import ProviderStatistics, TargetStatistics
from edge.runs.dispatch import Dispatcher
from edge.server.auth import Doorkeeper
from edge.server.exchange import GatewayRequest


class ProvidersHandler:
    """Shows the providers."""

    def __init__(self, dispatcher: Dispatcher, doorkeeper: Doorkeeper) -> None:
        self._dispatcher = dispatcher
        self._doorkeeper = doorkeeper

    async def list_all(self, request: GatewayRequest) -> dict[str, Any]:
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


def _provider(provider: ProviderStatistics, targets: list[TargetStatistics]) -> dict[str, Any]:
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


def _target(target: TargetStatistics) -> dict[str, Any]:
    return {
        "name": target.name,
        "model": target.model,
        "call_validity": round(target.call_validity, 4) if target.judged else None,
        "judged": target.judged,
        "penalty": round(target.penalty, 4),
    }
