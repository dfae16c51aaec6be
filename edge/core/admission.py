"""Who may start a run now, who waits, and who is sent away.

``max_runs`` places, and a queue in front of them that is fair by key: the keys that wait take
turns, so a key with a thousand requests delays another's first one by one run, not by a thousand.
A key that has used up its own ``max_concurrent`` waits without holding up the others.

The queue is bounded. When it is full, a newcomer takes the last place of the key that has the most
waiting, if that key has at least two more than the newcomer's own; else the newcomer is sent away.
Whoever is sent away is told when to come back: its place in the order of service, times the mean
length of the runs that ended lately, divided by the places they share.

A refusal is ``RateLimited`` (429) where the key's own share is the reason, else ``Overloaded``
(503).
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

from edge.errors import Busy, Overloaded, RateLimited

_NEWEST = 0.1
"""Weight of the newest run in the mean length: it remembers about the last ten."""

_FIRST_GUESS_S = 1.0
"""A run's length, before one has ended."""

_LONGEST_RETRY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """Bounds of admission.

    Attributes:
        max_runs: runs at a time.
        queue: runs that may wait.
        queue_timeout_s: how long one waits at most (kept by the shell).
    """

    max_runs: int = 2000
    queue: int = 2000
    queue_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyStatistics:
    """One key: its limit (0 for none), its active and its waiting runs."""

    key: str
    limit: int
    active: int
    queued: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionStatistics:
    """All keys together, and each.

    Attributes:
        mean_run_s: mean length of the runs that ended lately, None before the first.
        refused: runs sent away so far, time spent in the queue over included.
    """

    active: int
    queued: int
    refused: int
    draining: bool
    mean_run_s: float | None
    keys: tuple[KeyStatistics, ...]


class _Share:
    """One key's part."""

    __slots__ = ("active", "limit", "name", "queue")

    def __init__(self, name: str) -> None:
        self.name = name
        self.limit = 0
        self.active = 0
        self.queue: OrderedDict[Ticket, None] = OrderedDict()

    @property
    def is_used_up(self) -> bool:
        return 0 < self.limit <= self.active


@dataclass(slots=True, eq=False)
class Place:
    """An admitted run, to be given back exactly once."""

    share: _Share
    since: float
    given_back: bool = False


@dataclass(slots=True, eq=False)
class Ticket:
    """A waiting run; it is settled by ``place`` or by ``refused``."""

    share: _Share
    place: Place | None = None
    refused: Busy | None = None


