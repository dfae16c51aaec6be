"""Live copies of runs for whoever follows them.

The hub watches all runs as an observer and gives each a :class:`~edge.runs.feed.Feed`; the run
leaves in it what it wrote. One task of the hub turns what was left into frames, once for all
followers, and puts them into the followers' queues. So the cost for a run does not depend on how
many follow it, or on whether they read; and between two handfuls of followers the task gives way.

    hub = MirrorHub(registry, MirrorLimits())
    observers.add(hub.observe)
    nursery.start_soon(hub.run)
    with hub.follow(run_id, rights.may_see) as subscription:
        while frames := await subscription.receive(): ...

A late joiner first gets what the run's replay buffer holds, then what comes; the frames' numbers
see to it that none is lost or doubled in between. With ``replay_bytes = 0`` nothing is kept, and
the bytes of a run are left only while somebody follows it; its frames are numbered from there.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import trio

from edge.core.mirror_frames import CHUNK, Piece, gap_frame, is_pinned
from edge.core.recording import question_of
from edge.core.replay import Replayed, Stamped
from edge.core.run_events import (
    AttemptEnded,
    AttemptStarted,
    PieceEmitted,
    RunEnded,
    RunEvent,
    RunStarted,
)
from edge.runs.feed import Feed
from edge.runs.registry import ChatRun, Registry
from edge.runs.subscription import GOING_AWAY, HOPELESS, MirrorLimits, Subscription
from edge.wire.websocket import text_frame

Sees: TypeAlias = Callable[[str], bool]
"""Whether the runs of a key may be seen."""

Numbered: TypeAlias = Iterator[tuple[int, Stamped[Piece]]]
"""Pieces, and each one's first frame's number."""

IN_A_ROW = 32
"""After so many followers the hub gives way: runs come first."""

LIVE_BYTES = 64 * 1024
"""What a followed run may leave between two turns of the hub where nothing is kept for long."""


@dataclass(frozen=True, slots=True)
class MirrorStatistics:
    """The hub's state, and counts since its beginning.

    Attributes:
        subscribers: followers now.
        dropped: frames that followers have missed.
        hopeless: followers that were sent away for not reading.
    """

    subscribers: int
    dropped: int
    hopeless: int


class MirrorHub:
    """Everything that is followed, and everybody who follows."""

    def __init__(self, registry: Registry, limits: MirrorLimits) -> None:
        self._registry = registry
        self._limits = limits
        self._feeds: dict[str, Feed] = {}
        self._ended: OrderedDict[str, Feed] = OrderedDict()
        self._ended_bytes = 0
        self._watchers: dict[Subscription, Sees] = {}
        self._followers: dict[Subscription, str | None] = {}
        self._dirty: list[Feed] = []
        self._awake = trio.Event()
        self._draining = False
        self._dropped = 0
        self._hopeless = 0

    # The runs' side: nothing here waits.

    def observe(self, event: RunEvent) -> None:
        """Take note of a run event; an observer."""
        if isinstance(event, RunStarted):
            self._begin(event)
            return
        feed = self._feeds.get(event.run_id)
        if feed is None or isinstance(event, PieceEmitted):
            return
        match event:
            case AttemptStarted():
                feed.attempt_started(event)
            case AttemptEnded():
                feed.attempt_ended(event)
            case RunEnded():
                feed.run_ended(event)
                del self._feeds[feed.run_id]
                self._keep(feed)

    def _begin(self, event: RunStarted) -> None:
        run = self._registry.find(event.run_id)
        feed = self._feeds[event.run_id] = Feed(
            event,
            epoch=_epoch(),
            replay_bytes=self._limits.replay_bytes,
            wake=self._wake,
            judged=run is None or run.policy.validate != "off",
        )
        for watcher, sees in self._watchers.items():
            if sees(feed.key):
                feed.listeners[watcher] = None
        self._connect(feed)
        feed.note(event)
        if isinstance(run, ChatRun) and run.policy.trace and feed.replay.max_bytes:
            feed.asked(question_of(run.request.raw, run.policy))

    def _connect(self, feed: Feed) -> None:
        """Let the run leave its bytes, if there is anybody who can see them."""
        kept = self._limits.replay_bytes or (LIVE_BYTES if feed.listeners else 0)
        feed.replay.max_bytes = kept
        run = self._registry.find(feed.run_id)
        if run is not None:
            run.mirror = feed if kept else None

    def _keep(self, feed: Feed) -> None:
        """Keep an ended run for those who come a moment too late."""
        if not self._limits.replay_bytes:
            return
        self._ended[feed.run_id] = feed
        self._ended_bytes += feed.replay.held
        while self._ended_bytes > self._limits.ended_bytes:
            _, oldest = self._ended.popitem(last=False)
            self._ended_bytes -= oldest.replay.held

    def _wake(self, feed: Feed) -> None:
        if not feed.dirty:
            feed.dirty = True
            self._dirty.append(feed)
            self._awake.set()

    # The followers' side.

    def follow(
        self,
        run_id: str,
        sees: Sees,
        *,
        types: frozenset[str] | None = None,
        batched: bool = False,
    ) -> Subscription | None:
        """Follow one run, live or ended a short while ago; None where there is none to be seen."""
        feed = self._feeds.get(run_id) or self._ended.get(run_id)
        if feed is None or not sees(feed.key):
            return None
        follower = self._follower(types, run_id, batched=batched)
        end = feed.replay.frames_so_far() if feed.finished else feed.follow(follower)
        kept = _numbered(feed, feed.replay.replay())
        follower.begin(_past(feed, kept, end, follower), {run_id: end})
        if feed.finished:
            follower.over(run_id)
        else:
            self._connect(feed)
        return follower

    def follow_all(
        self, sees: Sees, *, types: frozenset[str] | None = None, batched: bool = False
    ) -> Subscription:
        """Follow every run of the keys that ``sees`` allows.

        Of the runs that are under way it is told how they began and how much was missed.
        """
        follower = self._follower(types, None, batched=batched)
        feeds = [feed for feed in self._feeds.values() if sees(feed.key)]
        seen = {feed.run_id: feed.follow(follower) for feed in feeds}
        past = [
            _past(feed, _beginnings(feed, feed.replay.replay()), seen[feed.run_id], follower)
            for feed in feeds
        ]
        follower.begin(chain.from_iterable(past), seen)
        for feed in feeds:
            self._connect(feed)
        self._watchers[follower] = sees
        if self._draining:
            self._awake.set()
        return follower

    def drain(self) -> None:
        """The gateway goes down: followers of all runs are sent away after the last run."""
        self._draining = True
        self._awake.set()

    def statistics(self) -> MirrorStatistics:
        """How many follow, and what they have missed."""
        dropped = self._dropped + sum(follower.dropped for follower in self._followers)
        return MirrorStatistics(len(self._followers), dropped, self._hopeless)

    def _follower(
        self, types: frozenset[str] | None, run_id: str | None, *, batched: bool
    ) -> Subscription:
        follower = Subscription(
            self._limits, self._leave, types=types, run_id=run_id, epoch=_epoch(), batched=batched
        )
        self._followers[follower] = run_id
        return follower

    def _leave(self, follower: Subscription) -> None:
        if follower not in self._followers:
            return
        run_id = self._followers.pop(follower)
        self._watchers.pop(follower, None)
        self._dropped += follower.dropped
        self._hopeless += follower.ending is HOPELESS
        feed = self._feeds.get(run_id) if run_id else None
        for left in [feed] if feed else [] if run_id else list(self._feeds.values()):
            if left.listeners.pop(follower, left) is None:
                self._connect(left)

    # In between.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hand out what the runs leave, until cancelled."""
        task_status.started()
        while True:
            await self._awake.wait()
            self._awake = trio.Event()
            await self._hand_out()
            # What comes meanwhile goes together: nobody sees the difference, and it costs less.
            await trio.sleep(self._limits.turn_s)

    async def _hand_out(self) -> None:
        dirty, self._dirty = self._dirty, []
        pushed = 0
        for feed in dirty:
            feed.dirty = False
            ended, frames = feed.finished, feed.take()
            now = trio.current_time()
            for follower in list(feed.listeners) if frames else ():
                follower.push(feed.run_id, frames, now)
                pushed += 1
                if pushed % IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
            if ended:
                for follower in feed.listeners:
                    follower.over(feed.run_id)
                feed.listeners.clear()
        if self._draining and not self._feeds and not self._dirty:
            for watcher in self._watchers:
                watcher.end(GOING_AWAY)


