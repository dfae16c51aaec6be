"""One follower of one run, or of all: what waits for it, and what it has missed.

Nothing waits for a follower. What it has not taken waits in a bounded queue; what does not fit
into it is dropped and counted, and the follower is told so when it has taken the rest. One that
has taken nothing for ``stalled_s`` while frames were dropped is hopeless: its queue is given up
and it is sent away.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeAlias

import trio

from edge.core.mirror_frames import FINISHED, gap_frame
from edge.wire.websocket import array_frame, text_frame

Frame: TypeAlias = tuple[int, str, bytes]
"""Number within its run, type, and the WebSocket frame."""

NEVER = float("inf")

REPLAYED_AT_ONCE = 64
"""Frames of the past that are made in one go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Bounds of the mirror.

    Attributes:
        replay_bytes: what is kept of a run for those who come late; 0 keeps nothing.
        subscriber_buffer: frames that may wait for a follower.
        subscriber_bytes: and their bytes. What came in one piece may always wait.
        stalled_s: how long a follower may take nothing while frames are dropped.
        ended_bytes: what is kept in all of runs that have ended.
        turn_s: pause between two turns in which frames are handed out.
    """

    replay_bytes: int = 256 * 1024
    subscriber_buffer: int = 256
    subscriber_bytes: int = 4 * 1024 * 1024
    stalled_s: float = 10.0
    ended_bytes: int = 16 * 1024 * 1024
    turn_s: float = 0.005


@dataclass(frozen=True, slots=True)
class Ending:
    """How a WebSocket is closed: a code of RFC 6455 (4000 and up are ours) and a reason."""

    code: int
    reason: str = ""


OVER = Ending(1000)
GOING_AWAY = Ending(1001, "the gateway is going down")
NOT_ALLOWED = Ending(1008, "this key may not follow runs")
HOPELESS = Ending(1013, "too much was missed: nothing was read for too long")


class Subscription:
    """What one follower is to be sent; a context manager that ends with its leaving.

    Args:
        limits: of its queue.
        leave: called once, when it ends.
        types: the types of frames it wants; None for all.
        run_id: the only run it follows; None where it follows all.
        batched: frames that are due together are one message, a JSON array of them.

    Attributes:
        ending: how it is to be closed once :meth:`receive` returned nothing.
        dropped: frames it has missed in all.
    """

    def __init__(
        self,
        limits: MirrorLimits,
        leave: Callable[["Subscription"], None],
        *,
        types: frozenset[str] | None = None,
        run_id: str | None = None,
        epoch: float = 0.0,
        batched: bool = False,
    ) -> None:
        self._limits = limits
        self._leave = leave
        self._types = types
        self._run_id = run_id
        self._epoch = epoch
        self._batched = batched
        self._past: Iterator[bytes] = iter(())
        self._seen: dict[str, int] = {}
        self._queue: list[bytes] = []
        self._queued_bytes = 0
        self._missed = 0
        self._missed_seq = 0
        self._last: bytes = b""
        self._taken_at = trio.current_time()
        self._wake = trio.Event()
        self._is_over = False
        self.ending: Ending | None = None
        self.dropped = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(self)

    @property
    def is_open(self) -> bool:
        """Whether there is, or will be, something to send."""
        return not self._is_over

    async def receive(self) -> bytes:
        """What is due, as WebSocket frames in one piece; empty once :attr:`ending` says why."""
        self._taken_at = trio.current_time()
        while True:
            due = self._take()
            if due:
                return due
            if self.ending is not None:
                self._is_over = True
                return b""
            self._wake = trio.Event()
            self._taken_at = NEVER
            await self._wake.wait()
            self._taken_at = trio.current_time()

    def wants(self, kind: str) -> bool:
        """Whether frames of this type are to be sent."""
        return self._types is None or kind in self._types

    def wanted(self, frames: Sequence[Frame]) -> Iterator[bytes]:
        """Those of the wanted types, as they are sent."""
        return (data for _, kind, data in frames if self.wants(kind))

    # What the hub calls; nothing here waits.

    def begin(self, past: Iterator[bytes], seen: dict[str, int]) -> None:
        """Set what is sent first, and which frame of each run that includes."""
        self._past, self._seen = past, seen

    def push(self, run_id: str, frames: Sequence[Frame], now: float) -> None:
        """Frames of a run that came together, in order; those it has seen are passed over.

        They are taken together or missed together, so a burst that comes in one piece never makes
        a gap for a follower that keeps up.
        """
        if self._taken_at == NEVER:
            self._taken_at = now  # it waits for us
        seen, first, last = self._seen.get(run_id, 0), frames[0][0], frames[-1][0]
        self._seen[run_id] = last
        if first > seen + 1:
            # The run was faster than the hub; what this follower missed before comes with it.
            self._miss(first - seen - 1, first - 1, now)
            if self.ending is HOPELESS:
                return
            self._tell_gap()
        if first <= seen or self._types is not None:
            frames = [each for each in frames if each[0] > seen and self.wants(each[1])]
        if frames and run_id == self._run_id and frames[-1][1] == FINISHED:
            self._last = frames[-1][2]  # it is never dropped
            frames = frames[:-1]
        if frames:
            self._put([data for _, _, data in frames], frames[-1][0], now)
        self._wake.set()

    def over(self, run_id: str) -> None:
        """A run has ended; if it is the only one, so has this."""
        self._seen.pop(run_id, None)
        if run_id == self._run_id:
            self.end(OVER)

    def end(self, ending: Ending) -> None:
        """Send what waits, then close."""
        if self.ending is None:
            self.ending = ending
            self._wake.set()

    def _put(self, frames: list[bytes], last: int, now: float) -> None:
        queue, limits = self._queue, self._limits
        size = self._queued_bytes + sum(map(len, frames))
        full = len(queue) >= limits.subscriber_buffer or size > limits.subscriber_bytes
        if self._missed or (queue and full):
            self._miss(len(frames), last, now)
        else:
            queue += frames
            self._queued_bytes = size

    def _miss(self, count: int, seq: int, now: float) -> None:
        self._missed += count
        self._missed_seq = seq
        self.dropped += count
        if self.ending is None and now - self._taken_at > self._limits.stalled_s:
            self._missed += len(self._queue)
            self.dropped += len(self._queue)
            self._queue, self._queued_bytes = [], 0
            self._past = iter(())
            self.end(HOPELESS)
            self._leave(self)

    def _take(self) -> bytes:
        due: list[bytes] = []
        for frame in self._past:
            due.append(frame)
            if len(due) >= REPLAYED_AT_ONCE:
                return self._sent(due)
        due += self._queue
        if self._missed:
            due.append(self._gap())
        if self._last:
            due.append(self._last)
        self._queue, self._queued_bytes, self._last = [], 0, b""
        return self._sent(due)

    def _sent(self, due: list[bytes]) -> bytes:
        return array_frame(due) if self._batched and due else b"".join(due)

    def _tell_gap(self) -> None:
        """Put the gap where it is, if there is room for more than the gap."""
        if self._missed and len(self._queue) < self._limits.subscriber_buffer:
            self._queue.append(self._gap())

    def _gap(self) -> bytes:
        """What has been missed, which is told herewith."""
        one = self._run_id
        payload = gap_frame(
            self._missed,
            run_id=one,
            seq=self._missed_seq if one is not None else None,
            at=trio.current_time() + self._epoch,
        )
        self._missed = 0
        return text_frame(payload)
