"""Sums over a ledger, for ``edge ledger``.

Each figure is a column of :data:`FIGURES`: its SQL over the attempts of a group. ``failed`` is
every attempt that answered nobody for another reason than the client's leaving; the tokens of those
are ``wasted``. Days are days of UTC.
"""

import csv
import io
import json
import math
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeAlias

from edge.telemetry.ledger_file import read_ledger

Value: TypeAlias = str | int | float | None

GROUPS = {
    "key": "key",
    "model": "model",
    "route": "route",
    "provider": "provider",
    "status": "status",
    "day": "strftime('%Y-%m-%d', time, 'unixepoch')",
}
"""What rows can be grouped by, and its SQL."""

_FAILED = "status IN ('validation_failed', 'upstream_error', 'timeout', 'rejected')"

FIGURES = {
    "runs": "COUNT(DISTINCT run_id)",
    "attempts": "COUNT(*)",
    "success": "SUM(status = 'success')",
    "failed": f"SUM({_FAILED})",
    "cancelled": "SUM(status IN ('cancelled', 'drained'))",
    "repaired": "SUM(repaired)",
    "input_tokens": "SUM(input_tokens)",
    "cached_tokens": "SUM(cached_tokens)",
    "output_tokens": "SUM(output_tokens)",
    "reasoning_tokens": "SUM(reasoning_tokens)",
    "wasted_tokens": f"SUM(CASE WHEN {_FAILED} THEN input_tokens + output_tokens ELSE 0 END)",
    "estimated": "SUM(usage = 'estimated')",
    "first_token_p50_s": "p50(first_token_s)",
    "first_token_p95_s": "p95(first_token_s)",
    "held_mean_s": "AVG(held_s)",
    "total_p95_s": "p95(total_s)",
    "bytes_out": "SUM(bytes_out)",
}
"""The columns of a report behind its groups, and their SQL."""

_SPAN = re.compile(r"(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class Report:
    """Sums by group: names of the columns, and the rows, groups in order."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def report(path: Path, *, by: Sequence[str] = ("model",), since: float = 0.0) -> Report:
    """Sum up a ledger.

    Args:
        path: the file.
        by: keys of ``GROUPS``, at least one.
        since: leave out attempts that ended before, in seconds since 1970.

    Raises:
        sqlite3.Error: the file cannot be read, or is no ledger.
    """
    groups = ", ".join(f"{GROUPS[name]} AS {name}" for name in by)
    figures = ", ".join(f"{sql} AS {name}" for name, sql in FIGURES.items())
    places = ", ".join(str(place + 1) for place in range(len(by)))
    # All of it is ours but the time, which is bound.
    question = (
        f"SELECT {groups}, {figures} FROM attempts WHERE time >= ?"  # noqa: S608
        f" GROUP BY {places} ORDER BY {places}"
    )
    connection = read_ledger(path)
    try:
        connection.create_aggregate("p50", 1, _Median)  # type: ignore[arg-type]  # typeshed's protocol wants integers
        connection.create_aggregate("p95", 1, _NearlyAll)  # type: ignore[arg-type]
        rows = connection.execute(question, (since,)).fetchall()
    finally:
        connection.close()
    return Report((*by, *FIGURES), tuple(rows))


def moment(text: str, *, now: float) -> float:
    """A moment in seconds since 1970: ``24h`` (ago; s, m, h, d, w), or a date or time in ISO 8601.

    A time without a zone is UTC.

    Raises:
        ValueError: it is neither.
    """
    span = _SPAN.fullmatch(text)
    if span:
        ago = timedelta(**{_UNITS[span[2]]: int(span[1])})
        return now - ago.total_seconds()
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def as_csv(found: Report) -> str:
    """The report as CSV with a heading; what was not measured is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(found.columns)
    writer.writerows([[_plain(value) for value in row] for row in found.rows])
    return text.getvalue()


def as_json(found: Report) -> str:
    """The report as a JSON array of objects."""
    rows = [dict(zip(found.columns, map(_rounded, row), strict=True)) for row in found.rows]
    return json.dumps(rows, indent=2)


def _plain(value: Value) -> Value:
    """A spreadsheet must not take a client's word for a model as a formula."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return _rounded(value)


def _rounded(value: Value) -> Value:
    return round(value, 6) if isinstance(value, float) else value


class _Quantile:
    """An SQL aggregate: the value that ``share`` of the values do not exceed, NULLs left out."""

    share = 0.5

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, value: float | None) -> None:
        """SQLite calls it for each row."""
        if value is not None:
            self._values.append(value)

    def finalize(self) -> float | None:
        """SQLite calls it at the end of a group."""
        values = sorted(self._values)
        return values[math.ceil(self.share * len(values)) - 1] if values else None


class _Median(_Quantile):
    share = 0.5


class _NearlyAll(_Quantile):
    share = 0.95


def unreadable(path: Path, error: sqlite3.Error) -> str:
    """Why a ledger cannot be read, for people."""
    if not path.is_file():
        return f"{path}: there is no such file"
    return f"{path}: {error}"
