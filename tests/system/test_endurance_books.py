"""The books of soak and chaos are of use only if they notice what is wrong in them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.endurance import books as bookkeeping
from benchmarks.endurance import disturbed
from benchmarks.endurance.asks import KINDS, Ask
from benchmarks.endurance.books import Books, Journal, Log, Row, RunLine, Served
from benchmarks.endurance.clients import Told
from benchmarks.endurance.disturbed import Kill, Losses
from benchmarks.endurance.orders import Order
from benchmarks.endurance.samples import Sample, growth, slope

RETRIED = next(kind for kind in KINDS if kind.name == "bad call, then a good one")
LEFT = next(kind for kind in KINDS if kind.name == "leaves in a silence")
S = 1_000_000_000


def served(ask: str, run: str, attempt: int, **more: Any) -> Served:
    made = Served("a", ask, run, attempt, "call", False, 10 * S, 11 * S, 12 * S, "whole")
    return replace(made, **more)


def sound_books() -> Books:
    """A request that was asked again, and one whose client left."""
    ask = Ask(RETRIED, Order("ask-1", RETRIED.verbs, 4, 1), 0.0)
    left = Ask(LEFT, Order("ask-2", LEFT.verbs, 4, 1), 0.0)
    return Books(
        told=[
            Told(ask, "ask-1", "run_1", "whole", got=True, worker=7, ended_ns=12 * S),
            Told(left, "ask-2", "run_2", "left", got=True, worker=8, ended_ns=12 * S),
        ],
        rows={
            "run_1": [
                Row(1, "validation_failed", "schema", "", "a"),
                Row(2, "success", "", "", "a"),
            ],
            "run_2": [Row(1, "cancelled", "give_up", "streaming", "a")],
        },
        log=Log(
            {
                "run_1": RunLine("ask-1", "success", 2, 112.0),
                "run_2": RunLine("ask-2", "cancelled", 1, 112.0),
            }
        ),
        served=[
            served("ask-1", "run_1", 1),
            served("ask-1", "run_1", 2),
            served("ask-2", "run_2", 1, how="gone"),
        ],
    )


def faults(books: Books) -> set[str]:
    bookkeeping.reconcile_rows(books)
    bookkeeping.reconcile_requests(books)
    bookkeeping.reconcile_ends(books)
    bookkeeping.reconcile_providers(books)
    bookkeeping.reconcile_orphans(books, [Journal(list(books.served), 0)])
    return {each.says for each in books.sums if each.faults}


def test_books_that_agree_have_no_fault() -> None:
    books = sound_books()

    assert faults(books) == set()
    assert sum(each.checked for each in books.sums) > 10
    assert bookkeeping.noticed_ns(books) == [0]


def _without_a_row(books: Books) -> None:
    books.rows = {**books.rows, "run_1": books.rows["run_1"][1:]}


def _a_row_too_many(books: Books) -> None:
    extra = Row(3, "cancelled", "give_up", "streaming", "")
    books.rows = {**books.rows, "run_1": [*books.rows["run_1"], extra]}


def _a_run_that_nobody_asked_for(books: Books) -> None:
    books.log.runs["run_3"] = RunLine("ask-3", "success", 1, 112.0)
    books.rows = {**books.rows, "run_3": [Row(1, "success", "", "", "a")]}


def _an_answer_without_a_run(books: Books) -> None:
    del books.log.runs["run_1"]


def _a_line_that_is_there_twice(books: Books) -> None:
    books.log.repeated.append("run_1")


def _another_end_than_it_must_have(books: Books) -> None:
    books.told[0].end = "cut"


def _a_retry_that_is_not_in_the_ledger(books: Books) -> None:
    books.rows = {**books.rows, "run_1": [Row(1, "success", "", "", "a")]}
    books.log.runs["run_1"] = RunLine("ask-1", "success", 1, 112.0)


def _an_attempt_that_no_provider_saw(books: Books) -> None:
    books.served = books.served[1:]


def _a_request_that_was_sent_twice(books: Books) -> None:
    books.served = [*books.served, served("ask-1", "run_1", 2)]


def _an_answer_for_nobody(books: Books) -> None:
    books.served = [*books.served[:2], served("ask-2", "run_2", 1, ended_ns=0, how="")]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_without_a_row, "every run has exactly its attempts in the ledger"),
        (_a_row_too_many, "every run has exactly its attempts in the ledger"),
        (_a_run_that_nobody_asked_for, "every run is a request that a client made"),
        (_an_answer_without_a_run, "every request is exactly one run"),
        (_a_line_that_is_there_twice, "every run has exactly one line in the log"),
        (
            _another_end_than_it_must_have,
            "every client saw the end that its request must have",
        ),
        (
            _a_retry_that_is_not_in_the_ledger,
            "the ledger shows the attempts that the request must have",
        ),
        (
            _an_attempt_that_no_provider_saw,
            "every attempt that was sent is one request at a provider",
        ),
        (
            _a_request_that_was_sent_twice,
            "every attempt that was sent is one request at a provider",
        ),
        (_an_answer_for_nobody, "every request at a provider has ended"),
    ],
)
def test_what_is_wrong_in_them_is_noticed(spoil: Callable[[Books], None], says: str) -> None:
    books = sound_books()
    spoil(books)

    assert says in faults(books)


def test_a_request_may_come_twice_where_its_connection_was_closed_without_a_byte() -> None:
    books = sound_books()
    books.served = [*books.served, served("ask-1", "run_1", 2, head_ns=0, how="broke")]

    assert faults(books) == set()


def disturbed_faults(books: Books, *kills: Kill) -> tuple[set[str], Losses]:
    losses = Losses(kills, 1.0)
    books.in_peace = False
    disturbed.reconcile_rows(books, losses)
    disturbed.reconcile_requests(books, losses)
    disturbed.reconcile_ends(books, losses)
    bookkeeping.reconcile_providers(books)
    disturbed.reconcile_providers(books, losses)
    return {each.says for each in books.sums if each.faults}, losses


@pytest.mark.parametrize(
    ("kill", "explained"),
    [
        (Kill(pid=7, at=112.5, at_ns=0), True),
        (Kill(pid=7, at=114.0, at_ns=0), False),  # its row had all the time it needed
        (Kill(pid=7, at=111.5, at_ns=0), False),  # the worker was dead before
        (Kill(pid=8, at=112.5, at_ns=0), False),  # another one answered
    ],
)
def test_a_row_may_be_lost_only_if_its_own_worker_was_killed_just_then(
    kill: Kill, explained: bool
) -> None:
    books = sound_books()
    books.rows = {**books.rows, "run_1": books.rows["run_1"][:1]}

    found, losses = disturbed_faults(books, kill)

    assert (found == set()) is explained
    assert losses.rows == 1


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(("worker", "explained"), [(7, True), (8, False)])
def test_an_answer_may_lack_its_line_only_if_its_own_worker_was_killed_just_then(
    worker: int, explained: bool, rows: int
) -> None:
    books = sound_books()
    del books.log.runs["run_1"]
    books.rows = {"run_2": books.rows["run_2"], "run_1": books.rows["run_1"][:rows]}

    found, _ = disturbed_faults(books, Kill(worker, 0.0, 12 * S + S // 2))

    assert (found == set()) is explained


def test_growth_is_the_slope_of_memory_once_it_is_warm() -> None:
    def sample(second: int, mib: float, attempts: int) -> Sample:
        return Sample(second, mib * 1024 * 1024, 0, 0, 0, 0, 0, 0, 0, 0, attempts)

    cold = [sample(second, second * 10, second) for second in range(10)]
    warm = [sample(second, 100 + second / 3600, 100 + second) for second in range(10, 3600, 10)]

    found = growth(cold + warm, 100)

    assert found["slope_per_hour"] == pytest.approx(1.0)
    assert found["end"] - found["start"] == pytest.approx(0.8, abs=0.02)
    assert slope([(0, 1), (1, 3), (2, 5)]) == pytest.approx(2)
