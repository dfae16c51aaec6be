"""Who may start, who waits, who is sent away."""

import pytest

from edge.core.admission import AdmissionLimits, AdmissionQueue, Place, Ticket
from edge.errors import Busy, Overloaded, RateLimited


def queue_of(max_runs: int, queue: int = 10) -> AdmissionQueue:
    return AdmissionQueue(AdmissionLimits(max_runs=max_runs, queue=queue))


def admitted(answer: Place | Ticket | Busy) -> Place:
    assert isinstance(answer, Place)
    return answer


def queued(answer: Place | Ticket | Busy) -> Ticket:
    assert isinstance(answer, Ticket)
    return answer


def refused(answer: Place | Ticket | Busy) -> Busy:
    assert isinstance(answer, Busy)
    return answer


def run_for(admission: AdmissionQueue, seconds: float, start: float = 0.0) -> None:
    """A run of this length, to measure."""
    admission.give_back(admitted(admission.ask("k", 0, start)), start + seconds)


class TestPlaces:
    def test_runs_are_let_in_up_to_the_limit_and_queue_beyond(self) -> None:
        admission = queue_of(2)

        admitted(admission.ask("k", 0, 0))
        admitted(admission.ask("k", 0, 0))
        queued(admission.ask("k", 0, 0))

        statistics = admission.statistics()
        assert (statistics.active, statistics.queued) == (2, 1)

    def test_a_key_queues_beyond_its_own_limit_and_holds_up_nobody(self) -> None:
        admission = queue_of(10)
        admitted(admission.ask("small", 1, 0))

        queued(admission.ask("small", 1, 0))
        admitted(admission.ask("large", 0, 0))

    def test_a_place_that_comes_back_goes_to_the_longest_wait_of_the_key(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("k", 0, 0))
        first, second = queued(admission.ask("k", 0, 0)), queued(admission.ask("k", 0, 0))

        admission.give_back(place, 1)

        assert admission.woken() == [first]
        assert first.place is not None
        assert second.place is None

    def test_keys_take_turns(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("hog", 0, 0))
        tickets = {queued(admission.ask("hog", 0, 0)): "hog" for _ in range(4)}
        tickets |= {queued(admission.ask("late", 0, 0)): "late" for _ in range(2)}

        order = []
        for _ in range(6):
            admission.give_back(place, 1)
            (ticket,) = admission.woken()
            order.append(tickets[ticket])
            place = admitted(ticket.place) if ticket.place else pytest.fail("no place")

        assert order == ["hog", "late", "hog", "late", "hog", "hog"]

    def test_a_key_at_its_limit_is_passed_over_until_its_own_run_ends(self) -> None:
        admission = queue_of(2)
        own = admitted(admission.ask("small", 1, 0))
        other = admitted(admission.ask("large", 0, 0))
        small, large = queued(admission.ask("small", 1, 0)), queued(admission.ask("large", 0, 0))

        admission.give_back(other, 1)
        assert large.place is not None
        assert small.place is None

        admission.give_back(own, 2)
        assert small.place is not None

    def test_a_place_is_given_back_once(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("k", 0, 0))
        admission.give_back(place, 1)

        with pytest.raises(RuntimeError):
            admission.give_back(place, 1)


class TestLeaving:
    def test_whoever_leaves_is_gone_at_once(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("k", 0, 0))
        gone, next_one = queued(admission.ask("k", 0, 0)), queued(admission.ask("k", 0, 0))

        admission.leave(gone, 1)
        admission.leave(next_one, 1)
        assert admission.statistics().queued == 0

        admission.give_back(place, 2)
        assert admission.woken() == []
        admitted(admission.ask("k", 0, 2))

    def test_a_place_granted_to_one_who_has_left_goes_on(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("k", 0, 0))
        gone, next_one = queued(admission.ask("k", 0, 0)), queued(admission.ask("k", 0, 0))
        admission.give_back(place, 1)

        admission.leave(gone, 1)

        assert next_one.place is not None
        assert admission.statistics().active == 1

    def test_leaving_after_the_time_is_over_changes_nothing(self) -> None:
        admission = queue_of(1)
        admitted(admission.ask("k", 0, 0))
        ticket = queued(admission.ask("k", 0, 0))

        busy = admission.time_out(ticket)
        admission.leave(ticket, 30)

        assert ticket.refused is busy
        assert admission.statistics().queued == 0


