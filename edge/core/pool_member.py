"""What the pool keeps of providers, of targets, of slots and of runs that wait."""

from collections import OrderedDict
from dataclasses import dataclass, field

from edge.core.breaker import Breaker
from edge.core.call_validity import CallValidity
from edge.core.fleet import ProviderSpec, Route, Target

NEVER = float("inf")

NOMINAL_SLOTS = 64
"""What a provider without a cap is taken to bear, beside others that have one."""


@dataclass(frozen=True, slots=True)
class Need:
    """The paths an attempt can use."""

    normalized: bool = True
    tunnel: bool = False


class Member:
    """A provider in the pool.

    Attributes:
        busy: slots taken.
        queue: who waits for one of its slots, in order; a dict for removal in constant time.
    """

    __slots__ = ("breaker", "busy", "queue", "spec")

    def __init__(self, spec: ProviderSpec, breaker: Breaker) -> None:
        self.spec = spec
        self.breaker = breaker
        self.busy = 0
        self.queue: OrderedDict[Wait, None] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Whether every slot is taken."""
        return 0 < self.spec.max_concurrent <= self.busy

    @property
    def is_swamped(self) -> bool:
        """Whether every slot is taken and as many runs wait as there are slots."""
        return self.is_full and len(self.queue) >= self.spec.max_concurrent

    def has_room(self, now: float) -> bool:
        """Whether an attempt may start now."""
        return not self.is_full and self.breaker.allows(now)

    def has_path(self, need: Need) -> bool:
        """Whether the provider's paths suffice."""
        spec = self.spec
        return (spec.normalized or not need.normalized) and (spec.tunnel or not need.tunnel)


class Candidate:
    """A target of one route.

    Attributes:
        validity: shared with the same target of other routes.
        last_taken: rises with every attempt, so that equals can take turns.
    """

    __slots__ = ("last_taken", "member", "name", "target", "validity")

    def __init__(self, target: Target, member: Member, validity: CallValidity) -> None:
        self.target = target
        self.name = target.name
        self.member = member
        self.validity = validity
        self.last_taken = 0

    def score(self, now: float) -> float:
        """How little this target is to be preferred by ``least_busy``."""
        slots = self.member.spec.max_concurrent or NOMINAL_SLOTS
        # Weight 0 means "when nothing else can": a number small enough to come last.
        weight = self.target.weight or 1e-9
        return (self.member.busy + 1) / (slots * weight) * self.validity.penalty(now)

    def is_preferred(self, avoid: frozenset[str]) -> bool:
        """Whether nothing but necessity should lead here: not avoided, not a mere stand-in."""
        if not self.target.weight:
            return False
        return self.name not in avoid and self.target.provider not in avoid


@dataclass(slots=True, eq=False)
class Slot:
    """The right to one attempt at a target, to be given back exactly once.

    Attributes:
        probe: whether the attempt decides if its provider is asked again.
    """

    candidate: Candidate
    probe: bool
    given_back: bool = False

    @property
    def target(self) -> Target:
        """Whom to ask, and for which model."""
        return self.candidate.target


@dataclass(frozen=True, slots=True)
class NoneLeft:
    """No target may be used, nor will one be soon.

    Attributes:
        retry_after_s: seconds after which one may be, None where that is not a matter of time.
        why: for people, naming the route and the providers.
    """

    retry_after_s: float | None
    why: str


@dataclass(slots=True, eq=False)
class Wait:
    """A run's place in the queues of the providers it may use.

    Attributes:
        choices: the route's targets, in order.
        candidates: those of them that it waits for now.
        until: when :meth:`Pool.poll` must be called, if the wait is not settled before.
        slot: what came of it, or
        refused: why nothing will.
    """

    route: Route
    choices: tuple[Candidate, ...]
    need: Need
    avoid: frozenset[str]
    pick: float
    candidates: tuple[Candidate, ...] = ()
    until: float = NEVER
    slot: Slot | None = None
    refused: NoneLeft | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the waiting is over."""
        return self.slot is not None or self.refused is not None


@dataclass(slots=True, eq=False)
class Line:
    """What a pool shares with the one that takes its place.

    Attributes:
        waiting: how many runs wait, whichever pool they asked.
        woken: waits that were settled, or whose ``until`` was moved.
        turns: rises with every attempt.
    """

    waiting: int = 0
    woken: list[Wait] = field(default_factory=list)
    turns: int = 0