def _epoch() -> float:
    """What turns the event loop's clock into seconds since 1970."""
    return time.time() - trio.current_time()


def _numbered(feed: Feed, kept: Replayed[Piece]) -> Numbered:
    """All that is kept of a run, each piece with its first frame's number."""
    yield from kept.pinned
    seq = kept.seq
    for stamped in kept.pieces:
        yield seq + 1, stamped
        seq += feed.count(stamped)


def _beginnings(feed: Feed, kept: Replayed[Piece]) -> Numbered:
    """Only how the run and its attempts began."""
    return (each for each in _numbered(feed, kept) if is_pinned(each[1][1]))


def _past(feed: Feed, told: Numbered, end: int, follower: Subscription) -> Iterator[bytes]:
    """The pieces as they are sent, with a gap wherever numbers are left out up to ``end``."""
    seen = 0
    for seq, stamped in told:
        if seq > seen + 1:
            yield from _gap(feed, seen, seq - 1, follower)
        frames = feed.frames(stamped, seq)
        yield from follower.wanted(frames)
        seen = seq + len(frames) - 1
    if end > seen:
        yield from _gap(feed, seen, end, follower)


def _gap(feed: Feed, seen: int, last: int, follower: Subscription) -> Iterator[bytes]:
    if follower.wants(CHUNK):  # it is chunks that get lost
        at = trio.current_time() + feed.epoch
        yield text_frame(gap_frame(last - seen, run_id=feed.run_id, seq=last, at=at))
