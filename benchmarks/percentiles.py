"""Percentiles of measured times."""

import math
from collections.abc import Sequence

POINTS = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


def summary_us(times_ns: Sequence[int]) -> dict[str, float]:
    """Nearest ranks in µs under ``p50``, ``p90``, ``p99``, ``p999``, ``max``; and the count ``n``.

    Of nothing, ``n`` alone.
    """
    ordered = sorted(times_ns)
    summary: dict[str, float] = {"n": len(ordered)}
    if ordered:
        for name, share in POINTS:
            summary[name] = ordered[math.ceil(share * len(ordered)) - 1] / 1000
    return summary
