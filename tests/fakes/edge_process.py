"""``edge serve`` as a process of its own, with its signals, its stderr and its workers.

async with edge_process("--workers", "2") as edge:
    async with connect(edge.url) as client: ...
    edge.send(signal.SIGTERM)
    assert await edge.ended() == 0

Waits are bounded generously: a machine under load is slow, and only a failure may take so long.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import trio

from tests.fakes.raw_client import connect

PATIENCE_S = 60.0


class EdgeProcess:
    """A started gateway.

    Attributes:
        url: where it listens; empty until it says so.
        lines: what it has written to stderr.
    """

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.url = ""
        self.lines: list[str] = []
        self._silent = False
        self._news = trio.Event()

    async def read_stderr(self) -> None:
        """Take stderr in until it ends: the process and its workers have ended then."""
        assert self.process.stderr is not None
        rest = b""
        async for data in self.process.stderr:
            *whole, rest = (rest + data).split(b"\n")
            self.lines += [line.decode() for line in whole]
            self._wake()
        self._silent = True
        self._wake()

    async def line(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait until so many lines match; the last of them."""
        with trio.fail_after(PATIENCE_S):
            while True:
                found = [match for line in self.lines if (match := re.search(pattern, line))]
                if len(found) >= times:
                    return found[times - 1]
                assert not self._silent, "\n".join(self.lines)
                await self._news.wait()

    async def serving(self) -> None:
        """Wait until it listens."""
        self.url = (await self.line(r"^edge: serving .* on (http://\S+)"))[1]

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; the exit status."""
        with trio.fail_after(PATIENCE_S):
            return await self.process.wait()

    def workers(self) -> list[int]:
        """The workers it has started, as the kernel lists its children."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        children = " ".join(each.read_text() for each in tasks.glob("*/children"))
        return [int(child) for child in children.split() if _is_worker(child)]

    def _wake(self) -> None:
        self._news.set()
        self._news = trio.Event()


def _is_worker(pid: str) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return b"\0worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@asynccontextmanager
async def edge_process(
    *arguments: str, environ: Mapping[str, str] | None = None, wait: bool = True
) -> AsyncGenerator[EdgeProcess]:
    """Run ``edge serve`` on a free port; it is killed if it still runs at the end of the block.

    Args:
        arguments: more of them.
        environ: variables beside the test's own.
        wait: come back only when it listens.
    """
    command = [sys.executable, "-m", "edge", "serve", "--bind", "127.0.0.1:0", *arguments]
    start = partial(
        trio.run_process,
        command,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environ or {})},
        check=False,
        deliver_cancel=_kill,
    )
    async with trio.open_nursery() as nursery:
        edge = EdgeProcess(await nursery.start(start))
        nursery.start_soon(edge.read_stderr)
        if wait:
            await edge.serving()
        yield edge
        nursery.cancel_scope.cancel()


async def _kill(process: trio.Process) -> None:
    process.kill()  # workers notice, and end
    await trio.lowlevel.checkpoint()


async def refused(url: str) -> None:
    """Wait until nobody listens any more."""
    with trio.fail_after(PATIENCE_S):
        while True:
            await trio.sleep(0.01)  # nothing tells of it
            try:
                async with connect(url):
                    pass
            except OSError:
                return


async def gone(pid: int) -> None:
    """Wait until a process that is not ours has ended."""
    with trio.fail_after(PATIENCE_S):
        while alive(pid):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs, one that nobody has buried not counted."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")
