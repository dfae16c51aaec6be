"""Which frames of which run have been told already, over every connection of one follower.

A gateway tells a newcomer the past of a run again. Frames are numbered within their run, so what
comes twice is known by its number, and a gap that reaches back into what was told is cut down to
what is really missing.
"""

from collections import OrderedDict
from typing import Any, TypeAlias

Frame: TypeAlias = dict[str, Any]

MAX_RUNS = 10_000
"""Runs whose place is remembered; beyond it the one that was silent for longest is forgotten."""


class Places:
    """How far each run has been told; ``admit`` every frame in the order in which it came."""

    def __init__(self, max_runs: int = MAX_RUNS) -> None:
        self._told: OrderedDict[str, int] = OrderedDict()
        self._max_runs = max_runs

    def admit(self, frame: Frame) -> Frame | None:
        """The frame as it is to be told; None where it has been told already."""
        run_id, seq = frame.get("run_id"), frame.get("seq")
        if not isinstance(run_id, str) or type(seq) is not int:
            return frame
        told = self._told.get(run_id, 0)
        if seq <= told:
            return None
        self._remember(run_id, seq)
        missed = frame.get("missed")
        if frame.get("type") == "gap" and type(missed) is int and missed > seq - told:
            return {**frame, "missed": seq - told}
        return frame

    def _remember(self, run_id: str, seq: int) -> None:
        self._told[run_id] = seq
        self._told.move_to_end(run_id)
        if len(self._told) > self._max_runs:
            self._told.popitem(last=False)
