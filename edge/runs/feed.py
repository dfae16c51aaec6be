"""One run's stream on its way to whoever follows it.

The run gives away the bytes it has written anyway, and goes on: a piece costs the run an append,
and, if somebody listens, one look and a wake-up. Everything else (making frames, handing them
out) is done by the hub's own task.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from edge.core.mirror_frames import (
    Answered,
    Asked,
    Finished,
    Held,
    Note,
    Piece,
    Received,
    frame_count,
    frames_of,
    is_pinned,
    size_of,
    type_of,
)
from edge.core.passed_events import EventCutter
from edge.core.replay import ReplayBuffer, Stamped
from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunStarted
from edge.core.stream_events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from edge.runs.subscription import Frame, Subscription
from edge.wire.strict_json import encode
from edge.wire.websocket import text_frame

SAYING = (TextDelta, ReasoningDelta, ToolCallDelta)


class Feed:
    """What a run has left so far, and who follows it.

    Args:
        started: the run.
        epoch: what to add to the event loop's clock to get seconds since 1970.
        replay_bytes: what is kept for late joiners.
        wake: called when there is something to hand out.
        judged: whether the run's answers are validated.
    """

    __slots__ = (
        "_cutter",
        "_handed_out",
        "_judged",
        "_rows",
        "_seq",
        "_wake",
        "attempt",
        "dirty",
        "epoch",
        "finished",
        "key",
        "listeners",
        "replay",
        "run_id",
    )

    def __init__(
        self,
        started: RunStarted,
        *,
        epoch: float,
        replay_bytes: int,
        wake: Callable[["Feed"], None],
        judged: bool = True,
    ) -> None:
        self.run_id = started.run_id
        self.key = started.key
        self.epoch = epoch
        self.replay: ReplayBuffer[Piece] = ReplayBuffer(
            replay_bytes, size=size_of, frames=frame_count, is_pinned=is_pinned
        )
        self.listeners: dict[Subscription, None] = {}
        self.attempt = 0
        self.dirty = False
        self.finished = False
        self._cutter: EventCutter | None = None
        self._judged = judged
        self._rows: list[AttemptEnded] = []
        self._wake = wake
        self._handed_out = 0  # position in the replay buffer
        self._seq = 0  # frames before it

    # What the run calls.

    def emitted(self, data: bytes, at: float) -> None:
        """The client got these bytes, whole events; ``at`` is on the event loop's clock."""
        self.replay.append(data, at, len(data))
        if self.listeners:
            self._wake(self)

    def passed(self, data: bytes, *, last: bool = False) -> None:
        """These bytes of an event stream passed through to the client."""
        if self._cutter is None:
            self._cutter = EventCutter()
        pieces = [self._cutter.feed(data), self._cutter.finish() if last else None]
        for piece in pieces:
            if piece is not None:
                self.replay.append(piece, trio.current_time(), len(piece.events))
        if self.listeners:
            self._wake(self)

    def answered(self, body: bytes) -> None:
        """The client got this body, an answer that is not streamed."""
        self.note(Answered(body))

    def held(self, events: Sequence[StreamEvent]) -> None:
        """These events came and were not shown; only what says something is told."""
        said = tuple(event for event in events if isinstance(event, SAYING))
        if said:
            self.note(Held(self.attempt, said, sum(map(_chars, said))))

    def received(self, chunks: Sequence[Mapping[str, Any]], *, live: bool) -> None:
        """The provider sent these chunks, and they have not been read yet."""
        self.note(Received(self.attempt, live, encode(chunks)))

    # What the hub calls.

    def asked(self, question: Mapping[str, Any]) -> None:
        """What a traced run's answer is judged by."""
        self.note(Asked(encode(question)[1:-1]))

    def attempt_started(self, started: AttemptStarted) -> None:
        """An attempt was dispatched."""
        self.attempt = started.attempt
        self.note(started)

    def attempt_ended(self, row: AttemptEnded) -> None:
        """An attempt has ended; only failed ones are told at once."""
        self._rows.append(row)
        if row.status != "success":
            self.note(row)

    def run_ended(self, ended: RunEnded) -> None:
        """The run is over; nothing follows."""
        self.note(Finished(ended, tuple(self._rows), self._judged))
        self.finished = True

    def note(self, note: Note) -> None:
        """Something happened that is no chunk."""
        self.replay.append(note, trio.current_time(), size_of(note))
        if self.listeners:
            self._wake(self)

    def follow(self, subscription: Subscription) -> int:
        """Hand out to a subscription what comes from now on; returns the frames before that."""
        seq = self.replay.frames_so_far()
        if not self.listeners:
            self._handed_out, self._seq = self.replay.end, seq
        self.listeners[subscription] = None
        return seq

    def take(self) -> list[Frame]:
        """The frames that have not been handed out, made once for all who follow."""
        seq, pieces = self.replay.since(self._handed_out, self._seq)
        self._handed_out = self.replay.end
        made: list[Frame] = []
        for stamped in pieces:
            frames = self.frames(stamped, seq + 1)
            made += frames
            seq += len(frames)
        self._seq = seq
        return made

    def count(self, stamped: Stamped[Piece]) -> int:
        """How many frames a piece makes."""
        return frame_count(stamped[1])

    def frames(self, stamped: Stamped[Piece], seq: int) -> list[Frame]:
        """The frames of one piece; ``seq`` is the first one's number."""
        at, piece = stamped
        kind = type_of(piece)
        payloads = frames_of(piece, self.run_id, seq, at + self.epoch)
        return [(number, kind, text_frame(payload)) for number, payload in enumerate(payloads, seq)]


def _chars(event: TextDelta | ReasoningDelta | ToolCallDelta) -> int:
    return len(event.arguments if isinstance(event, ToolCallDelta) else event.text)
