"""What is in the file, whoever writes it and however that ends."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from edge.core.run_events import AttemptEnded, Usage
from edge.telemetry import ledger_file
from edge.telemetry.ledger_file import COLUMNS, MIGRATIONS, LedgerFile, read_ledger
from tests.fakes.run_events import attempt_ended


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def written(path: Path, *rows: AttemptEnded) -> list[dict[str, object]]:
    """What is read back after writing."""
    file = LedgerFile(path)
    file.write(rows)
    file.close()
    return read(path)


def read(path: Path) -> list[dict[str, object]]:
    with closing(read_ledger(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM attempts ORDER BY rowid")]


def test_a_row_says_everything_about_an_attempt_but_what_was_said_in_it(path: Path) -> None:
    row = attempt_ended(
        status="validation_failed",
        category="schema",
        param="tool_calls[0].arguments.city",
        reason='weather: city: "the secret plan" is not allowed',
        phase="streaming",
        calls=("weather", "weather"),
        forms=("hermes", "native"),
        repairs=("trailing_comma", "trailing_comma", "fence"),
        constrained=True,
        usage=Usage(input_tokens=7, output_tokens=5, cached_tokens=3, reasoning_tokens=2),
    )

    (found,) = written(path, row)

    assert found == {
        "run_id": "run_1",
        "attempt": 1,
        "time": 1_750_000_000.0,
        "key": "team-a",
        "route": "coder",
        "provider": "gpu1",
        "model": "qwen3-coder",
        "path": "normalized",
        "response_mode": "tool_calls",
        "status": "validation_failed",
        "category": "schema",
        "phase": "streaming",
        "constrained": 1,
        "feedback": 0,
        "calls": 2,
        "forms": "hermes,native",
        "repaired": 1,
        "repairs": "trailing_comma,fence",
        "input_tokens": 7,
        "output_tokens": 5,
        "cached_tokens": 3,
        "reasoning_tokens": 2,
        "usage": "estimated",
        "content_chars": 0,
        "reasoning_chars": 0,
        "bytes_out": 1000,
        "first_token_s": 0.5,
        "held_s": 0.25,
        "total_s": 2.5,
    }
    assert b"secret plan" not in path.read_bytes()
    assert b"weather" not in path.read_bytes()


def test_every_field_of_the_event_is_a_column_or_left_out_on_purpose() -> None:
    left_out = {"param", "reason", "upstream_status", "calls_read", "cancel_s", "operation"}
    left_out.add("call_validity")  # it is of the pool, not of the attempt

    assert {field.name for field in fields(AttemptEnded)} - set(COLUMNS) == left_out


def test_what_was_not_measured_is_null(path: Path) -> None:
    (found,) = written(path, attempt_ended(first_token_s=None))

    assert found["first_token_s"] is None


def test_a_batch_that_is_written_twice_is_there_once(path: Path) -> None:
    rows = [attempt_ended("run_1"), attempt_ended("run_1", attempt=2)]

    assert len(written(path, *rows)) == 2
    assert len(written(path, *rows, attempt_ended("run_2"))) == 3


def test_odd_numbers_and_names_of_others_are_taken(path: Path) -> None:
    usage = Usage(input_tokens=10**30, output_tokens=2**64, reported=True)

    (found,) = written(path, attempt_ended(model="m\ud800", usage=usage))

    assert (found["model"], found["input_tokens"], found["usage"]) == ("m?", 2**63 - 1, "reported")


def test_a_batch_is_there_whole_or_not_at_all(path: Path) -> None:
    file = LedgerFile(path)
    file.write([attempt_ended("run_1")])

    with pytest.raises(AttributeError):
        file.write([attempt_ended("run_2"), None])  # type: ignore[list-item]  # what breaks in the middle
    file.write([attempt_ended("run_3")])
    file.close()

    assert [row["run_id"] for row in read(path)] == ["run_1", "run_3"]


def test_a_locked_file_is_an_error_after_the_busy_timeout_and_can_be_written_later(
    path: Path,
) -> None:
    file = LedgerFile(path, busy_timeout_s=0.01)
    file.write([attempt_ended("run_1")])
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            file.write([attempt_ended("run_2")])

    file.write([attempt_ended("run_2")])
    file.close()

    assert len(read(path)) == 2


FULL_DISK = """
import resource, sqlite3, sys
from pathlib import Path
from edge.telemetry.ledger_file import LedgerFile
from tests.fakes.run_events import attempt_ended

path = Path(sys.argv[1])
file = LedgerFile(path)
file.write([attempt_ended("run_1")])
# From here on no file of this process can grow, as on a full disk.
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("ledger.db-wal").stat().st_size, hard))
batch = [attempt_ended(f"run_{number}") for number in range(2, 500)]
try:
    file.write(batch)
except sqlite3.OperationalError as error:
    print("refused:", error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
file.write(batch)
file.close()
"""


def test_a_disk_without_room_is_an_error_that_leaves_the_file_sound(path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("refused: disk")
    assert len(read(path)) == 499
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_several_writers_share_a_file(path: Path) -> None:
    files = [LedgerFile(path) for _ in range(3)]
    for number, file in enumerate(files * 4):
        file.write([attempt_ended(f"run_{number}")])
    for file in files:
        file.close()

    assert len(read(path)) == 12


def test_an_older_ledger_is_brought_up_to_date_with_its_rows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(path, attempt_ended("run_1"))
    later = (*MIGRATIONS, "ALTER TABLE attempts ADD COLUMN more TEXT NOT NULL DEFAULT 'none'")
    monkeypatch.setattr(ledger_file, "MIGRATIONS", later)

    rows = written(path, attempt_ended("run_2"))

    assert [(row["run_id"], row["more"]) for row in rows] == [("run_1", "none"), ("run_2", "none")]


@pytest.mark.parametrize("use", [written, read])
def test_a_ledger_of_a_later_version_is_left_alone(path: Path, use: object) -> None:
    written(path, attempt_ended())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    with pytest.raises(sqlite3.DatabaseError, match="later version"):
        use(path, attempt_ended("run_2")) if use is written else read(path)


def test_another_kind_of_file_is_neither_read_nor_written_over(path: Path) -> None:
    path.write_text("no database " * 100)

    with pytest.raises(sqlite3.DatabaseError):
        read(path)
    with pytest.raises(sqlite3.DatabaseError):
        written(path, attempt_ended())
    assert path.read_text() == "no database " * 100


def test_a_file_can_be_read_while_it_is_written(path: Path) -> None:
    file = LedgerFile(path)
    file.write([attempt_ended("run_1")])

    assert len(read(path)) == 1

    file.write([attempt_ended("run_2")])
    assert len(read(path)) == 2
    file.close()
