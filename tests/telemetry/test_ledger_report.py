"""What ``edge ledger`` sums up."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from edge.core.run_events import Usage
from edge.telemetry.ledger_file import LedgerFile
from edge.telemetry.ledger_report import (
    FIGURES,
    GROUPS,
    Report,
    Value,
    as_csv,
    as_json,
    moment,
    report,
)
from tests.fakes.run_events import attempt_ended

DAY = 86_400.0
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Three runs: one that needed two attempts, one that was left, one that failed."""
    path = tmp_path / "ledger.db"
    usage = Usage(
        input_tokens=100, output_tokens=10, cached_tokens=40, reasoning_tokens=4, reported=True
    )
    rows = [
        attempt_ended("a", time=NOON, status="validation_failed", usage=usage, key="team-a"),
        attempt_ended("a", attempt=2, time=NOON, usage=usage, repairs=("fence",), key="team-a"),
        attempt_ended("b", time=NOON + DAY, status="cancelled", usage=Usage(output_tokens=3)),
        attempt_ended("c", time=NOON + DAY, status="timeout", key="team-b", provider="gpu2"),
    ]
    file = LedgerFile(path)
    file.write(rows)
    file.close()
    return path


def sums(found: Report, *names: str) -> list[tuple[Value, ...]]:
    places = [found.columns.index(name) for name in names]
    return [tuple(row[place] for place in places) for row in found.rows]


def test_runs_attempts_and_their_ends_are_counted_apart(ledger: Path) -> None:
    found = report(ledger, by=["route"])
    names = ("route", "runs", "attempts", "success", "failed", "cancelled", "repaired")

    assert sums(found, *names) == [("coder", 3, 4, 1, 2, 1, 1)]


def test_tokens_are_summed_and_those_of_failed_attempts_are_wasted(ledger: Path) -> None:
    found = report(ledger, by=["key"])
    names = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")

    assert sums(found, "key", *names, "wasted_tokens", "estimated") == [
        ("team-a", 200, 23, 80, 8, 110, 1),
        ("team-b", 100, 20, 0, 0, 120, 0),
    ]


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        (["provider"], [("gpu1",), ("gpu2",)]),
        (["model"], [("qwen3-coder",)]),
        (["status"], [("cancelled",), ("success",), ("timeout",), ("validation_failed",)]),
        (["day"], [("2026-03-01",), ("2026-03-02",)]),
        (["day", "provider"], [("2026-03-01", "gpu1"), ("2026-03-02", "gpu1")]),
    ],
)
def test_a_report_is_grouped_by_what_is_asked_for(
    ledger: Path, by: list[str], groups: list[tuple[str, ...]]
) -> None:
    found = report(ledger, by=by)

    assert found.columns == (*by, *FIGURES)
    assert sums(found, *by)[: len(groups)] == groups


def test_every_group_can_be_asked_for(ledger: Path) -> None:
    assert len(report(ledger, by=list(GROUPS)).rows) == 4


def test_what_is_older_is_left_out(ledger: Path) -> None:
    assert sums(report(ledger, since=NOON + 1), "attempts") == [(2,)]
    assert report(ledger, since=NOON + 2 * DAY).rows == ()


def test_quantiles_are_of_what_was_measured(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger.db")
    times = [None, *(number / 100 for number in range(1, 101))]
    file.write([attempt_ended(f"run_{at}", first_token_s=at, total_s=1.0) for at in times])
    file.close()

    found = report(tmp_path / "ledger.db")

    assert sums(found, "first_token_p50_s", "first_token_p95_s", "total_p95_s") == [
        (0.5, 0.95, 1.0)
    ]


def test_times_that_nobody_measured_are_empty_in_csv_and_null_in_json(tmp_path: Path) -> None:
    file = LedgerFile(tmp_path / "ledger.db")
    file.write([attempt_ended(first_token_s=None)])
    file.close()
    found = report(tmp_path / "ledger.db")

    heading, row = as_csv(found).splitlines()
    (tree,) = json.loads(as_json(found))

    assert heading.split(",") == list(found.columns)
    assert dict(zip(heading.split(","), row.split(","), strict=True))["first_token_p50_s"] == ""
    assert tree["first_token_p50_s"] is None
    assert (tree["model"], tree["output_tokens"]) == ("qwen3-coder", 20)


def test_no_spreadsheet_takes_a_name_for_a_formula() -> None:
    assert as_csv(Report(("model",), (('=HYPERLINK("x")',),))).splitlines()[1].startswith("\"'=")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("24h", NOON - DAY),
        ("7d", NOON - 7 * DAY),
        ("2w", NOON - 14 * DAY),
        ("30m", NOON - 1800),
        ("5s", NOON - 5),
        ("2026-03-01", NOON - DAY / 2),
        ("2026-03-01T12:00:00", NOON),
        ("2026-03-01T14:00:00+02:00", NOON),
    ],
)
def test_a_moment_is_a_span_before_now_or_a_date(text: str, seconds: float) -> None:
    assert moment(text, now=NOON) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "7", "h", "-1d", "2026-13-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the command line says it in its own words
        moment(text, now=NOON)


def test_an_empty_database_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    sqlite3.connect(path).close()
    path.touch()

    with pytest.raises(sqlite3.DatabaseError, match="no ledger"):
        report(path)
