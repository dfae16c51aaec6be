"""``/healthz`` and ``/readyz``: what a supervisor or a load balancer asks."""

from collections.abc import Callable, Sequence

from edge.core.fleet import Route
from edge.errors import Overloaded
from edge.runs.dispatch import Dispatcher


class OperationsHandler:
    """Says whether the process lives and whether it should be given work."""

    def __init__(
        self, routes: Sequence[Route], dispatcher: Dispatcher, is_draining: Callable[[], bool]
    ) -> None:
        self._routes = routes
        self._dispatcher = dispatcher
        self._is_draining = is_draining

    def health(self) -> dict[str, str]:
        """The process lives and its event loop turns."""
        return {"status": "ok"}

    def readiness(self) -> dict[str, str]:
        """A route can be served.

        Raises:
            Overloaded: the gateway drains, or every provider of every route is down.
        """
        if self._is_draining():
            raise Overloaded("the gateway is going down", retry_after_s=1)
        if not any(self._dispatcher.can_serve(route.model) for route in self._routes):
            raise Overloaded("no provider of any route is up", retry_after_s=1)
        return {"status": "ready"}
