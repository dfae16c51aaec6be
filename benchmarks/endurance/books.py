"""The books of a gateway's life, and whether they agree.

Four parties write down what happened, and none of them sees what the others write: the clients
(``Told``), the providers (their journals), the gateway's ledger (a row for each attempt) and its
log (a line for each run). Reconciling finds for every request its run, for every run its rows,
for every row the provider's request, and back.
"""

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from benchmarks.endurance.asks import LETTERS
from benchmarks.endurance.clients import Told

NOT_REACHED = frozenset({"connect", "connect_timeout"})
"""Categories of attempts that a provider need not know of, where providers are not always there."""

EXAMPLES = 5


@dataclass
class Files:
    """The folder where a gateway writes its books."""

    folder: Path

    @property
    def ledger(self) -> Path:
        """The rows."""
        return self.folder / "ledger.db"

    @property
    def log(self) -> Path:
        """What the gateway writes to stderr."""
        return self.folder / "edge.log"


@dataclass(frozen=True, slots=True)
class Row:
    """What is looked at of a ledger's row."""

    attempt: int
    status: str
    category: str
    phase: str
    provider: str

    @property
    def letter(self) -> str:
        """See ``LETTERS``."""
        return LETTERS[self.status]

    def must_have_come(self, *, always_there: bool) -> bool:
        """Whether the provider must know of it; ``always_there``: it never died."""
        if self.status == "cancelled":
            return self.phase not in ("queued", "connecting", "retrying")
        return self.may_have_come and (always_there or self.category not in NOT_REACHED)

    @property
    def may_have_come(self) -> bool:
        """Whether the provider may know of it: one was chosen."""
        return bool(self.provider)


@dataclass(frozen=True, slots=True)
class RunLine:
    """The log's line of a run; ``at`` in seconds since 1970."""

    request_id: str
    status: str
    attempts: int
    at: float


@dataclass(slots=True)
class Served:
    """A request as a provider saw it; times on the monotonic clock, 0 for what did not happen.

    Attributes:
        fresh: it was the first one on its connection.
        lived: whether the provider lived to write down how it ended.
    """

    provider: str
    ask: str
    run: str
    attempt: int
    verb: str
    fresh: bool
    came_ns: int
    head_ns: int = 0
    ended_ns: int = 0
    how: str = ""
    lived: bool = True

    @property
    def is_sent_again(self) -> bool:
        """Whether a gateway may have put the same attempt's request to another connection.

        It does so once where a connection that was used before is closed without a byte.
        """
        unanswered = self.how == "broke" or not self.lived
        return not self.fresh and not self.head_ns and unanswered


@dataclass(slots=True)
class Journal:
    """What one provider process wrote down."""

    served: list[Served]
    open_connections: int


def read_journal(path: Path, *, killed: bool = False) -> Journal:
    """A provider's journal; of one that was killed, what is unfinished ended with it."""
    served: dict[str, Served] = {}
    opened = closed = 0
    for line in path.read_text().splitlines():
        kind, number, at_ns, *more = line.split(" ")
        match kind:
            case "+":
                _, provider, ask, run, attempt, verb, fresh = more
                served[number] = Served(
                    provider, ask, run, int(attempt), verb, fresh == "1", int(at_ns)
                )
            case "h":
                served[number].head_ns = int(at_ns)
            case "-":
                served[number].ended_ns, served[number].how = int(at_ns), more[0]
            case "o":
                opened += 1
            case "x":
                closed += 1
    for each in served.values():
        each.lived = bool(each.ended_ns) or not killed
    return Journal(list(served.values()), 0 if killed else opened - closed)


def read_ledger_rows(path: Path) -> dict[str, list[Row]]:
    """The ledger's rows by run, in order."""
    rows: dict[str, list[Row]] = defaultdict(list)
    asked = "SELECT run_id, attempt, status, category, phase, provider FROM attempts ORDER BY 1, 2"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as ledger:
        for run_id, *values in ledger.execute(asked):
            rows[run_id].append(Row(*values))
    return rows


@dataclass(slots=True)
class Log:
    """The log's lines of runs, and what else is remarkable in it."""

    runs: dict[str, RunLine] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def read_log(path: Path) -> Log:
    """What a gateway wrote to stderr."""
    log = Log()
    with path.open() as lines:
        for line in lines:
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said["event"] == "run ended":
                if said["run_id"] in log.runs:
                    log.repeated.append(said["run_id"])
                log.runs[said["run_id"]] = RunLine(
                    said["request_id"],
                    said["status"],
                    said["attempts"],
                    datetime.fromisoformat(said["timestamp"]).timestamp(),
                )
            elif said["level"] in ("error", "critical"):
                log.faults.append(line.strip()[:1000])
    return log


@dataclass(slots=True)
class Sum:
    """One thing that must hold; it does where there is no example of the contrary."""

    says: str
    checked: int = 0
    faults: int = 0
    examples: list[str] = field(default_factory=list)

    def check(self, holds: bool, example: object) -> None:
        """Look at one case."""
        self.checked += 1
        if not holds:
            self.faults += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append(str(example)[:600])


