"""Where frames go: a terminal, a pipe, a file. Each is a :class:`~edge.tail.connection.Watcher`.

Writing is done at once and may wait for the terminal: nothing else happens here meanwhile, and
the gateway delays no run for a follower that is slow.
"""

import os
import time
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.live import Live

from edge.tail.places import Frame
from edge.tail.screen import Board, RunText

OWNER_ONLY = 0o600
"""A recording holds what models and clients said."""


class Lines:
    """Frames as JSON, one a line; news of the connection go to ``aside``."""

    def __init__(self, out: IO[str], aside: Console) -> None:
        self._out = out
        self._aside = aside

    def frame(self, text: str, frame: Frame) -> None:  # noqa: ARG002 - a port
        """See :class:`Watcher`."""
        self._out.write(text + "\n")
        self._out.flush()

    def lost(self, why: str, after_s: float) -> None:
        """See :class:`Watcher`."""
        self._aside.print(_lost(why, after_s), style="yellow", markup=False, highlight=False)


class Reading:
    """One run as running text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = RunText()

    def frame(self, text: str, frame: Frame) -> None:  # noqa: ARG002 - a port
        """See :class:`Watcher`."""
        told = self._text.feed(frame)
        if told:
            self._console.print(told, end="", soft_wrap=True)

    def lost(self, why: str, after_s: float) -> None:
        """See :class:`Watcher`."""
        self._console.print(self._text.note(_lost(why, after_s)), end="", soft_wrap=True)


class Overview:
    """All runs: lines that stay, and below them a table that changes."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._board = Board()

    def frame(self, text: str, frame: Frame) -> None:  # noqa: ARG002 - a port
        """See :class:`Watcher`."""
        told = self._board.feed(frame)
        if told is not None:
            self._console.print(told, soft_wrap=self._live is None)

    def lost(self, why: str, after_s: float) -> None:
        """See :class:`Watcher`."""
        self._console.print(self._board.note(_lost(why, after_s)))

    def refresh(self) -> None:
        """Show the table as it is now."""
        if self._live is not None:
            self._live.update(self._board.table(time.time()), refresh=True)


class Recorder:
    """Writes every frame into a file before it is told to ``inner``."""

    def __init__(self, out: IO[str], inner: "Lines | Reading | Overview") -> None:
        self._out = out
        self._inner = inner

    def frame(self, text: str, frame: Frame) -> None:
        """See :class:`Watcher`."""
        self._out.write(text + "\n")
        self._out.flush()
        self._inner.frame(text, frame)

    def lost(self, why: str, after_s: float) -> None:
        """See :class:`Watcher`."""
        self._inner.lost(why, after_s)


def open_recording(path: Path) -> IO[str]:
    """A file to record into, readable by its owner alone; what it held is replaced."""
    return open(path, "w", encoding="utf-8", opener=_owner_only)


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, OWNER_ONLY)


def _lost(why: str, after_s: float) -> str:
    return f"… {why}; connecting again in {after_s:.1f}s"
