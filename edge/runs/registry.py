"""The runs that live now, and the newest that have ended.

A run is found here by its id: to be shown, to be cancelled, to be mirrored. The registry is a
port with an in-memory implementation; several replicas could share another one.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from edge.core.emit import Identity
from edge.core.output_policy import OutputPolicy
from edge.core.run_events import AttemptEnd, AttemptEnded
from edge.core.schemas import CompiledContract
from edge.errors import EdgeError, RunCancelled
from edge.runs.feed import Feed
from edge.wire.openai_chat import ChatRequest


@dataclass(slots=True, kw_only=True)
class Run:
    """One admitted client request, from decode to its last byte.

    What was decided before the run is fixed; what happens to it is written here as it goes, for
    whoever looks (the runs API, the ledger). What only one kind of run has is in a subclass.

    Attributes:
        model: the client's name for it.
        created: seconds since 1970.
        stream: whether the client asked for a stream.
        phase: where the run is now: ``queued``, ``connecting``, ``waiting`` (for the first
            token), ``streaming``, ``validating``, ``retrying``, ``writing``, ``draining``,
            ``done``.
        scope: the run's cancel scope; its deadline is ``run_timeout_s``.
        stopped_by: the error to tell the client when ``scope`` was cancelled on purpose.
        delivered: the client has its whole answer, though the run may still be winding up; from
            then on its leaving is no give-up.
        draining: the client gave up, and the last answer is read on for the bill.
        on_drained: ends the run when it has been.
        mirror: where the run leaves what its client got; None where nobody can see it.
    """

    id: str
    request_id: str
    key: str
    route: str
    model: str
    created: int
    stream: bool
    policy: OutputPolicy
    key_limit: int = 0
    trace_headers: dict[str, str] = field(default_factory=dict)
    started_at: float = field(default_factory=trio.current_time)
    phase: str = "queued"
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stopped_by: EdgeError | None = None
    delivered: bool = False
    draining: bool = False
    on_drained: Callable[[], None] | None = None
    mirror: Feed | None = None
    rows: list[AttemptEnded] = field(default_factory=list)
    status: AttemptEnd | None = None
    ended_at: float | None = None

    def stop(self, error: EdgeError) -> None:
        """Cancel the run from outside; its client is told ``error``. The first reason stays."""
        if self.stopped_by is None:
            self.stopped_by = error
        self.scope.cancel(reason=error.type)

    def summary(self) -> dict[str, Any]:
        """The run as the runs API shows it; times in seconds."""
        end = trio.current_time() if self.ended_at is None else self.ended_at
        return {
            "id": self.id,
            "object": "edge.run",
            "created": self.created,
            "model": self.model,
            "key": self.key,
            "route": self.route,
            "stream": self.stream,
            "status": self.status or "running",
            "phase": self.phase,
            "age_s": round(end - self.started_at, 3),
            "attempts": [_row(row) for row in self.rows],
        }


@dataclass(slots=True, kw_only=True)
class ChatRun(Run):
    """A run whose answer is decoded and written anew.

    Attributes:
        messages: the request's messages, healed where that was needed.
        healed: what was healed in the messages.
    """

    request: ChatRequest
    messages: list[dict[str, Any]]
    compiled: CompiledContract
    healed: tuple[str, ...] = ()

    @property
    def identity(self) -> Identity:
        """What every chunk of its answer repeats."""
        return Identity(f"chatcmpl-{self.id}", self.created, self.model)


class Registry:
    """All live runs by id, and the newest ``keep`` that ended."""

    def __init__(self, keep: int = 1000) -> None:
        self._live: dict[str, Run] = {}
        # Summaries only: a run holds its whole request.
        self._recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._keep = keep

    def __len__(self) -> int:
        return len(self._live)

    def add(self, run: Run) -> None:
        """Make a run findable."""
        self._live[run.id] = run

    def remove(self, run: Run) -> None:
        """The run is over; only its summary is kept."""
        del self._live[run.id]
        self._recent[run.id] = run.summary()
        if len(self._recent) > self._keep:
            self._recent.popitem(last=False)

    def live(self) -> list[Run]:
        """The live runs, oldest first."""
        return list(self._live.values())

    def find(self, run_id: str) -> Run | None:
        """The live run of this id."""
        return self._live.get(run_id)

    def summary(self, run_id: str) -> dict[str, Any] | None:
        """What the runs API shows of a run, live or recent."""
        run = self._live.get(run_id)
        return self._recent.get(run_id) if run is None else run.summary()

    def summaries(self) -> list[dict[str, Any]]:
        """The live and the recent runs, newest first."""
        live = [run.summary() for run in reversed(self._live.values())]
        return live + list(reversed(self._recent.values()))

    def cancel(self, run_id: str) -> bool:
        """Cancel a live run; False where there is none of this id."""
        run = self._live.get(run_id)
        if run is None:
            return False
        run.stop(RunCancelled("the run was cancelled by its id"))
        return True

    def stop_all(self, error: EdgeError) -> None:
        """Cancel every live run, as a server does whose drain time is over."""
        for run in self.live():
            run.stop(error)


def _row(row: AttemptEnded) -> dict[str, Any]:
    usage = row.usage
    return {
        "attempt": row.attempt,
        "provider": row.provider,
        "model": row.model,
        "path": row.path,
        "status": row.status,
        "category": row.category,
        "reason": row.reason,
        "calls": list(row.calls),
        "forms": list(row.forms),
        "repairs": list(row.repairs),
        "constrained": row.constrained,
        "first_token_s": row.first_token_s,
        "held_s": row.held_s,
        "total_s": row.total_s,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "reported": usage.reported,
        },
    }
