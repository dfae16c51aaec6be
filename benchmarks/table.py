"""The table of a run, in Markdown."""

from collections.abc import Mapping
from typing import Any

Results = Mapping[str, Mapping[str, Any]]

HEADS = (
    "target",
    "plain: requests/s",
    "CPU µs a request",
    "paced: added p50 ms",
    "p90",
    "p99",
    "max",
    "chunks/s held",
    "first chunk p50 ms",
    "CPU µs a paced chunk",
    "burst: chunks/s",
    "CPU µs a burst chunk",
    "failed",
)
LEAVE_HEADS = (
    "target",
    "noticed while talking, p50 / p99 ms",
    "while silent",
    "not streamed",
    "MiB idle",
    "KiB an open stream",
)


def render(results: Results, concurrency: tuple[int, ...]) -> str:
    """One row a target and concurrency, then hang-ups and memory."""
    lines = [_row(HEADS), _row(["---"] * len(HEADS))]
    for level in concurrency:
        for name, phases in results.items():
            lines.append(_row(_level_cells(f"{name} @{level}", phases, level)))
    lines += ["", _row(LEAVE_HEADS), _row(["---"] * len(LEAVE_HEADS))]
    for name, phases in results.items():
        if "failed" not in phases:
            lines.append(_row(_leave_cells(name, phases)))
    return "\n".join(lines)


def _row(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def _level_cells(name: str, phases: Mapping[str, Any], level: int) -> list[str]:
    if "failed" in phases:
        reason = str(phases["failed"]).replace("\n", " ").replace("|", "/")[:120]
        return [name, f"did not run: {reason}", *[""] * (len(HEADS) - 2)]
    plain, paced, burst = (phases[f"{phase}@{level}"] for phase in ("plain", "paced", "burst"))
    failures = sum(phase["failed"] for phase in (plain, paced, burst))
    unfinished = sum(phase["unfinished"] for phase in (plain, paced, burst))
    return [
        name,
        f"{plain['requests_per_s']:.0f}",
        _per(plain, "finished"),
        *(_ms(paced["added_us"], point) for point in ("p50", "p90", "p99", "max")),
        f"{paced['chunks_per_s']:.0f}",
        _ms(paced["first_us"], "p50"),
        _per(paced, "chunks"),
        f"{burst['chunks_per_s']:.0f}",
        _per(burst, "chunks"),
        f"{failures}" + (f" (+{unfinished} unfinished)" if unfinished else ""),
    ]


def _leave_cells(name: str, phases: Mapping[str, Any]) -> list[str]:
    idle = phases["idle"]["kib"]
    opened = phases.get("open")
    return [
        name,
        *(_noticed(phases.get(f"leave {how}")) for how in ("talking", "silent", "unstreamed")),
        "-" if idle is None else f"{idle / 1024:.0f}",
        "-" if opened is None else f"{opened['kib_per_stream']:.1f}",
    ]


def _noticed(phase: Mapping[str, Any] | None) -> str:
    seen = (phase or {}).get("noticed_us")
    if not seen:
        return "-"
    count = f"{seen['seen']}/{seen['seen'] + seen['lost']}"
    return f"{count}, {_ms(seen, 'p50')} / {_ms(seen, 'p99')}" if seen["seen"] else count


def _ms(times_us: Mapping[str, float], point: str) -> str:
    if point not in times_us:
        return "-"
    value = times_us[point] / 1000
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _per(phase: Mapping[str, Any], what: str) -> str:
    if "cpu_s" not in phase or not phase[what]:
        return "-"
    return f"{phase['cpu_s'] / phase[what] * 1e6:.3g}"
