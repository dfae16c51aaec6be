"""``edge tail``: follows runs in a terminal, for pipes, and into a file."""

import os
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import trio
from rich.console import Console
from rich.live import Live

from edge.tail.connection import CannotFollow, Follower, Target, Watcher
from edge.tail.watchers import Lines, Overview, Reading, Recorder, open_recording

__all__ = ["CannotFollow", "Target", "tail", "tail_or_tell"]

REFRESH_S = 0.25
OVERVIEW_TYPES = ("run.started", "attempt.started", "attempt.failed", "run.finished")
"""All that the table of runs shows: their text need not travel."""

READING_TYPES = (*OVERVIEW_TYPES, "chunk", "answer", "held")
"""All that is shown of one run: what its provider sent need not travel."""


INTERRUPTED = 130
"""Exit status of a command that SIGINT ended."""


def tail_or_tell(target: Target, *, as_json: bool = False, record: Path | None = None) -> int:
    """As :func:`tail`, with what goes wrong told on stderr; returns the exit status."""
    told = Console(stderr=True, markup=False, highlight=False)
    status = 0
    try:
        try:
            tail(target, as_json=as_json, record=record)
        except CannotFollow as failure:
            told.print(f"edge: {failure}", soft_wrap=True)
            status = 1
        except BrokenPipeError:
            _forget_stdout()  # whoever reads has enough
        except OSError as failure:
            told.print(f"edge: {failure}", soft_wrap=True)
            status = 1
    except* KeyboardInterrupt:
        status = INTERRUPTED
    return status


def tail(target: Target, *, as_json: bool = False, record: Path | None = None) -> None:
    """Follow until the run's end, or until interrupted.

    Args:
        target: what to follow; its ``types`` are chosen here.
        as_json: print the frames instead of showing them.
        record: file to write the frames into as well; it gets every type.

    Raises:
        CannotFollow: see :class:`CannotFollow`.
        OSError: stdout or the file cannot be written.
        KeyboardInterrupt: as always.
    """
    console = Console(highlight=False)
    overview = target.run_id is None and not as_json
    if record is None and not as_json:
        target = replace(target, types=OVERVIEW_TYPES if overview else READING_TYPES)
    with ExitStack() as stack:
        watcher: Lines | Reading | Overview
        if as_json:
            watcher = Lines(sys.stdout, Console(stderr=True))
        elif overview:
            live = None
            if console.is_terminal:
                live = stack.enter_context(Live(console=console, auto_refresh=False))
            watcher = Overview(console, live)
        else:
            watcher = Reading(console)
        told: Watcher = watcher
        if record is not None:
            told = Recorder(stack.enter_context(open_recording(record)), watcher)
        failure = trio.run(_follow, Follower(target, told), watcher)
        if failure is not None:
            raise failure


async def _follow(
    follower: Follower, watcher: Lines | Reading | Overview
) -> CannotFollow | OSError | None:
    """Failures are returned, since a nursery would wrap them in a group."""
    failure: CannotFollow | OSError | None = None
    async with trio.open_nursery() as nursery:
        if isinstance(watcher, Overview):
            nursery.start_soon(_keep_fresh, watcher)
        try:
            await follower.follow()
        except (CannotFollow, OSError) as error:
            failure = error
        nursery.cancel_scope.cancel()
    return failure


async def _keep_fresh(overview: Overview) -> None:
    while True:
        overview.refresh()
        await trio.sleep(REFRESH_S)


def _forget_stdout() -> None:
    """Keep the interpreter from flushing into the broken pipe on its way out."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())
