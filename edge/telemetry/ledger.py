"""The ledger: one row per attempt, what it cost and how it ended.

A row is an :class:`~edge.core.run_events.AttemptEnded` event. This one keeps the newest rows in
memory.
"""

from collections import deque

from edge.core.run_events import AttemptEnded, RunEvent


class MemoryLedger:
    """Keeps the newest ``capacity`` rows; an observer of run events."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._rows: deque[AttemptEnded] = deque(maxlen=capacity)

    def __call__(self, event: RunEvent) -> None:
        """Take a row; other events are not the ledger's."""
        if isinstance(event, AttemptEnded):
            self._rows.append(event)

    def rows(self, run_id: str | None = None) -> list[AttemptEnded]:
        """The rows kept, oldest first; of one run where ``run_id`` is given."""
        return [row for row in self._rows if run_id is None or row.run_id == run_id]
