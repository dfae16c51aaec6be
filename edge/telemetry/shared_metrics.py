"""Where several workers keep their metrics, to be summed: a folder of their supervisor's.

The supervisor, which serves nothing, makes the folder and takes it away; so this module loads
nothing of the metrics. Where the supervisor was killed, the last of its workers takes the folder
away. It is in memory where the system has such a place, so that no disk can fill up under it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable by which a worker is told."""

_MEMORY = Path("/dev/shm")  # noqa: S108 - a fresh folder of our own is made in it


@contextmanager
def metrics_folder() -> Iterator[Path]:
    """A fresh folder, taken away in the end."""
    parent = _MEMORY if _MEMORY.is_dir() else None
    try:
        folder = Path(tempfile.mkdtemp(prefix="edge-metrics-", dir=parent))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="edge-metrics-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def hold_folder() -> int | None:
    """Share the hold of the supervisor's folder, for as long as this process lives.

    The kernel lets go of it however the process ends. Returns what :func:`abandon_folder` takes.
    """
    if FOLDER_VARIABLE not in os.environ:
        return None
    held = os.open(os.environ[FOLDER_VARIABLE], os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(held, fcntl.LOCK_SH)
    return held


def abandon_folder(held: int | None) -> None:
    """Leave the folder of a supervisor that has died; the last worker to end takes it away.

    A worker that still drains goes on with its files, and may open more.
    """
    if held is None:
        return
    # Whoever asks for the whole of it has let go of its share first (flock(2)), so of two that end
    # together one gets it.
    with suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(os.environ[FOLDER_VARIABLE], ignore_errors=True)


def forget_gauges(folder: Path, pid: int) -> None:
    """A worker has ended: what was so in it is so no more. What it counted stays counted."""
    for file in folder.glob(f"gauge_live*_{pid}.db"):
        with suppress(OSError):
            file.unlink()
