"""The newest part of one run's stream, for those who come late.

Theory of operation. A run leaves *pieces*: the bytes that its client got, as they are, and
*notes*, which are facts about it. A piece stands for any number of frames (a write may hold many
chunks), and frames are numbered 1, 2, 3… within the run. Appending a piece costs an append; frames
are counted only when a piece leaves the ring, or when somebody asks.

The ring is bounded in bytes. What leaves it is lost for those who come later, and counted, but for
the first few pinned pieces (how the run and its attempts began): they are few, and nothing else
makes sense without them.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")

MAX_PINNED = 64
"""Pinned pieces beyond it are lost like any other."""

_SPARE = 4
"""A full ring makes room for a sixteenth of its bytes at a time."""

Stamped: TypeAlias = tuple[float, T]
"""A piece, and when it came."""


@dataclass(frozen=True, slots=True)
class Replayed(Generic[T]):
    """What a late joiner gets, in this order.

    Attributes:
        pinned: pieces that outlived their time in the ring, with their frame's number.
        missed: frames that are lost.
        seq: number of the last of them, that is, of the last frame before ``pieces``.
        pieces: what the ring holds.
    """

    pinned: list[tuple[int, Stamped[T]]]
    missed: int
    seq: int
    pieces: list[Stamped[T]]


class ReplayBuffer(Generic[T]):
    """A ring of pieces, bounded in bytes.

    Args:
        max_bytes: what may be kept; the newest piece is kept whatever its size, unless this is 0.
            May be changed at any time.
        size: bytes of a piece.
        frames: how many frames a piece stands for.
        is_pinned: whether a piece (of one frame) stays when its place is needed.
    """

    __slots__ = (
        "_first",
        "_frames",
        "_gone",
        "_is_pinned",
        "_known",
        "_pinned",
        "_ring",
        "_size",
        "held",
        "max_bytes",
    )

    def __init__(
        self,
        max_bytes: int,
        *,
        size: Callable[[T], int],
        frames: Callable[[T], int],
        is_pinned: Callable[[T], bool],
    ) -> None:
        self.max_bytes = max_bytes
        self._size = size
        self._frames = frames
        self._is_pinned = is_pinned
        self._ring: deque[Stamped[T]] = deque()
        self._pinned: list[tuple[int, Stamped[T]]] = []
        self._first = 0  # position of the ring's first piece among all pieces
        self._gone = 0  # frames before it
        self._known = (0, 0)  # a position, and how many frames come before it
        self.held = 0

    @property
    def end(self) -> int:
        """Position after the newest piece, counted in pieces since the run's beginning."""
        return self._first + len(self._ring)

    def append(self, piece: T, at: float, size: int) -> None:
        """Take a piece of ``size`` bytes."""
        self._ring.append((at, piece))
        self.held += size
        if self.held > self.max_bytes:
            self._make_room()

    def frames_so_far(self) -> int:
        """How many frames the run has left until now."""
        position, frames = self._known
        if position < self._first:
            position, frames = self._first, self._gone
        frames += sum(self._frames(piece) for _, piece in self._newest(self.end - position))
        self._known = (self.end, frames)
        return frames

    def replay(self) -> Replayed[T]:
        """What is kept, as a late joiner gets it."""
        lost = self._gone - len(self._pinned)
        return Replayed(list(self._pinned), lost, self._gone, list(self._ring))

    def since(self, position: int, seq: int) -> tuple[int, list[Stamped[T]]]:
        """The pieces from a position on, and the number of the last frame before them.

        Where they have left the ring already, it begins later, with the number that shows it.

        Args:
            position: as ``end`` was.
            seq: as ``frames_so_far`` was then.
        """
        if position < self._first:
            position, seq = self._first, self._gone
        return seq, self._newest(self.end - position)

    def _newest(self, count: int) -> list[Stamped[T]]:
        ring = self._ring
        if count >= len(ring):
            return list(ring)
        return [ring[-nth] for nth in range(count, 0, -1)]

    def _make_room(self) -> None:
        """Let the oldest go, some more than needed, so that this is not done for every piece."""
        ring, frames, size, is_pinned = self._ring, self._frames, self._size, self._is_pinned
        enough = self.max_bytes - (self.max_bytes >> _SPARE)
        keep = 1 if self.max_bytes else 0
        held, gone, dropped = self.held, self._gone, 0
        while len(ring) > keep and held > enough:
            stamped = ring.popleft()
            piece = stamped[1]
            dropped += 1
            gone += frames(piece)
            held -= size(piece)
            if is_pinned(piece) and len(self._pinned) < MAX_PINNED:
                self._pinned.append((gone, stamped))
        self._first += dropped
        self.held, self._gone = held, gone
