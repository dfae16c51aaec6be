"""Which provider takes the next attempt, and who waits for which.

The pool knows every provider's slots, health and waiting runs; it decides, and does nothing
itself. The shell calls it with the time and a random number, and wakes whom :meth:`Pool.woken`
names.

*Choosing.* Of a route's targets only those are eligible that have the needed path. A target that
is avoided, or has weight 0, or whose provider is paused (``core.breaker``), is used when no other
eligible one is up. Among what is left and has a free slot, ``ordered`` takes the first,
``weighted`` draws by weight, and ``least_busy`` takes the lowest

    score = (busy + 1) / (slots * weight) * penalty(call validity)

with ``slots`` = ``max_concurrent`` (64 where there is no cap) and the penalty of
``core.call_validity``; equal scores take turns.

*Waiting.* Without a free slot the run queues at each provider it may use, and takes whichever
frees first: a slot that comes back goes straight to the head of its provider's queue, so nobody
can slip in between, and runs with the same needs are served in the order of their coming. Leaving
a queue and being woken cost the same however many wait.

*Refusing.* Where every eligible provider is paused for longer than ``patience_s``, the run is
told so at once, as are those that wait when it comes to that.

*Replacing.* A pool for new routes and providers can take over members of the one before it, with
their slots, queues and health. Runs that asked the old pool go on with its routes; both kinds
stand in the same queues.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edge.core.attempt import AttemptOutcome
from edge.core.breaker import Breaker, BreakerLimits
from edge.core.call_validity import CallValidity
from edge.core.fleet import EVERY_MODEL, ProviderSpec, Route, Target
from edge.core.pool_member import NEVER, Candidate, Line, Member, Need, NoneLeft, Slot, Wait
from edge.core.pool_statistics import PoolStatistics, ProviderStatistics, TargetStatistics
from edge.core.selection import choose


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLimits:
    """Bounds of the pool.

    Attributes:
        patience_s: a pause of all eligible providers that is no longer is waited out.
    """

    patience_s: float = 2.0
    breaker: BreakerLimits = field(default_factory=BreakerLimits)


class Pool:
    """The providers behind all routes; every ``now`` is in seconds of one steady clock.

    Args:
        providers: all that the routes name.
        routes: what clients may ask for.
        limits: see there.
        before: the pool whose place this one takes.
        kept: names of the providers that are taken over from it as they are.
    """

    def __init__(
        self,
        providers: Sequence[ProviderSpec],
        routes: Sequence[Route],
        limits: PoolLimits | None = None,
        *,
        before: "Pool | None" = None,
        kept: Collection[str] = (),
    ) -> None:
        self._limits = limits or PoolLimits()
        self._routes = {route.model: route for route in routes}
        old_members = {name: before._members[name] for name in kept} if before else {}
        self._members: dict[str, Member] = {
            spec.name: self._member(spec, old_members) for spec in providers
        }
        records = before._validity if before else {}
        self._validity: dict[str, CallValidity] = {
            target.name: (target.provider in kept and records.get(target.name)) or CallValidity()
            for route in routes
            for target in route.targets
        }
        self._candidates = {
            route.model: tuple(
                Candidate(target, self._members[target.provider], self._validity[target.name])
                for target in route.targets
            )
            for route in routes
        }
        self._line: Line = before._line if before else Line()

    def route_for(self, model: str) -> str | None:
        """The name of the route that serves ``model``, None where none does."""
        if model in self._routes:
            return model
        return EVERY_MODEL if EVERY_MODEL in self._routes else None

    def targets(self, route: str, need: Need | None = None) -> tuple[Target, ...]:
        """The route's targets, in order; only those that have the needed path."""
        if need is None:
            return self._routes[route].targets
        return tuple(each.target for each in self._candidates[route] if each.member.has_path(need))

    def take(
        self,
        route: str,
        now: float,
        *,
        avoid: frozenset[str] = frozenset(),
        need_normalized: bool = True,
        need_tunnel: bool = False,
        pick: float = 0.0,
    ) -> Slot | Wait | NoneLeft:
        """A slot of the route now, a place in the queue, or the reason why neither.

        Args:
            route: the route's name.
            now: the time.
            avoid: names of targets or providers to use only if no other is up.
            need_normalized: the answer must be decoded.
            need_tunnel: bytes must pass through.
            pick: a random number in [0, 1).
        """
        need = Need(need_normalized, need_tunnel)
        wait = Wait(self._routes[route], self._candidates[route], need, avoid, pick)
        usable = self._usable(wait, now)
        if isinstance(usable, NoneLeft):
            return usable
        if any(each.member.queue for each in usable):
            self._serve(_members_of(usable), now)  # who waited for a pause to end comes first
        free = [each for each in usable if each.member.has_room(now)]
        if free:
            return self._start(choose(wait.route.policy, free, now=now, pick=pick))
        self._line.waiting += 1
        self._enqueue(wait, usable, now)
        return wait

    def give_back(self, slot: Slot, outcome: AttemptOutcome | None, now: float) -> None:
        """The attempt has ended; None where it says nothing of its provider.

        Raises:
            RuntimeError: the slot was given back before.
        """
        if slot.given_back:
            raise RuntimeError("a slot is given back once")
        slot.given_back = True
        member = slot.candidate.member
        member.busy -= 1
        member.breaker.end(outcome, probe=slot.probe, now=now)
        if outcome is not None:
            slot.candidate.validity.note(outcome, now)
        if member.queue:
            if member.breaker.is_paused(now):
                self._reconsider(member, now)
            self._serve((member,), now)

    def leave(self, wait: Wait, now: float) -> None:
        """Whoever waited has gone; a slot that was granted in the meantime goes on."""
        if wait.slot is not None:
            if not wait.slot.given_back:
                self.give_back(wait.slot, None, now)
        elif wait.refused is None:
            self._dequeue(wait)
            wait.refused = NoneLeft(None, "left the queue")
            self._line.waiting -= 1

    def poll(self, wait: Wait, now: float) -> None:
        """The time of ``wait.until`` has come: serve whoever may go on, and look again."""
        self._serve(_members_of(wait.candidates), now)
        if not wait.is_settled:
            wait.until = _next_resumption(wait.candidates, now)

    def woken(self) -> list[Wait]:
        """The waits that were settled, or whose ``until`` was moved, since the last call."""
        woken = self._line.woken
        if woken:
            self._line.woken = []
        return woken

    def is_saturated(self, route: str, now: float) -> bool:
        """Whether as many runs wait at every provider that is up as it has slots."""
        up = [
            each.member
            for each in self._candidates[route]
            if not each.member.breaker.is_paused(now)
        ]
        return bool(up) and all(member.is_swamped for member in up)

    def can_serve(self, route: str, now: float) -> bool:
        """Whether a provider of the route is up."""
        return any(not each.member.breaker.is_paused(now) for each in self._candidates[route])

    def statistics(self, now: float) -> PoolStatistics:
        """Slots, health and measured validity, as of now."""
        candidates = {each.name: each for some in self._candidates.values() for each in some}
        return PoolStatistics(
            waiting=self._line.waiting,
            providers=tuple(_provider_statistics(each, now) for each in self._members.values()),
            targets=tuple(_target_statistics(each, now) for each in candidates.values()),
        )

    def _member(self, spec: ProviderSpec, old: Mapping[str, Member]) -> Member:
        irreplaceable = any(
            {target.provider for target in route.targets} == {spec.name}
            for route in self._routes.values()
        )
        member = old.get(spec.name) or Member(spec, Breaker(self._limits.breaker))
        member.breaker.irreplaceable = irreplaceable
        return member

    def _usable(self, wait: Wait, now: float) -> list[Candidate] | NoneLeft:
        """The targets this run should wait for or take, paused ones that may resume included."""
        eligible = [each for each in wait.choices if each.member.has_path(wait.need)]
        if not eligible:
            path = "normalized" if wait.need.normalized else "tunnel"
            return NoneLeft(None, f"no provider of route {wait.route.model!r} has a {path} path")
        preferred = [each for each in eligible if each.is_preferred(wait.avoid)]
        if any(not each.member.breaker.is_paused(now) for each in preferred):
            return preferred
        if any(not each.member.breaker.is_paused(now) for each in eligible):
            return eligible
        resumes_in_s = min(each.member.breaker.resumes_at for each in eligible) - now
        if resumes_in_s <= self._limits.patience_s:
            return eligible
        return NoneLeft(resumes_in_s, _all_paused(wait.route, eligible))

    def _start(self, candidate: Candidate) -> Slot:
        candidate.member.busy += 1
        self._line.turns += 1
        candidate.last_taken = self._line.turns
        return Slot(candidate, candidate.member.breaker.start())

    def _serve(self, members: Iterable[Member], now: float) -> None:
        """Give the free slots of these providers to the heads of their queues."""
        for member in members:
            while member.queue and member.has_room(now):
                wait = next(iter(member.queue))
                here = [each for each in wait.candidates if each.member is member]
                chosen = choose(wait.route.policy, here, now=now, pick=wait.pick)
                wait.slot = self._start(chosen)
                self._settle(wait)

    def _reconsider(self, member: Member, now: float) -> None:
        """A provider was paused: those who wait for it may have to look elsewhere, or go."""
        for wait in list(member.queue):
            if wait.is_settled:
                continue
            usable = self._usable(wait, now)
            if isinstance(usable, NoneLeft):
                wait.refused = usable
                self._settle(wait)
                continue
            if tuple(usable) != wait.candidates:
                self._dequeue(wait)
                self._enqueue(wait, usable, now)
                self._serve(_members_of(usable), now)
            else:
                wait.until = _next_resumption(wait.candidates, now)
            self._line.woken.append(wait)

    def _settle(self, wait: Wait) -> None:
        self._dequeue(wait)
        self._line.waiting -= 1
        self._line.woken.append(wait)

    def _enqueue(self, wait: Wait, usable: list[Candidate], now: float) -> None:
        wait.candidates = tuple(usable)
        wait.until = _next_resumption(usable, now)
        for member in _members_of(usable):
            member.queue[wait] = None

    def _dequeue(self, wait: Wait) -> None:
        for each in wait.candidates:
            each.member.queue.pop(wait, None)


