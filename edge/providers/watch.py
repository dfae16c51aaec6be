"""Reads many sockets in one task, so that a read wakes no other.

Theory of operation. A task that reads a socket through trio costs three things at each read: the
socket is armed (``epoll_ctl``), the event loop marks the task as runnable, and the task is resumed
through all the coroutines that it is made of. With a hundred streams of a hundred small pieces a
second that is a third of all that is done (docs/design/030). Here a task that reads on and on
says once what is to be done with each piece, and sleeps:

    await watch.each(sock, take)    # take(data) says whether to go on

The watch has all such sockets in an ``epoll`` of its own, which it waits for as trio waits for any
descriptor. What is readable is read and given to ``take`` right there, in the watch's task. The
sleeping task wakes when ``take`` has said False (there is something to wait for), when it raised
(the task gets the exception), when the connection ended or broke, or when it is cancelled. So
deadlines, cancellation and errors are those of the task, as if it had read by itself.

``take`` must not block: it is called between two turns of the event loop, as everything is that
does not await.

Where there is no ``epoll`` (macOS), or the watch does not run, ``each`` returns at once and the
caller reads by itself.
"""

import select
import socket
from collections.abc import Callable
from typing import TypeAlias

import trio

from edge.providers.reading import read_now

Take: TypeAlias = Callable[[bytes], bool]
"""Takes what one read brought, never empty; returns whether more is wanted."""

_AT_ONCE = 16
_MOST_IN_A_ROW = 256 * 1024
"""Bytes that are read in a row; then everybody else has a turn."""

_LEAST = 16384
"""What a read counts for at least: what a small piece costs is not its bytes. So a turn is 16 of
them at most, and a run that begins waits for several turns (docs/design/030)."""


class _Reader:
    """A sleeping task, its socket, and what to do with what comes.

    Attributes:
        failure: what the task is to raise when it wakes.
    """

    __slots__ = ("failure", "sock", "take", "task")

    def __init__(self, sock: socket.socket, take: Take) -> None:
        self.sock = sock
        self.take = take
        self.task = trio.lowlevel.current_task()
        self.failure: Exception | None = None


class Watch:
    """See the module's docstring; ``run`` is its task."""

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        self._readers: dict[int, _Reader] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read until cancelled; whoever sleeps then wakes, and reads by itself again."""
        if not hasattr(select, "epoll"):
            task_status.started()
            return
        with select.epoll() as epoll:
            self._epoll = epoll
            task_status.started()
            try:
                while True:
                    await trio.lowlevel.wait_readable(epoll.fileno())
                    self._turn(epoll)
            finally:
                for descriptor in list(self._readers):
                    self._wake(descriptor)
                self._epoll = None

    async def each(self, sock: socket.socket, take: Take) -> None:
        """Give ``take`` what each read brings, until it returns False or nothing more comes.

        Nothing is read behind that: what comes later is the next reader's, and so is the end.
        Returns at once where sockets cannot be watched.

        Raises:
            trio.BrokenResourceError: the connection was reset.
            Exception: what ``take`` raised.
        """
        epoll = self._epoll
        if epoll is None:
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        descriptor = sock.fileno()
        reader = self._readers[descriptor] = _Reader(sock, take)
        epoll.register(descriptor, select.EPOLLIN)

        def give_up(_: object) -> trio.lowlevel.Abort:
            self._forget(descriptor)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(give_up)
        failure, reader.failure = reader.failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # else it would know this frame, and this frame it

    def _turn(self, epoll: select.epoll) -> None:
        """Serve what is readable, and what becomes so meanwhile, up to a bound."""
        left = _MOST_IN_A_ROW
        # Whoever has been served is last in the kernel's list, so all come by in turn.
        while left > 0 and (ready := epoll.poll(0, _AT_ONCE)):
            for descriptor, _ in ready:
                left -= max(self._serve(descriptor), _LEAST)

    def _serve(self, descriptor: int) -> int:
        """Read one socket that is readable (or has failed), and hand on what it brought."""
        reader = self._readers.get(descriptor)
        if reader is None:
            return 0
        try:
            data = read_now(reader.sock)
        except BlockingIOError:
            return 0
        except OSError as error:
            data = b""
            reader.failure = trio.BrokenResourceError()
            reader.failure.__cause__ = error.with_traceback(None)
        try:
            if data and reader.take(data):
                return len(data)
        except Exception as error:
            reader.failure = error
        self._wake(descriptor)
        return len(data)

    def _wake(self, descriptor: int) -> None:
        task = self._readers[descriptor].task
        self._forget(descriptor)
        trio.lowlevel.reschedule(task)

    def _forget(self, descriptor: int) -> None:
        del self._readers[descriptor]
        if self._epoll is not None:
            self._epoll.unregister(descriptor)
