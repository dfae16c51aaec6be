"""The runs that live now, and the newest that have ended.

A run is found here by its id: to be shown, to be cancelled, to be mirrored. The registry is a
port with an in-memory implementation; several replicas could share another one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import trio

from edge.core.emit import Identity
from edge.core.operations import CHAT
from edge.core.output_policy import OutputPolicy
from edge.core.run_events import AttemptEnd, AttemptEnded, AttemptStarted
from edge.core.run_summary import RUNNING, RunFacts, RunQuery
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
        operation: what is asked of the model (``core.operations``).
        trace_headers: the W3C trace context of the client; once an attempt is made, that which its
            provider is told.
        phase: where the run is now: ``queued``, ``connecting``, ``waiting`` (for the first
            token), ``streaming``, ``validating``, ``retrying``, ``writing``, ``draining``,
            ``done``.
        scope: the run's cancel scope; its deadline is ``run_timeout_s``.
        stopped_by: the error to tell the client when ``scope`` was cancelled on purpose.
        cancelled_at: when it was first known that the run is to end before its time.
        found_gone: a write has found that the client is gone, and cancelled ``scope``.
        delivered: the client has its whole answer, though the run may still be winding up; from
            then on its leaving is no give-up.
        decided: the error that the run ends in, from when nothing more is tried; the last row says
            so already, whatever becomes of the client before it is told.
        draining: the client gave up, and the last answer is read on for the bill.
        on_drained: ends the run when it has been.
        number: its place in the order in which runs began.
        under_way: the attempt that has been dispatched and has not ended.
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
    operation: str = CHAT
    key_limit: int = 0
    trace_headers: dict[str, str] = field(default_factory=dict)
    started_at: float = field(default_factory=trio.current_time)
    phase: str = "queued"
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    stopped_by: EdgeError | None = None
    cancelled_at: float | None = None
    found_gone: bool = False
    delivered: bool = False
    decided: EdgeError | None = None
    draining: bool = False
    on_drained: Callable[[], None] | None = None
    number: int = 0
    under_way: AttemptStarted | None = None
    mirror: Feed | None = None
    rows: list[AttemptEnded] = field(default_factory=list)
    status: AttemptEnd | None = None
    ended_at: float | None = None

    def stop(self, error: EdgeError) -> None:
        """Cancel the run from outside; its client is told ``error``. The first reason stays."""
        if self.stopped_by is None:
            self.stopped_by = error
        self.note_cancelled()
        self.scope.cancel(reason=error.type)

    def client_left(self) -> None:
        """Cancel the run because a write has found that its client is gone."""
        self.found_gone = True
        self.note_cancelled()
        self.scope.cancel()

    def note_cancelled(self) -> None:
        """Somebody cancels the run, or its client was found to have gone."""
        if self.cancelled_at is None:
            self.cancelled_at = trio.current_time()

    def facts(self) -> RunFacts:
        """What is known of the run now."""
        now = trio.current_time() if self.ended_at is None else self.ended_at
        under_way = self.under_way
        return RunFacts(
            number=self.number,
            id=self.id,
            request_id=self.request_id,
            created=self.created,
            model=self.model,
            key=self.key,
            route=self.route,
            stream=self.stream,
            status=self.status or RUNNING,
            phase=self.phase,
            age_s=now - self.started_at,
            rows=tuple(self.rows),
            under_way=None if under_way is None else (under_way, now - under_way.at),
            judged=self.policy.validate != "off",
        )


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
        # Facts only: a run holds its whole request.
        self._recent: OrderedDict[str, RunFacts] = OrderedDict()
        self._keep = keep
        self._begun = 0

    def __len__(self) -> int:
        return len(self._live)

    def add(self, run: Run) -> None:
        """Make a run findable."""
        self._begun += 1
        run.number = self._begun
        self._live[run.id] = run

    def remove(self, run: Run) -> None:
        """The run is over; only what is known of it is kept."""
        del self._live[run.id]
        self._recent[run.id] = run.facts()
        if len(self._recent) > self._keep:
            self._recent.popitem(last=False)

    def live(self) -> list[Run]:
        """The live runs, oldest first."""
        return list(self._live.values())

    def find(self, run_id: str) -> Run | None:
        """The live run of this id."""
        return self._live.get(run_id)

    def facts(self, run_id: str) -> RunFacts | None:
        """What is known of a run, live or recent."""
        run = self._live.get(run_id)
        return self._recent.get(run_id) if run is None else run.facts()

    def search(self, query: RunQuery, sees: Callable[[str], bool]) -> Iterator[RunFacts]:
        """The live and the recent runs that match and may be seen, newest first.

        Args:
            query: which runs.
            sees: whether the runs of a key may be seen.
        """
        runs: list[Run | RunFacts] = [*self._live.values(), *self._recent.values()]
        runs.sort(key=lambda run: run.number, reverse=True)
        for run in runs:
            if sees(run.key):
                facts = run.facts() if isinstance(run, Run) else run
                if query.matches(facts):
                    yield facts

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