class AdmissionQueue:
    """Decides; every ``now`` is in seconds of one steady clock."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self._limits = limits
        self._shares: dict[str, _Share] = {}
        self._turns: OrderedDict[_Share, None] = OrderedDict()
        self._active = 0
        self._queued = 0
        self._refused = 0
        self._mean_run_s: float | None = None
        self._woken: list[Ticket] = []
        self.draining = False

    def ask(self, key: str, limit: int, now: float) -> Place | Ticket | Busy:
        """A place now, a ticket for the queue, or the reason why neither.

        Args:
            key: whose run it is.
            limit: how many runs of this key may be active, 0 for no limit of its own.
            now: the time.
        """
        share = self._share(key, limit)
        if self.draining:
            return self._refuse(Overloaded("the gateway is shutting down", retry_after_s=1.0))
        # A free place is never kept from a queue, so nobody is overtaken here.
        if self._active < self._limits.max_runs and not share.is_used_up:
            return self._start(share, now)
        if self._queued >= self._limits.queue and not self._make_room(share):
            return self._refuse(self._busy(share, "and so is the queue"))
        ticket = Ticket(share)
        share.queue[ticket] = None
        self._queued += 1
        if not share.is_used_up:
            self._turns.setdefault(share)
        return ticket

    def give_back(self, place: Place, now: float) -> None:
        """The run has ended.

        Raises:
            RuntimeError: the place was given back before.
        """
        if place.given_back:
            raise RuntimeError("a place is given back once")
        place.given_back = True
        self._measure(max(now - place.since, 0.0))
        share = place.share
        share.active -= 1
        self._active -= 1
        if share.queue and not share.is_used_up:
            self._turns.setdefault(share)
        self._serve(now)

    def leave(self, ticket: Ticket, now: float) -> None:
        """Whoever waited has gone; a place that was granted in the meantime goes on."""
        if ticket.place is not None:
            if not ticket.place.given_back:
                self.give_back(ticket.place, now)
        elif ticket.refused is None:
            self._drop(ticket)

    def time_out(self, ticket: Ticket) -> Busy:
        """The ticket has waited for as long as it may: drop it; returns what to tell."""
        self._drop(ticket)
        ticket.refused = self._refuse(self._busy(ticket.share, "and no place came free in time"))
        return ticket.refused

    def woken(self) -> list[Ticket]:
        """The tickets settled since the last call."""
        woken = self._woken
        if woken:
            self._woken = []
        return woken

    def statistics(self) -> AdmissionStatistics:
        """Numbers as of now."""
        return AdmissionStatistics(
            active=self._active,
            queued=self._queued,
            refused=self._refused,
            draining=self.draining,
            mean_run_s=self._mean_run_s,
            keys=tuple(
                KeyStatistics(
                    key=share.name,
                    limit=share.limit,
                    active=share.active,
                    queued=len(share.queue),
                )
                for share in self._shares.values()
            ),
        )

    def _share(self, key: str, limit: int) -> _Share:
        share = self._shares.get(key)
        if share is None:
            share = self._shares[key] = _Share(key)
        share.limit = limit
        return share

    def _start(self, share: _Share, now: float) -> Place:
        share.active += 1
        self._active += 1
        return Place(share, now)

    def _serve(self, now: float) -> None:
        """Give free places to the keys that wait, in turns."""
        while self._turns and self._active < self._limits.max_runs:
            share, _ = self._turns.popitem(last=False)
            ticket, _ = share.queue.popitem(last=False)
            self._queued -= 1
            ticket.place = self._start(share, now)
            self._woken.append(ticket)
            if share.queue and not share.is_used_up:
                self._turns[share] = None

    def _make_room(self, newcomer: _Share) -> bool:
        """Send away the last of the longest queue, if that is fairer than to refuse."""
        longest = max(self._shares.values(), key=lambda share: len(share.queue))
        if len(longest.queue) < len(newcomer.queue) + 2:
            return False
        ticket = next(reversed(longest.queue))
        self._drop(ticket)
        busy = RateLimited(
            "this key holds most of a queue that is full",
            retry_after_s=self._come_back_in(longest),
        )
        ticket.refused = self._refuse(busy)
        self._woken.append(ticket)
        return True

    def _drop(self, ticket: Ticket) -> None:
        share = ticket.share
        del share.queue[ticket]
        self._queued -= 1
        if not share.queue:
            self._turns.pop(share, None)

    def _refuse(self, busy: Busy) -> Busy:
        self._refused += 1
        return busy

    def _busy(self, share: _Share, how: str) -> Busy:
        retry_after_s = self._come_back_in(share)
        if share.is_used_up:
            message = f"all {share.limit} concurrent runs of this key are in use {how}"
            return RateLimited(message, retry_after_s=retry_after_s)
        message = f"all {self._limits.max_runs} runs of this gateway are in use {how}"
        return Overloaded(message, retry_after_s=retry_after_s)

    def _come_back_in(self, share: _Share) -> float:
        """Whole seconds until a run that came now would have had its turn."""
        turn, places = len(share.queue) + 1, share.limit
        if not share.is_used_up:
            others = len(self._turns) - (share in self._turns)
            turn = min(turn * (others + 1), self._queued + 1)
            places = self._limits.max_runs
        length_s = _FIRST_GUESS_S if self._mean_run_s is None else self._mean_run_s
        return float(math.ceil(min(max(turn * length_s / places, 1.0), _LONGEST_RETRY_S)))

    def _measure(self, length_s: float) -> None:
        if self._mean_run_s is None:
            self._mean_run_s = length_s
        else:
            self._mean_run_s += _NEWEST * (length_s - self._mean_run_s)
