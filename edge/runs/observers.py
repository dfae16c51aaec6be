"""Fans run events out to whatever watches; nothing that watches can hold or fail a run.

An observer is a plain function of one event. It must not block; one that raises is counted and
logged once, and the run goes on.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from edge.core.run_events import RunEvent

Observer: TypeAlias = Callable[[RunEvent], None]

_log = logging.getLogger("edge.observers")


class Observers:
    """The observers of one gateway; ``failures`` counts events that one of them choked on."""

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._observers = list(observers)
        self.failures = 0

    def add(self, observer: Observer) -> None:
        """Tell this observer from now on."""
        self._observers.append(observer)

    def tell(self, event: RunEvent) -> None:
        """Hand one event to every observer, now."""
        for observer in self._observers:
            try:
                observer(event)
            except Exception:
                if not self.failures:
                    _log.exception("an observer failed; later failures are only counted")
                self.failures += 1
