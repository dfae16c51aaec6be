"""Admission against a simple model: round robin over plain lists."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edge.core.admission import AdmissionLimits, AdmissionQueue, Place, Ticket
from edge.errors import Busy, Overloaded, RateLimited

MAX_RUNS, QUEUE = 3, 4
LIMITS = {"free": 0, "one": 1, "two": 2}


class AdmissionMachine(RuleBasedStateMachine):
    """Model: a list of places, a list of tickets by key, and whose turn it is."""

    def __init__(self) -> None:
        super().__init__()
        self.admission = AdmissionQueue(AdmissionLimits(max_runs=MAX_RUNS, queue=QUEUE))
        self.now = 0.0
        self.places: list[tuple[str, Place]] = []
        self.queues: dict[str, list[Ticket]] = {key: [] for key in LIMITS}
        self.turns: list[str] = []

    def active(self, key: str) -> int:
        return sum(each == key for each, _ in self.places)

    def may_start(self, key: str) -> bool:
        return not LIMITS[key] or self.active(key) < LIMITS[key]

    def expect_service(self) -> list[Ticket]:
        """What the model would admit now; moves it from the queues to the places."""
        served: list[Ticket] = []
        while len(self.places) < MAX_RUNS:
            ready = [key for key in self.turns if self.may_start(key)]
            if not ready:
                break
            key = ready[0]
            ticket = self.queues[key].pop(0)
            served.append(ticket)
            assert ticket.place is not None
            self.places.append((key, ticket.place))
            self.turns.remove(key)
            self.update_turn(key)
        return served

    def update_turn(self, key: str) -> None:
        """A key has a turn while it waits and is below its limit."""
        if not self.queues[key] or not self.may_start(key):
            if key in self.turns:
                self.turns.remove(key)
        elif key not in self.turns:
            self.turns.append(key)

    @rule(key=st.sampled_from(sorted(LIMITS)))
    def ask(self, key: str) -> None:
        queued = sum(map(len, self.queues.values()))
        answer = self.admission.ask(key, LIMITS[key], self.now)
        if len(self.places) < MAX_RUNS and self.may_start(key):
            assert isinstance(answer, Place)
            self.places.append((key, answer))
            assert self.admission.woken() == []
            return
        if queued >= QUEUE:
            self.expect_full(key, answer)
        if isinstance(answer, Ticket):
            self.queues[key].append(answer)
            self.update_turn(key)

    def expect_full(self, key: str, answer: Place | Ticket | Busy) -> None:
        longest = max(map(len, self.queues.values()))
        if longest < len(self.queues[key]) + 2:
            assert isinstance(answer, Overloaded if self.may_start(key) else RateLimited)
            assert answer.retry_after_s is not None
            assert answer.retry_after_s >= 1
            return
        assert isinstance(answer, Ticket)
        (dropped,) = self.admission.woken()
        assert isinstance(dropped.refused, RateLimited)
        hog = next(each for each, tickets in self.queues.items() if dropped in tickets)
        assert len(self.queues[hog]) == longest
        assert self.queues[hog].pop() is dropped
        self.update_turn(hog)

    @precondition(lambda self: self.places)
    @rule(data=st.data(), seconds=st.floats(0, 100))
    def give_back(self, data: st.DataObject, seconds: float) -> None:
        self.now += seconds
        chosen = data.draw(st.integers(0, len(self.places) - 1))
        key, place = self.places.pop(chosen)
        self.admission.give_back(place, self.now)
        self.update_turn(key)
        assert self.admission.woken() == self.expect_service()

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data(), in_time=st.booleans())
    def leave(self, data: st.DataObject, in_time: bool) -> None:
        key = data.draw(st.sampled_from(sorted(key for key in LIMITS if self.queues[key])))
        ticket = data.draw(st.sampled_from(self.queues[key]))
        if in_time:
            self.admission.leave(ticket, self.now)
        else:
            busy = self.admission.time_out(ticket)
            assert isinstance(busy, Overloaded if self.may_start(key) else RateLimited)
        self.queues[key].remove(ticket)
        self.update_turn(key)
        assert self.admission.woken() == []

    @invariant()
    def the_numbers_are_exact(self) -> None:
        statistics = self.admission.statistics()
        assert statistics.active == len(self.places) <= MAX_RUNS
        assert statistics.queued == sum(map(len, self.queues.values())) <= QUEUE
        for share in statistics.keys:
            assert share.active == self.active(share.key)
            assert share.queued == len(self.queues[share.key])
            assert not share.limit or share.active <= share.limit

    @invariant()
    def nobody_waits_beside_a_free_place(self) -> None:
        if len(self.places) < MAX_RUNS:
            assert not any(self.queues[key] and self.may_start(key) for key in LIMITS)


TestAdmission = AdmissionMachine.TestCase
