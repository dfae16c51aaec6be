"""Latency over load as an SVG, written by hand so that nothing has to be installed.

Both axes are logarithmic: concurrent streams to the right, added milliseconds upwards. A target has
one colour; its median is a full line and its 99th percentile a dashed one.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 50
COLOURS = ("#888888", "#2ca02c", "#9467bd", "#1f77b4", "#ff7f0e", "#d62728", "#17becf", "#8c564b")


def latency_svg(
    results: Mapping[str, Mapping[str, Any]], concurrency: Sequence[int], title: str
) -> str:
    """The picture; targets that did not run are left out."""
    levels = sorted(concurrency)
    lines = {
        name: _points(phases, levels) for name, phases in results.items() if "failed" not in phases
    }
    values = [value for points in lines.values() for p in points for value in p[1:]]
    floor = 10 ** math.floor(math.log10(min(values, default=0.01)))
    roof = 10 ** math.ceil(math.log10(max(values, default=10.0)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="22" font-size="14">{escape(title)}</text>',
        *_grid(levels, floor, roof),
    ]
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        placed = [(_x(c, levels), _y(a, floor, roof), _y(b, floor, roof)) for c, a, b in points]
        parts.append(_line([(x, y) for x, y, _ in placed], colour, ""))
        parts.append(_line([(x, y) for x, _, y in placed], colour, "5 4"))
        y = TOP + 18 * index + 10
        x = WIDTH - RIGHT + 20
        parts.append(f'<rect x="{x}" y="{y - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="{y + 1}">{escape(name)}</text>')
    caption = "full: median, dashed: 99th percentile"
    parts.append(f'<text x="{WIDTH - RIGHT + 20}" y="{HEIGHT - BOTTOM}" font-size="10">')
    parts.append(f"{caption}</text></svg>")
    return "\n".join(parts)


def _points(phases: Mapping[str, Any], levels: Sequence[int]) -> list[tuple[int, float, float]]:
    """(streams, median ms, p99 ms) where the phase has both."""
    found = []
    for level in levels:
        added = phases[f"paced@{level}"]["added_us"]
        if "p50" in added:
            found.append((level, added["p50"] / 1000, added["p99"] / 1000))
    return found


def _x(level: float, levels: Sequence[int]) -> float:
    span = math.log(levels[-1] / levels[0]) or 1.0
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(level / levels[0]) / span


def _y(value: float, floor: float, roof: float) -> float:
    span = math.log(roof / floor) or 1.0
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(value / floor) / span


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'stroke-dasharray="{dash}"/>'
    )


def _grid(levels: Sequence[int], floor: float, roof: float) -> list[str]:
    parts = []
    value = floor
    while value <= roof * 1.001:
        y = _y(value, floor, roof)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#dddddd"/>'
        )
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g} ms</text>')
        value *= 10
    for level in levels:
        x = _x(level, levels)
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{level}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">concurrent streams</text>'
    )
    return parts
