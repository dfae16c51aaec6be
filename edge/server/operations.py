"""``/healthz``, ``/readyz`` and ``/metrics``: what supervisors, load balancers and scrapers ask."""

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, TypedDict

from quart_trio.wrappers import TrioResponse

from edge.core.fleet import Route
from edge.errors import Overloaded
from edge.runs.dispatch import Dispatcher
from edge.server.auth import Doorkeeper
from edge.server.exchange import GatewayRequest

Rendered: TypeAlias = tuple[bytes, str]
"""A body and its content type."""


class Health(TypedDict):
    """The process lives."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """A route can be served."""

    status: Literal["ready"]


class OperationsHandler:
    """Says whether the process lives, whether it should be given work, and how it does.

    Args:
        routes: what is served.
        dispatcher: knows whether it can be.
        is_draining: the gateway is going down.
        metrics: makes the answer to a scrape, in the form that ``Accept`` prefers.
        doorkeeper: lets keys with ``observe`` see the metrics; None lets everybody.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        dispatcher: Dispatcher,
        is_draining: Callable[[], bool],
        metrics: Callable[[str], Rendered],
        doorkeeper: Doorkeeper | None,
    ) -> None:
        self._routes = routes
        self._dispatcher = dispatcher
        self._is_draining = is_draining
        self._metrics = metrics
        self._doorkeeper = doorkeeper

    def health(self) -> Health:
        """The process lives and its event loop turns."""
        return {"status": "ok"}

    def readiness(self) -> Readiness:
        """A route can be served.

        Raises:
            Overloaded: the gateway drains, or every provider of every route is down.
        """
        if self._is_draining():
            raise Overloaded("the gateway is going down", retry_after_s=1)
        if not any(self._dispatcher.can_serve(route.model) for route in self._routes):
            raise Overloaded("no provider of any route is up", retry_after_s=1)
        return {"status": "ready"}

    def metrics(self, request: GatewayRequest) -> TrioResponse:
        """The metrics; with several workers those of all.

        Raises:
            Unauthorized: the gateway has keys, and this is none.
            Forbidden: the key may not see what others do.
        """
        if self._doorkeeper is not None:
            self._doorkeeper.identify_observer(request.headers)
        body, content_type = self._metrics(request.headers.get("accept") or "")
        return TrioResponse(body, content_type=content_type)
