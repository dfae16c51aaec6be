"""``/v1/runs``: the runs a key may see, and cancelling one of them.

Lists are paged by id: ``after`` is the last one of the page before. Runs are in the order in which
they began, newest first, so a page does not shift when a run ends or another begins.
"""

from collections.abc import Iterator, Mapping
from itertools import dropwhile, islice
from math import isfinite
from typing import Annotated, Literal, TypedDict, get_args
from urllib.parse import parse_qsl

from edge.core.run_events import AttemptEnd
from edge.core.run_summary import RUNNING, RunFacts, RunQuery, RunSummary, run_summary
from edge.errors import Forbidden, InvalidRequest, NotFound
from edge.runs.registry import Registry
from edge.server.auth import Doorkeeper, KeyRights
from edge.server.exchange import GatewayRequest

STATUSES = (RUNNING, *get_args(AttemptEnd))
DEFAULT_LIMIT = 100
MAX_LIMIT = 1000
FILTERS = ("status", "route", "provider", "key", "since", "limit", "after")


class RunPage(TypedDict):
    """A page of runs, newest first; the next one begins `after` its `last_id`."""

    object: Literal["list"]
    data: list[RunSummary]
    first_id: str | None
    last_id: str | None
    has_more: bool


class CancelledRun(TypedDict):
    """What came of cancelling a run."""

    id: str
    object: Literal["edge.run"]
    cancelled: Annotated[bool, "False for a run that had ended before."]


class RunsHandler:
    """Shows runs and cancels them."""

    def __init__(self, registry: Registry, doorkeeper: Doorkeeper) -> None:
        self._registry = registry
        self._doorkeeper = doorkeeper

    async def list_all(self, request: GatewayRequest) -> RunPage:
        """A page of the live and the recent runs, newest first.

        Raises:
            InvalidRequest: a filter is unknown or has no such value.
        """
        rights = self._doorkeeper.identify(request.headers)
        asked = arguments(request.query_string)
        limit = _limit(asked)
        found = self._registry.search(_query(asked), rights.may_see)
        if "after" in asked:
            found = self._behind(found, asked["after"], rights)
        page = list(islice(found, limit + 1))
        shown = page[:limit]
        return {
            "object": "list",
            "data": [run_summary(run) for run in shown],
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
            "has_more": len(page) > limit,
        }

    async def show(self, request: GatewayRequest, run_id: str) -> RunSummary:
        """One run."""
        return run_summary(self._visible(self._doorkeeper.identify(request.headers), run_id))

    async def cancel(self, request: GatewayRequest, run_id: str) -> CancelledRun:
        """Cancel a live run; its client gets a typed error, its provider is hung up on."""
        rights = self._doorkeeper.identify(request.headers)
        run = self._visible(rights, run_id)
        if not rights.cancel:
            raise Forbidden("this key may not cancel runs")
        cancelled = self._registry.cancel(run_id)
        return {"id": run.id, "object": "edge.run", "cancelled": cancelled}

    def _behind(
        self, found: Iterator[RunFacts], after: str, rights: KeyRights
    ) -> Iterator[RunFacts]:
        last = self._registry.facts(after)
        if last is None or not rights.may_see(last.key):
            raise InvalidRequest(f"there is no run {after!r} any more", param="after")
        return dropwhile(lambda run: run.number >= last.number, found)

    def _visible(self, rights: KeyRights, run_id: str) -> RunFacts:
        run = self._registry.facts(run_id)
        if run is None or not rights.may_see(run.key):
            raise NotFound(f"there is no run {run_id!r}", param="id")
        return run


def arguments(query_string: bytes) -> dict[str, str]:
    """The filters of a list.

    Raises:
        InvalidRequest: there is no such filter, or it is given twice.
    """
    found: dict[str, str] = {}
    for name, value in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True):
        if name not in FILTERS:
            raise InvalidRequest(
                f"{name!r} is no filter; there are {', '.join(FILTERS)}", param=name
            )
        if name in found:
            raise InvalidRequest(f"{name!r} is given twice", param=name)
        found[name] = value
    return found


def _query(asked: Mapping[str, str]) -> RunQuery:
    status = asked.get("status")
    if status is not None and status not in STATUSES:
        raise InvalidRequest(
            f"{status!r} is no status; there are {', '.join(STATUSES)}", param="status"
        )
    return RunQuery(
        status=status,
        route=asked.get("route"),
        provider=asked.get("provider"),
        key=asked.get("key"),
        since=_since(asked["since"]) if "since" in asked else None,
    )


def _since(text: str) -> float:
    try:
        since = float(text)
    except ValueError:
        since = float("nan")
    if not isfinite(since):
        raise InvalidRequest("since is a time in seconds since 1970", param="since")
    return since


def _limit(asked: Mapping[str, str]) -> int:
    text = asked.get("limit", str(DEFAULT_LIMIT))
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidRequest(f"limit is a number from 1 to {MAX_LIMIT}", param="limit")
    return limit