@dataclass(slots=True)
class Books:
    """All of them.

    Attributes:
        told: the clients'.
        rows: the ledger's, by run.
        log: the gateway's.
        served: the providers'.
        in_peace: nothing was killed; else the rows of some runs may be lost.
    """

    told: Sequence[Told]
    rows: Mapping[str, Sequence[Row]]
    log: Log
    served: Sequence[Served]
    in_peace: bool = True
    sums: list[Sum] = field(default_factory=list)

    def sum(self, says: str) -> Sum:
        """Begin a sum."""
        made = Sum(says)
        self.sums.append(made)
        return made

    def run_of(self) -> dict[str, str]:
        """Runs by the id of the request, as far as anybody but the clients' group can tell."""
        found = {told.ask.id: told.run_id for told in self.told if told.run_id}
        found |= {each.ask: each.run for each in self.served if each.run != "-"}
        alone = {told.request_id for told in self.told if told.request_id == told.ask.id}
        for run_id, line in self.log.runs.items():
            if line.request_id in alone:
                found.setdefault(line.request_id, run_id)
        return found

    def served_by(self) -> dict[str, list[Served]]:
        """The providers' requests by the client's."""
        found: dict[str, list[Served]] = defaultdict(list)
        for each in self.served:
            found[each.ask].append(each)
        return found


def reconcile_rows(books: Books) -> None:
    """The log's runs and the ledger's rows are the same runs and attempts."""
    once = books.sum("every run has exactly one line in the log")
    for run_id in books.log.runs:
        once.check(run_id not in books.log.repeated, run_id)
    whole = books.sum("every run has exactly its attempts in the ledger")
    for run_id, line in books.log.runs.items():
        rows = books.rows.get(run_id, [])
        numbers = [row.attempt for row in rows]
        same = numbers == list(range(1, line.attempts + 1)) and rows[-1].status == line.status
        whole.check(same, (run_id, line, rows))
    known = books.sum("every row of the ledger belongs to a run")
    for run_id, rows in books.rows.items():
        known.check(run_id in books.log.runs, (run_id, rows))


def reconcile_requests(books: Books) -> int:
    """Every request is one run, and every run a request; how many left before they were one."""
    runs_of_group = Counter(line.request_id for line in books.log.runs.values())
    groups: dict[str, list[Told]] = defaultdict(list)
    for told in books.told:
        groups[told.request_id].append(told)
    served_by = books.served_by()
    unborn = 0
    one = books.sum("every request is exactly one run")
    for request_id, group in groups.items():
        may_lack = sum(
            told.end in ("left", "refused") and not told.got and not served_by.get(told.ask.id)
            for told in group
        )
        lacks = len(group) - runs_of_group[request_id]
        one.check(0 <= lacks <= may_lack, (request_id, runs_of_group[request_id], group[:3]))
        unborn += max(lacks, 0)
    known = books.sum("every run is a request that a client made")
    for request_id in runs_of_group:
        known.check(request_id in groups, request_id)
    return unborn


def reconcile_ends(books: Books) -> None:
    """Clients saw what their kind of request must come to, and the ledger says the same."""
    run_of = books.run_of()
    seen = books.sum("every client saw the end that its request must have")
    shown = books.sum("the ledger shows the attempts that the request must have")
    for told in books.told:
        kind = told.ask.kind
        seen.check(told.end == kind.end, (kind.name, told))
        run_id = run_of.get(told.ask.id)
        if run_id is None:
            continue
        rows = books.rows.get(run_id, [])
        letters = "".join(row.letter for row in rows)
        shown.check(bool(re.fullmatch(kind.rows, letters)), (kind.name, letters, rows, told))


def reconcile_providers(books: Books) -> int:
    """Every attempt that was sent is one request at a provider; how many were sent again."""
    run_of, served_by = books.run_of(), books.served_by()
    same = books.sum("every attempt that was sent is one request at a provider")
    again = 0
    for told in books.told:
        run_id = run_of.get(told.ask.id, "")
        rows = books.rows.get(run_id, [])
        line = books.log.runs.get(run_id)
        if not books.in_peace and (line is None or len(rows) != line.attempts):
            continue
        served = served_by.get(told.ask.id, [])
        repeats = sum(each.is_sent_again for each in served)
        least = sum(row.must_have_come(always_there=books.in_peace) for row in rows)
        most = sum(row.may_have_come for row in rows)
        runs = {each.run for each in served} - {"-"}
        right = least <= len(served) <= most + repeats and runs <= {run_id}
        same.check(right, (told.ask.kind.name, rows, served))
        again += max(0, len(served) - most)
    known = books.sum("every request at a provider is one that a client made")
    asked = {told.ask.id for told in books.told}
    for each in books.served:
        known.check(each.ask in asked, each)
    return again


def reconcile_orphans(books: Books, journals: Iterable[Journal]) -> None:
    """Nothing is left running at a provider."""
    ended = books.sum("every request at a provider has ended")
    for journal in journals:
        for each in journal.served:
            ended.check(bool(each.ended_ns) or not each.lived, each)


def noticed_ns(books: Books) -> list[int]:
    """How long after a client left its provider saw it, where it was asked at that moment."""
    left = {told.ask.id: told.ended_ns for told in books.told if told.end in LEFT}
    return [
        each.ended_ns - left[each.ask]
        for each in books.served
        if each.how == "gone" and each.ask in left and each.provider != "drained"
    ]


LEFT = ("left", "run_cancelled")
