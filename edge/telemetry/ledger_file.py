"""The ledger's SQLite file: its columns, its versions, writing to it and nothing else.

One row for each attempt. No content is in it: no text, no arguments, no names of tools, and of a
failure only its category. ``time`` is when the attempt ended, in seconds since 1970; the columns
ending in ``_s`` are seconds, empty (NULL) where nothing was measured.

The file is in WAL mode, so that several processes write it and others read it meanwhile. A batch is
one transaction: after a crash it is there or it is not, and the file is sound. Rows carry
``(run_id, attempt)`` as a key, and one that is there already is left as it is, so a batch whose
fate is unknown may simply be written again.
"""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from edge.core.run_events import AttemptEnded

COLUMNS = (
    "run_id",
    "attempt",
    "time",
    "key",
    "route",
    "provider",
    "model",
    "path",
    "response_mode",
    "status",
    "category",
    "phase",
    "constrained",
    "feedback",
    "calls",
    "forms",
    "repaired",
    "repairs",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "usage",
    "content_chars",
    "reasoning_chars",
    "bytes_out",
    "first_token_s",
    "held_s",
    "total_s",
)

MIGRATIONS = (
    """
    CREATE TABLE attempts (
      run_id TEXT NOT NULL,
      attempt INTEGER NOT NULL,
      time REAL NOT NULL,
      key TEXT NOT NULL,
      route TEXT NOT NULL,
      provider TEXT NOT NULL,
      model TEXT NOT NULL,
      path TEXT NOT NULL,
      response_mode TEXT NOT NULL,
      status TEXT NOT NULL,
      category TEXT NOT NULL,
      phase TEXT NOT NULL,
      constrained INTEGER NOT NULL,
      feedback INTEGER NOT NULL,
      calls INTEGER NOT NULL,
      forms TEXT NOT NULL,
      repaired INTEGER NOT NULL,
      repairs TEXT NOT NULL,
      input_tokens INTEGER NOT NULL,
      output_tokens INTEGER NOT NULL,
      cached_tokens INTEGER NOT NULL,
      reasoning_tokens INTEGER NOT NULL,
      usage TEXT NOT NULL,
      content_chars INTEGER NOT NULL,
      reasoning_chars INTEGER NOT NULL,
      bytes_out INTEGER NOT NULL,
      first_token_s REAL,
      held_s REAL NOT NULL,
      total_s REAL NOT NULL,
      UNIQUE (run_id, attempt)
    );
    CREATE INDEX attempts_by_time ON attempts (time);
    """,
)
"""What leads from each version of the file to the next; its version is how many have been done."""

_INSERT = (
    f"INSERT OR IGNORE INTO attempts ({', '.join(COLUMNS)})"  # noqa: S608 - our own column names
    f" VALUES ({', '.join('?' * len(COLUMNS))})"
)

_MAX_INTEGER = 2**63 - 1
"""SQLite's largest. Token counts are the provider's word, and may be anything."""


class LedgerFile:
    """A ledger that is open for writing once something is written.

    Every method may raise :class:`sqlite3.Error`, and the next call then begins afresh. One call at
    a time, from any thread.

    Args:
        path: the file; it is made where there is none.
        busy_timeout_s: how long to wait for another process that writes.
    """

    def __init__(self, path: Path, *, busy_timeout_s: float = 1.0) -> None:
        self.path = path
        self._busy_timeout_s = busy_timeout_s
        self._connection: sqlite3.Connection | None = None

    def write(self, rows: Iterable[AttemptEnded]) -> None:
        """Write rows in one transaction; when this returns, they outlive this process."""
        if self._connection is None:
            self._connection = open_ledger(self.path, busy_timeout_s=self._busy_timeout_s)
        try:
            with _transaction(self._connection) as connection:
                connection.executemany(_INSERT, map(values_of, rows))
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _transaction:  # noqa: N801 - reads as a statement
    """``with _transaction(connection):`` takes the write lock first, so that it cannot be lost."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> sqlite3.Connection:
        self._connection.execute("BEGIN IMMEDIATE")
        return self._connection

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._connection.execute("COMMIT")
        elif self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def open_ledger(path: Path, *, busy_timeout_s: float) -> sqlite3.Connection:
    """Open a ledger for writing, made or brought to our version where that is needed.

    Raises:
        sqlite3.Error: it cannot be opened, or was written by a later version than this one.
    """
    connection = sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        # In WAL mode this keeps the file sound at any time; only a power cut may take the newest
        # batches with it.
        connection.execute("PRAGMA synchronous = NORMAL")
        if _version(connection) != len(MIGRATIONS):
            _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def read_ledger(path: Path) -> sqlite3.Connection:
    """Open a ledger for reading alone.

    Raises:
        sqlite3.Error: there is none, or it is not one that this version can read.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, uri=True, isolation_level=None)
    try:
        version = _version(connection)
        if not version:
            raise sqlite3.DatabaseError("is no ledger")
        _refuse_later(version)
    except BaseException:
        connection.close()
        raise
    return connection


def values_of(row: AttemptEnded) -> tuple[str | int | float | None, ...]:
    """A row's values, in the order of ``COLUMNS``."""
    usage = row.usage
    return (
        row.run_id,
        row.attempt,
        row.time,
        row.key,
        row.route,
        row.provider,
        _sound(row.model),
        row.path,
        row.response_mode,
        row.status,
        row.category,
        row.phase,
        row.constrained,
        row.feedback,
        len(row.calls),
        ",".join(row.forms),
        bool(row.repairs),
        ",".join(dict.fromkeys(row.repairs)),
        min(usage.input_tokens, _MAX_INTEGER),
        min(usage.output_tokens, _MAX_INTEGER),
        min(usage.cached_tokens, _MAX_INTEGER),
        min(usage.reasoning_tokens, _MAX_INTEGER),
        "reported" if usage.reported else "estimated",
        row.content_chars,
        row.reasoning_chars,
        row.bytes_out,
        row.first_token_s,
        row.held_s,
        row.total_s,
    )


def _sound(text: str) -> str:
    """A client's word for a model may hold a lone surrogate, which no database takes."""
    return text.encode("utf-8", "replace").decode()


def _migrate(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        # Another process may have done it while we waited for the lock.
        version = _version(connection)
        _refuse_later(version)
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _refuse_later(version: int) -> None:
    if version > len(MIGRATIONS):
        raise sqlite3.DatabaseError(f"is a ledger of a later version ({version})")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
