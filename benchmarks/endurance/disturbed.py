"""The books of a gateway whose workers and providers were killed, and what may be missing in them.

A worker that is killed takes with it the runs that were under way, and of those that had ended
the rows that were not yet written: the last batch, which waits ``flush_s`` for others. The log's
lines were written at once, so they tell which runs these are, and when they ended. Everything
else must be there, as in the books of a gateway that was left in peace.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.endurance.books import Books, Journal
from benchmarks.endurance.clients import Told

ENDS_OF_OTHERS = frozenset({"cut", "refused", "run_error", "overloaded_error"})
"""What a client may see in place of the end that its request would have: a worker or a provider
has died, or all providers are down."""

FINISHED_BY_CLIENT = frozenset({"left", "cut", "refused"})


@dataclass(frozen=True, slots=True)
class Kill:
    """A process that was killed, with the time on both clocks."""

    pid: int
    at: float
    at_ns: int


@dataclass(slots=True)
class Losses:
    """What went down with the workers.

    Attributes:
        kills: of workers.
        within_s: what ended longer before its worker's end than this must be in the books.
        rows: runs that ended and whose rows are not all there.
        lines: requests that were answered, and whose run's line is not there.
        oldest_s: how long before its worker's end the oldest run without all its rows had ended.
        under_way: requests that were not answered, and had no run or lost it.
    """

    kills: Sequence[Kill]
    within_s: float
    rows: int = 0
    lines: int = 0
    oldest_s: float = 0.0
    under_way: int = 0

    def age(self, told: Told | None, *, at: float = 0.0) -> float:
        """How long before a worker's end it was that something ended; infinite without one.

        Args:
            told: the request, as its client saw it; None where no client knows of it.
            at: when its run ended; where nobody knows, what its client saw counts.
        """
        ages = []
        for kill in self.kills:
            if told is not None and told.worker not in (0, kill.pid):
                continue  # it was another one that answered
            if at and kill.at >= at:
                ages.append(kill.at - at)
            elif not at and told is not None:
                # It may see what was sent before the end only after it.
                ages.append(max(0.0, (kill.at_ns - told.ended_ns) / 1e9))
        return min(ages, default=float("inf"))

    def explain(self, told: Told) -> bool:
        """Whether a worker's end explains that something of an answered request is not there."""
        return self.age(told) <= self.within_s


def reconcile_rows(books: Books, losses: Losses) -> None:
    """Every row is there, but for those of the last moment before a worker was killed."""
    told_of = {told.run_id: told for told in books.told if told.run_id}
    once = books.sum("every run has exactly one line in the log")
    for run_id in books.log.runs:
        once.check(run_id not in books.log.repeated, run_id)
    whole = books.sum("every run has its attempts in the ledger, or ended as its worker was killed")
    for run_id, line in books.log.runs.items():
        rows = books.rows.get(run_id, [])
        numbers = [row.attempt for row in rows]
        if numbers == list(range(1, line.attempts + 1)) and rows[-1].status == line.status:
            whole.check(True, "")
            continue
        begun = numbers == list(range(1, len(numbers) + 1)) and len(numbers) < line.attempts
        told = told_of.get(run_id)
        age = losses.age(told, at=line.at)
        whole.check(begun and age <= losses.within_s, (run_id, line, rows, told))
        losses.rows += 1
        losses.oldest_s = max(losses.oldest_s, age)


def reconcile_requests(books: Books, losses: Losses) -> None:
    """Every request that came to its end is exactly one run; others are one at most."""
    runs_of: dict[str, list[str]] = {}
    for run_id, line in books.log.runs.items():
        runs_of.setdefault(line.request_id, []).append(run_id)
    named = books.sum("every answer's run is in the log, or ended as its worker was killed")
    groups: dict[str, list[Told]] = {}
    may_lack: Counter[str] = Counter()
    for told in books.told:
        groups.setdefault(told.request_id, []).append(told)
        if told.end in FINISHED_BY_CLIENT:
            may_lack[told.request_id] += 1
        elif told.run_id not in books.log.runs:
            # A socket's errors name no run; then the group's count is all there is.
            explained = losses.explain(told)
            named.check(explained or not told.run_id, told)
            may_lack[told.request_id] += explained
            losses.lines += bool(told.run_id)
        else:
            named.check(True, "")
    one = books.sum("every request that was answered is exactly one run, every other one at most")
    for request_id, group in groups.items():
        lacks = len(group) - len(runs_of.get(request_id, ()))
        fits = 0 <= lacks <= may_lack[request_id]
        one.check(fits, (request_id, runs_of.get(request_id), group[:3]))
        losses.under_way += max(lacks, 0)
    known = books.sum("every run is a request that a client made")
    for request_id, runs in runs_of.items():
        known.check(request_id in groups, (request_id, runs))


def reconcile_ends(books: Books, losses: Losses) -> None:
    """What clients saw is what the ledger says, and nothing but death explains another end."""
    seen = books.sum("every client saw a whole answer, a typed error, or a connection's end")
    fits = books.sum("a whole answer is a success in the ledger, an error is none")
    for told in books.told:
        end = told.end
        seen.check(end == told.ask.kind.end or end in ENDS_OF_OTHERS, told)
        rows = books.rows.get(told.run_id, [])
        line = books.log.runs.get(told.run_id)
        if end in FINISHED_BY_CLIENT or line is None or len(rows) != line.attempts:
            continue
        fits.check((end == "whole") == (rows[-1].status == "success"), (told, rows))
    told_of = {told.run_id: told for told in books.told if told.run_id}
    unfinished = books.sum("rows of runs without a line are of runs that died with their worker")
    for run_id, rows in books.rows.items():
        if run_id not in books.log.runs:
            # Between the last row and the line there is a moment in which the worker may die.
            died = all(row.status != "success" for row in rows)
            late = run_id in told_of and losses.explain(told_of[run_id])
            unfinished.check(died or late, (run_id, rows))


def reconcile_providers(books: Books, losses: Losses) -> None:
    """Nobody asks a provider but the runs in the books, and those that died with their worker."""
    asked = {told.ask.id: told for told in books.told}
    known = books.sum("every request at a provider is of a run in the books, or of one that died")
    for each in books.served:
        told = asked.get(each.ask)
        if told is None:
            known.check(False, each)
            continue
        in_books = each.run in books.log.runs or each.run == "-"
        dead = told.end in FINISHED_BY_CLIENT
        known.check(in_books or dead or losses.explain(told), (each, told))


def reconcile_orphans(
    books: Books, journals: Sequence[Journal], kills: Sequence[Kill], within_s: float
) -> list[int]:
    """Nobody is served who has gone; how late each end was noticed, nanoseconds."""
    ended = books.sum("every request at a provider that lives has ended")
    for journal in journals:
        for each in journal.served:
            ended.check(bool(each.ended_ns) or not each.lived, each)
    gone_ns = {told.ask.id: told.ended_ns for told in books.told}
    soon = books.sum(f"nothing goes on at a provider for more than {within_s:g} s for nobody")
    late: list[int] = []
    for each in books.served:
        if each.how != "gone" or each.ask not in gone_ns:
            continue
        since = gone_ns[each.ask]
        killed = [kill.at_ns for kill in kills if each.came_ns <= kill.at_ns <= each.ended_ns]
        # Of a worker's death its client hears later than the provider, or earlier.
        since = min([since, *killed])
        late.append(max(0, each.ended_ns - since))
        soon.check(late[-1] <= within_s * 1e9, each)
    return late
