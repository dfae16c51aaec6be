"""Processes of a measurement: started, pinned to a core, weighed through /proc, stopped.

The gateway (or a floor) has one core to itself and the fake provider and the load share another,
so that every figure is per core. On a machine with one core nothing is pinned. Only processes
that were started here are ever stopped.
"""

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cores:
    """Which core serves and which one loads; -1 where there is only one."""

    server: int
    load: int

    @staticmethod
    def pick(*, pinned: bool = True) -> "Cores":
        """The last core for the server and the first for the load, of those we may use."""
        cores = sorted(os.sched_getaffinity(0))
        return Cores(cores[-1], cores[0]) if pinned and len(cores) > 1 else Cores(-1, -1)


def raise_descriptor_limit() -> None:
    """A thousand streams need two thousand descriptors in the proxy; children inherit the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Server:
    """A child process in its own group, with its output in a log file."""

    def __init__(self, command: list[str], log: Path, core: int = -1) -> None:
        pin = [sys.executable, "-m", "benchmarks.pin", str(core)] if core >= 0 else []
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(  # noqa: S603 - our own commands
                [*pin, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process; ``benchmarks.pin`` keeps it when it becomes the command."""
        return self.process.pid

    def wait_for_port(self, port: int, patience_s: float = 30.0) -> None:
        """Until something listens there.

        Raises:
            RuntimeError: it ended, or nothing listened in time; with the end of its log.
        """
        until = time.monotonic() + patience_s
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
            except OSError:
                pause(0.05)
            else:
                return
        log = self.log.read_text(errors="replace")
        raise RuntimeError(f"nothing listens on port {port}; the end of the log: {log[-800:]}")

    def wait_for_line(self, begins: bytes, patience_s: float = 30.0) -> None:
        """Until it writes a line that begins so: of a gateway, that all its workers listen.

        Raises:
            RuntimeError: it ended, or wrote none in time; with the end of its log.
        """
        until = time.monotonic() + patience_s
        while time.monotonic() < until and self.process.poll() is None:
            if any(line.startswith(begins) for line in self.log.read_bytes().splitlines()):
                return
            pause(0.05)
        log = self.log.read_text(errors="replace")
        raise RuntimeError(f"no line {begins!r}; the end of the log: {log[-800:]}")

    def end(self) -> str:
        """How it ended, in words; empty while it runs."""
        code = self.process.poll()
        return "" if code is None else f"{self.log.stem} ended by itself with status {code}"

    def stop(self) -> None:
        """Ask it to end, and after five seconds make it."""
        for number, patience_s in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            if self.process.poll() is not None:
                return
            os.killpg(self.pid, number)
            try:
                self.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                continue


def pause(seconds: float) -> None:
    """Wait; the benchmarks are plain programs without an event loop."""
    time.sleep(seconds)  # noqa: TID251 - no trio here


def tree(pid: int) -> list[int]:
    """``pid`` and every process below it."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            below.setdefault(int(fields[1]), []).append(int(entry.name))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += below.get(found[-1], [])
    return found


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name; empty when the process has gone."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_seconds(pid: int) -> float:
    """User and system time of a process tree so far, in steps of a clock tick (10 ms)."""
    return sum(sum(map(int, fields[11:15])) for fields in map(_stat, tree(pid)) if fields) / TICK


def memory_kib(pid: int, kind: str = "Pss") -> int:
    """Memory of a process tree in KiB.

    ``Pss`` counts shared pages in shares, and so falls when another Python starts; ``Anonymous``
    is the tree's own and is what differences are taken of.
    """
    total = 0
    for each in tree(pid):
        try:
            text = Path("/proc", str(each), "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{kind}:")
        )
    return total


def settle(pid: int, patience_s: float = 5.0) -> None:
    """Wait until a server has worked off what the last load left behind."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        before = cpu_seconds(pid)
        pause(0.25)
        if cpu_seconds(pid) - before <= 0.02:
            return