def _members_of(candidates: Iterable[Candidate]) -> Iterable[Member]:
    return dict.fromkeys(each.member for each in candidates)


def _next_resumption(candidates: Iterable[Candidate], now: float) -> float:
    pauses = (each.member.breaker.resumes_at for each in candidates)
    return min((time for time in pauses if time > now), default=NEVER)


def _all_paused(route: Route, eligible: Sequence[Candidate]) -> str:
    names = ", ".join(dict.fromkeys(each.target.provider for each in eligible))
    return f"every provider of route {route.model!r} is paused after failures: {names}"


def _provider_statistics(member: Member, now: float) -> ProviderStatistics:
    return ProviderStatistics(
        name=member.spec.name,
        max_concurrent=member.spec.max_concurrent,
        busy=member.busy,
        waiting=len(member.queue),
        health=member.breaker.state(now),
        failures=member.breaker.failures,
        resumes_in_s=max(member.breaker.resumes_at - now, 0.0),
    )


def _target_statistics(candidate: Candidate, now: float) -> TargetStatistics:
    return TargetStatistics(
        name=candidate.name,
        provider=candidate.target.provider,
        model=candidate.target.model,
        call_validity=candidate.validity.value(now),
        judged=candidate.validity.judged,
        penalty=candidate.validity.penalty(now),
    )
