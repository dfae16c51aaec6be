"""``/v1/runs``: the runs a key may see, and cancelling one of them."""

from typing import Any

from edge.errors import Forbidden, NotFound
from edge.runs.registry import Registry
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.exchange import GatewayRequest


class RunsHandler:
    """Shows runs and cancels them."""

    def __init__(self, registry: Registry, doorkeeper: Doorkeeper) -> None:
        self._registry = registry
        self._doorkeeper = doorkeeper

    async def list_all(self, request: GatewayRequest) -> dict[str, Any]:
        """The live and the recent runs, newest first."""
        rights = self._doorkeeper.identify(request.headers)
        seen = [run for run in self._registry.summaries() if rights.may_see(run["key"])]
        return {"object": "list", "data": seen}

    async def show(self, request: GatewayRequest, run_id: str) -> dict[str, Any]:
        """One run."""
        return self._visible(self._doorkeeper.identify(request.headers), run_id)

    async def cancel(self, request: GatewayRequest, run_id: str) -> dict[str, Any]:
        """Cancel a live run; its client gets a typed error, its provider is hung up on."""
        rights = self._doorkeeper.identify(request.headers)
        run = self._visible(rights, run_id)
        if not rights.cancel:
            raise Forbidden("this key may not cancel runs")
        cancelled = self._registry.cancel(run_id)
        return {"id": run["id"], "object": "edge.run", "cancelled": cancelled}

    def _visible(self, rights: KeyRights, run_id: str) -> dict[str, Any]:
        run = self._registry.summary(run_id)
        if run is None or not rights.may_see(run["key"]):
            raise NotFound(f"there is no run {run_id!r}", param="id")
        return run