class TestRefusals:
    def test_a_full_queue_is_the_gateways_fault(self) -> None:
        admission = queue_of(1, queue=1)
        for _ in range(2):
            admission.ask("k", 0, 0)

        assert isinstance(refused(admission.ask("k", 0, 0)), Overloaded)
        assert admission.statistics().refused == 1

    def test_a_used_up_share_is_the_keys_own(self) -> None:
        admission = queue_of(10, queue=1)
        for _ in range(2):
            admission.ask("k", 1, 0)

        assert isinstance(refused(admission.ask("k", 1, 0)), RateLimited)

    def test_the_time_in_the_queue_ends_with_the_same_distinction(self) -> None:
        admission = queue_of(2)
        admitted(admission.ask("small", 1, 0))
        small = queued(admission.ask("small", 1, 0))
        admitted(admission.ask("large", 0, 0))
        large = queued(admission.ask("large", 0, 0))

        assert isinstance(admission.time_out(small), RateLimited)
        assert isinstance(admission.time_out(large), Overloaded)

    def test_without_a_queue_nobody_waits(self) -> None:
        admission = queue_of(1, queue=0)
        admitted(admission.ask("k", 0, 0))

        refused(admission.ask("k", 0, 0))

    def test_a_hog_makes_room_in_a_full_queue(self) -> None:
        admission = queue_of(1, queue=3)
        admitted(admission.ask("hog", 0, 0))
        hogs = [queued(admission.ask("hog", 0, 0)) for _ in range(3)]

        queued(admission.ask("late", 0, 0))

        assert admission.woken() == [hogs[-1]]
        assert isinstance(hogs[-1].refused, RateLimited)
        assert admission.statistics().queued == 3
        refused(admission.ask("hog", 0, 0))
        refused(admission.ask("late", 0, 0))  # one to two is fair enough

    def test_draining_refuses_the_new_and_serves_who_waits(self) -> None:
        admission = queue_of(1)
        place = admitted(admission.ask("k", 0, 0))
        ticket = queued(admission.ask("k", 0, 0))

        admission.draining = True

        assert isinstance(refused(admission.ask("k", 0, 0)), Overloaded)
        admission.give_back(place, 1)
        assert ticket.place is not None


class TestRetryAfter:
    def test_it_is_the_time_until_ones_turn(self) -> None:
        admission = queue_of(4, queue=9)
        run_for(admission, 20.0)
        for _ in range(4 + 9):
            admission.ask("k", 0, 0)

        # The tenth in the queue, four places, twenty seconds a run.
        assert refused(admission.ask("k", 0, 0)).retry_after_s == 50

    def test_a_key_is_told_of_its_own_places(self) -> None:
        admission = queue_of(100, queue=3)
        run_for(admission, 20.0)
        for _ in range(2 + 3):
            admission.ask("k", 2, 0)

        assert refused(admission.ask("k", 2, 0)).retry_after_s == 40

    def test_a_key_that_waits_little_has_its_turn_sooner(self) -> None:
        admission = queue_of(1, queue=10)
        run_for(admission, 10.0)
        for _ in range(1 + 9):
            admission.ask("hog", 0, 0)
        ticket = queued(admission.ask("late", 0, 0))

        # Turns: hog, late: the second is the newcomer's, though nine were there before.
        assert admission.time_out(ticket).retry_after_s == 20

    def test_it_follows_the_runs_that_ended_lately(self) -> None:
        admission = queue_of(1, queue=0)
        run_for(admission, 100.0)
        for _ in range(50):
            run_for(admission, 2.0)
        admitted(admission.ask("k", 0, 0))

        assert refused(admission.ask("k", 0, 0)).retry_after_s == 3
        assert admission.statistics().mean_run_s == pytest.approx(2.5, abs=0.1)

    def test_it_is_at_least_a_second_and_at_most_ten_minutes(self) -> None:
        quick, slow = queue_of(1, queue=0), queue_of(1, queue=0)
        run_for(quick, 0.01)
        run_for(slow, 1e6)
        for admission in (quick, slow):
            admitted(admission.ask("k", 0, 0))

        assert refused(quick.ask("k", 0, 0)).retry_after_s == 1
        assert refused(slow.ask("k", 0, 0)).retry_after_s == 600


def test_statistics_name_every_key() -> None:
    admission = queue_of(1)
    admission.ask("a", 5, 0)
    admission.ask("b", 0, 0)

    keys = {
        each.key: (each.limit, each.active, each.queued) for each in admission.statistics().keys
    }

    assert keys == {"a": (5, 1, 0), "b": (0, 0, 1)}
