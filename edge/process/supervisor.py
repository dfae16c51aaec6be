"""Several workers: started, kept running, told of signals and of new settings.

Each worker listens on sockets of its own, bound to the same addresses with SO_REUSEPORT; the kernel
shares new connections out between them. The supervisor holds the addresses (bound, not listening),
so that port 0 is the same port for all, and serves nothing itself.

Start: it is up when every worker listens; one that ends before that ends all, with status 1.
Crash: a worker that ends unasked is replaced, after a pause that doubles with each crash in a row;
what the others do goes on. One whose event loop shows no sign of life for ``server.hang_s`` is
killed, and so replaced.
SIGTERM, SIGINT: all drain, and the status is 0. A second one: all end at once, with the status that
a shell gives for the signal.
SIGHUP: the settings are read once, here, and handed to every worker; bad ones are refused, with a
line of log, before any worker sees them.

Workers are in process groups of their own: Ctrl-C reaches the supervisor alone, which passes it on
once.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

import edge
from edge.process import systemd
from edge.process.announce import say, say_serving
from edge.process.channel import Answer, Channel
from edge.process.rereading import confirm, read_again
from edge.server.sockets import CannotListen, bind_all, url_of
from edge.settings import Address, Settings
from edge.telemetry.logs import configure_logs, hide_secrets
from edge.telemetry.shared_metrics import FOLDER_VARIABLE, forget_gauges, metrics_folder

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 30.0
STEADY_S = 30.0
"""A worker that served for so long has not crashed in a row."""

TAKING_S = 30.0
"""How long a worker may take to use new settings."""

READING_S = 0.5
"""How long signs of life that have come may take to be read."""

ENDING_S = 5.0
"""How long a worker that is to end at once may take."""

log = logging.getLogger("edge.supervisor")


def supervise(settings: Settings, reread: Callable[[], Settings]) -> int:
    """Run workers until a signal comes; returns the exit status."""
    configure_logs(settings.telemetry.log)
    hide_secrets(settings.secrets())
    try:
        with _addresses_held(settings.server.bind) as (binds, urls), metrics_folder() as metrics:
            return trio.run(Supervisor(settings, binds, urls, reread, metrics).run)
    except CannotListen as failure:
        say(str(failure))
        return 1


class Supervisor:
    """The workers of one gateway.

    Args:
        settings: as they were read.
        binds: the addresses that are really bound.
        urls: where clients find them.
        reread: reads the settings again; raises ``SettingsError``.
        metrics: folder in which the workers keep theirs together.
    """

    def __init__(
        self,
        settings: Settings,
        binds: tuple[Address, ...],
        urls: list[str],
        reread: Callable[[], Settings],
        metrics: Path,
    ) -> None:
        self._settings = settings
        self._binds = binds
        self._urls = urls
        self._reread = reread
        self._metrics = metrics
        self._workers: dict[int, Worker] = {}
        self._missing = set(range(1, settings.server.workers + 1))
        """Workers that have not listened yet."""
        self._failed = False
        self._reloading = trio.Lock()
        self._stopping = trio.Event()

    async def run(self) -> int:
        """Start and keep the workers; returns the exit status."""
        cut_short = 0
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
                nursery.start_soon(self._keep_all, nursery.cancel_scope)
                nursery.start_soon(systemd.show_life)
                async for number in signals:
                    if number == signal.SIGHUP:
                        nursery.start_soon(self._reload)
                    elif self._stopping.is_set():
                        cut_short = 128 + number
                        nursery.cancel_scope.cancel()
                    else:
                        self._stop()
        return cut_short or (1 if self._failed else 0)

    async def _keep_all(self, whole: trio.CancelScope) -> None:
        async with trio.open_nursery() as keepers:
            for number in sorted(self._missing):
                keepers.start_soon(self._keep, number)
        whole.cancel()

    async def _keep(self, number: int) -> None:
        """Keep one worker running until the end is asked for."""
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            began = trio.current_time()
            worker = await self._live(number)
            if self._stopping.is_set():
                return
            if number in self._missing:
                self._fail(worker)
                return
            if trio.current_time() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            log.error("%s %s; another one starts in %g s", worker, worker.end(), pause_s)
            with trio.move_on_after(pause_s):
                await self._stopping.wait()
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    async def _live(self, number: int) -> "Worker":
        """The life of one process, from its start to its end."""
        async with trio.open_nursery() as nursery:
            worker: Worker = await nursery.start(Worker.start, number, self._metrics)
            self._workers[number] = worker
            if self._stopping.is_set():
                worker.ask_to_end()
            if await worker.take(self._bound(self._settings)) == "taken":
                self._note_listening(worker)
                if hang_s := self._settings.server.hang_s:
                    nursery.start_soon(worker.kill_if_hung, hang_s)
            await worker.ended.wait()
            nursery.cancel_scope.cancel()
        del self._workers[number]
        worker.forget()
        forget_gauges(self._metrics, worker.pid)
        return worker

    def _note_listening(self, worker: "Worker") -> None:
        if worker.number not in self._missing:
            log.warning("%s serves in its place", worker)
            return
        self._missing.discard(worker.number)
        if not self._missing and not self._stopping.is_set():
            say_serving(self._settings, self._urls)
            systemd.ready()

    def _fail(self, worker: "Worker") -> None:
        log.error("%s %s before it listened", worker, worker.end())
        self._failed = True
        self._stop()

    def _stop(self) -> None:
        systemd.stopping()
        self._stopping.set()
        for worker in self._workers.values():
            worker.ask_to_end()

    async def _reload(self) -> None:
        async with self._reloading:
            systemd.reloading()
            settings = await read_again(self._settings, self._reread)
            if settings is not None and await self._hand_out(settings):
                confirm(settings)
            if not self._missing and not self._stopping.is_set():
                systemd.ready()

    async def _hand_out(self, settings: Settings) -> bool:
        """Give new settings to every worker; False where they cannot be used.

        One after the other: what the first one refuses, no other sees. A worker that starts in the
        meantime starts with the new ones.
        """
        old, self._settings = self._settings, settings
        for worker in list(self._workers.values()):
            answer: Answer | None = None
            with trio.move_on_after(TAKING_S):
                answer = await worker.take(self._bound(settings))
            if answer == "refused":
                self._settings = old
                return False
            if answer is None:
                log.error("%s did not take the new configuration, and is replaced", worker)
                worker.forget()
        return True

    def _bound(self, settings: Settings) -> Settings:
        return replace(settings, server=replace(settings.server, bind=self._binds))


class Worker:
    """One worker process, seen from outside."""

    def __init__(self, number: int, process: trio.Process, channel: Channel) -> None:
        self.number = number
        self._process = process
        self._channel = channel
        self._taking = trio.Lock()
        self._beat = trio.Event()
        self.ended = trio.Event()

    def __str__(self) -> str:
        return f"worker {self.number} (pid {self._process.pid})"

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    @staticmethod
    async def start(
        number: int,
        metrics: Path,
        *,
        task_status: trio.TaskStatus["Worker"] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Start a process and return when it has ended; when cancelled, it is ended at once."""
        ours, theirs = trio.socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            begin = partial(
                trio.run_process,
                [*_python(), "worker", str(descriptor)],
                stdin=subprocess.DEVNULL,
                check=False,
                deliver_cancel=_end_at_once,
                pass_fds=[descriptor],
                env={**os.environ, FOLDER_VARIABLE: str(metrics)},
                process_group=0,
            )
            async with trio.open_nursery() as nursery:
                process: trio.Process = await nursery.start(begin)
                theirs.close()
                worker = Worker(number, process, Channel(trio.SocketStream(ours)))
                nursery.start_soon(worker._listen)
                task_status.started(worker)
        worker.ended.set()

    async def take(self, settings: Settings) -> Answer:
        """Give it settings and wait for what it says to them."""
        async with self._taking:
            return await self._channel.send(settings)

    async def kill_if_hung(self, hang_s: float) -> None:
        """Kill it once its event loop has shown no sign of life for so long."""
        alive = True
        while alive:
            self._beat = trio.Event()
            with trio.move_on_after(hang_s):
                await self._beat.wait()
            if not self._beat.is_set():
                # The supervisor may have been stopped itself; then the signs are there to be read.
                await trio.sleep(READING_S)
            alive = self._beat.is_set()
        log.error("%s has shown no sign of life for %g s, and is killed", self, hang_s)
        self._process.kill()

    def note_life(self) -> None:
        """It has shown a sign of life."""
        self._beat.set()

    async def _listen(self) -> None:
        await self._channel.listen(self.note_life)

    def ask_to_end(self) -> None:
        """Have it drain; asked twice, it ends at once."""
        self._process.terminate()

    def end(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if code is not None and code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with status {code}"

    def forget(self) -> None:
        """Let go of it; a worker that still runs drains and ends."""
        self._channel.close()


async def _end_at_once(process: trio.Process) -> None:
    process.terminate()  # the second time: it was asked to drain before
    await trio.sleep(ENDING_S)
    process.kill()


def _python() -> list[str]:
    """The command line that runs this very package, wherever a worker starts."""
    package = Path(edge.__file__).resolve().parent
    # -P: a folder of the same name where the gateway was started is not what runs here.
    from_here = package == Path.cwd() / package.name
    return [sys.executable, *([] if from_here else ["-P"]), "-m", package.name]


@contextmanager
def _addresses_held(
    binds: tuple[Address, ...],
) -> Iterator[tuple[tuple[Address, ...], list[str]]]:
    """Hold the addresses for workers; yields them and their URLs, free ports chosen.

    They are bound once without SO_REUSEPORT: with it, a second gateway of the same user would not
    be refused an address, but given half of its connections.
    """
    names: list[tuple[str, int]] = []
    for made in bind_all([str(bind) for bind in binds]):
        with made:
            names.append(made.getsockname()[:2])
    taken = tuple(Address(host, port) for host, port in names)
    held = bind_all([str(address) for address in taken], reuse_port=True)
    try:
        yield taken, [url_of(made) for made in held]
    finally:
        for made in held:
            made.close()
