"""A run that is stopped at any step whatever leaves nothing behind.

Each kind of run is carried once to its end, and then again and again, stopped at its first task
step, its second, and so on to its last: by its client's leaving, or by its id. That is done under
several orders of the scheduler. What must hold afterwards is the same for all of them.

The gateway is whole but for its sockets: providers and clients are in memory, the clock is
virtual.
"""

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import orjson
import pytest
import trio
import trio._core._run as scheduler
import trio.testing

from edge.app import Gateway
from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunEvent, RunStarted
from edge.errors import ProviderStreamError, ProviderUnreachable
from edge.providers.port import Provider
from edge.runs.reply import AnswerCut, ClientGone
from edge.server.connection import Carry, carry_out
from edge.server.exchange import GatewayRequest, Headers
from edge.settings import Settings
from tests.fakes.gateway import chat, tool
from tests.fakes.memory_reply import MemoryReply
from tests.fakes.openai_scripts import call
from tests.fakes.scripted_provider import USAGE, Script, ScriptedProvider
from tests.fakes.strict_client import payloads

Way: TypeAlias = Literal["the client leaves", "cancelled by its id"]

ORDERS = (1, 2, 3)
"""Seeds of the scheduler's order."""

TEXT: Script = [{"role": "assistant", "content": "Hel"}, {"content": "lo"}, "stop", USAGE]
UNSOUND: Script = [call("look", {}), "tool_calls"]
SOUND: Script = [{"content": "I look."}, call("look", {"at": "it"}), "tool_calls", USAGE]
IN_WORDS: Script = [{"content": '{"name": "look", "arguments": {"at": "it"}}'}, "stop", USAGE]
BYTES: Script = [
    b'data: {"choices":[{"index":0,"delta":{"content":"Hel"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]
TOOLS = [tool("look", "at", at={"type": "string"})]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of run.

    Attributes:
        ends: statuses of its rows when nobody stops it.
        others: runs of the same sort that were there before.
    """

    request: dict[str, Any]
    a: Sequence[Script]
    b: Sequence[Script] = (TEXT,)
    path: str = "/v1/chat/completions"
    provider: str = 'path = "normalized"'
    targets: str = '[{ provider = "a" }]'
    output: str = ""
    limits: str = ""
    ends: tuple[str, ...] = ("success",)
    others: int = 0
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        text = f"""
        [[providers]]
        name = "a"
        base_url = "http://a.invalid/v1"
        {self.provider}
        [[providers]]
        name = "b"
        base_url = "http://b.invalid/v1"
        {self.provider}
        [[routes]]
        model = "*"
        policy = "ordered"
        targets = {self.targets}
        [output]
        {self.output}
        [limits]
        {self.limits}
        """
        object.__setattr__(self, "settings", Settings.from_toml(text))


BOTH = '[{ provider = "a" }, { provider = "b" }]'
DRAIN = 'path = "normalized"\non_give_up = "drain"\ndrain_s = 30'
SLOW: Script = [{"content": "Hel"}, 3.0, {"content": "lo"}, "stop", USAGE]

TUNNEL = 'path = "tunnel"'
UNJUDGED = 'validate = "off"\nbuffer = "off"'

KINDS = {
    "plain and streamed": Kind(request=chat(stream=True), a=[TEXT]),
    "whole": Kind(request=chat(), a=[TEXT]),
    "held and streamed": Kind(request=chat(stream=True), a=[TEXT], output='buffer = "full"'),
    "kept alive by heartbeats": Kind(request=chat(stream=True), a=[[25.0, *TEXT]]),
    "asked again with feedback": Kind(
        request=chat(stream=True, tools=TOOLS),
        a=[UNSOUND, SOUND],
        ends=("validation_failed", "success"),
    ),
    "asked again with feedback, whole": Kind(
        request=chat(tools=TOOLS), a=[UNSOUND, SOUND], ends=("validation_failed", "success")
    ),
    "constrained": Kind(
        request=chat(stream=True, tools=TOOLS),
        a=[UNSOUND, IN_WORDS],
        output="max_attempts = 2",
        ends=("validation_failed", "success"),
    ),
    "never sound": Kind(
        request=chat(stream=True, tools=TOOLS),
        a=[UNSOUND],
        output="max_attempts = 2",
        ends=("validation_failed", "validation_failed"),
    ),
    "passed on to a second provider": Kind(
        request=chat(stream=True),
        a=[[ProviderUnreachable]],
        targets=BOTH,
        ends=("upstream_error", "success"),
    ),
    "passed on to a second provider, whole": Kind(
        request=chat(),
        a=[[{"content": "Hel"}, ProviderStreamError]],
        targets=BOTH,
        ends=("upstream_error", "success"),
    ),
    "after a pause": Kind(
        request=chat(stream=True),
        a=[[ProviderUnreachable], TEXT],
        ends=("upstream_error", "success"),
    ),
    "broken off behind its first word": Kind(
        request=chat(stream=True),
        a=[[{"content": "Hel"}, ProviderStreamError]],
        ends=("upstream_error",),
    ),
    "queued for a slot": Kind(
        request=chat(stream=True),
        a=[SLOW, TEXT],
        provider='path = "normalized"\nmax_concurrent = 1',
        others=1,
    ),
    "queued for admission": Kind(
        request=chat(stream=True), a=[SLOW, TEXT], limits="max_runs = 1", others=1
    ),
    "past its deadline": Kind(
        request=chat(stream=True),
        a=[[{"content": "Hel"}, 100.0]],
        output="run_timeout_s = 5",
        ends=("timeout",),
    ),
    "passed through": Kind(request=chat(stream=True), a=[BYTES], provider=TUNNEL, output=UNJUDGED),
    "passed through by a second provider": Kind(
        request=chat(stream=True),
        a=[[ProviderUnreachable]],
        b=[BYTES],
        provider=TUNNEL,
        output=UNJUDGED,
        targets=BOTH,
        ends=("upstream_error", "success"),
    ),
    "embedded": Kind(
        request={"model": "m", "input": "x"},
        a=[[b'{"data"', b": []}"]],
        path="/v1/embeddings",
        provider=TUNNEL,
    ),
    "drained": Kind(request=chat(stream=True), a=[SLOW], provider=DRAIN),
    "drained, whole": Kind(request=chat(), a=[SLOW], provider=DRAIN),
    "drained for too long": Kind(
        request=chat(stream=True), a=[[{"content": "Hel"}, 50.0, "stop"]], provider=DRAIN
    ),
}


class StopAt(trio.abc.Instrument):
    """Calls ``stop`` before the nth task step from now."""

    def __init__(self, step: int, stop: Callable[[], object]) -> None:
        self.step = step
        self.seen = 0
        self._stop = stop

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.seen += 1
        if self.seen == self.step:
            self._stop()


class Books:
    """Checks the order of run events as they come, and keeps them."""

    def __init__(self, providers: Sequence[ScriptedProvider]) -> None:
        self._providers = providers
        self.started: dict[str, list[int]] = {}
        self.rows: dict[str, list[AttemptEnded]] = {}
        self.ended: list[RunEnded] = []
        self.faults: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        run_id = event.run_id
        if run_id in {run.run_id for run in self.ended}:
            self.faults.append(f"{event} came behind the run's end")
        match event:
            case RunStarted():
                self.started[run_id], self.rows[run_id] = [], []
            case AttemptStarted(attempt=number):
                self.started[run_id].append(number)
                if number != len(self.rows[run_id]) + 1:
                    self.faults.append(f"{event} began before the one before it had its row")
            case AttemptEnded():
                self.rows[run_id].append(event)
            case RunEnded():
                self.ended.append(event)
        if isinstance(event, RunEnded) and len(self.rows) == len(self.ended):
            still_open = [each.name for each in self._providers if each.open_now]
            if still_open:
                self.faults.append(f"the last run ended while {still_open} went on answering")

    def check(self) -> None:
        """Every run has one end, and one row for each of its attempts.

        A row beyond those says that the run was stopped where an attempt was yet to come; it is
        not written where none was.
        """
        assert self.faults == []
        assert sorted(run.run_id for run in self.ended) == sorted(self.rows)
        for run in self.ended:
            rows = self.rows[run.run_id]
            assert [row.attempt for row in rows] == list(range(1, run.attempts + 1))
            assert set(self.started[run.run_id]) <= {row.attempt for row in rows}
            assert run.status == rows[-1].status
            for row in rows:
                assert row.provider or row.phase in ("queued", "retrying"), row


class Stage:
    """A gateway in memory and the run that is stopped in it."""

    def __init__(self, kind: Kind, *, leaves_at: int = 0) -> None:
        self.kind = kind
        self.gateway = Gateway.build(kind.settings)
        self.providers = [ScriptedProvider("a", kind.a), ScriptedProvider("b", kind.b)]
        known = cast(dict[str, Provider], self.gateway.providers)
        known.update({provider.name: provider for provider in self.providers})
        self.books = Books(self.providers)
        self.gateway.desk.observers.add(self.books)
        self.reply = MemoryReply(leaves_at=leaves_at)
        self.client = trio.CancelScope()
        self.run_id = ""
        self.cut = False

    async def play(self, stop: StopAt) -> None:
        """Carry the run, stopped where ``stop`` says, and wait until all has come to rest."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.gateway.common.drainer.run)
            await trio.testing.wait_all_tasks_blocked()
            at_rest = trio.lowlevel.current_statistics().tasks_living
            async with trio.open_nursery() as clients:
                for _ in range(self.kind.others):
                    clients.start_soon(self._ask, MemoryReply(), trio.CancelScope())
                await trio.testing.wait_all_tasks_blocked()
                before = set(self.books.rows)
                self.gateway.desk.observers.add(lambda event: self._note(event, before))
                trio.lowlevel.add_instrument(stop)
                await self._ask(self.reply, self.client)
                trio.lowlevel.remove_instrument(stop)
            while len(self.gateway.desk.registry):  # noqa: ASYNC110 - the clock is virtual
                await trio.sleep(1)
            await trio.testing.wait_all_tasks_blocked()
            assert trio.lowlevel.current_statistics().tasks_living == at_rest
            nursery.cancel_scope.cancel()
        self._check()

    async def _ask(self, reply: MemoryReply, client: trio.CancelScope) -> None:
        body = orjson.dumps(self.kind.request)
        request = GatewayRequest(
            "POST", self.kind.path, b"", Headers([]), client=None, body=_of(body)
        )
        handlers = self.gateway.handlers
        chats = self.kind.path.endswith("/chat/completions")
        handler: Callable[[GatewayRequest], Awaitable[Carry]]
        handler = handlers.chat if chats else handlers.pass_through
        with client:
            try:
                await carry_out(await handler(request), reply)
            except ClientGone:
                assert reply.leaves_at
            except AnswerCut:
                self.cut = True

    def _note(self, event: RunEvent, before: set[str]) -> None:
        if isinstance(event, RunStarted) and event.run_id not in before:
            self.run_id = event.run_id

    def cancel_by_id(self) -> None:
        self.gateway.desk.registry.cancel(self.run_id)

    def _check(self) -> None:
        """Nothing is left behind, whatever happened."""
        desk = self.gateway.desk
        self.books.check()
        assert len(desk.registry) == 0
        assert desk.observers.failures == 0
        assert self.gateway.common.drainer.draining == 0
        admitted = desk.admission.statistics()
        assert (admitted.active, admitted.queued) == (0, 0)
        for slots in desk.dispatcher.statistics().providers:
            assert slots.busy == 0, slots
        for provider in self.providers:
            assert provider.open_now == 0, provider

    def rows(self) -> list[AttemptEnded]:
        return self.books.rows.get(self.run_id, [])

    def ends_told(self) -> int:
        """How many ends the client was told; the last thing it was sent is one, if any is."""
        headers = dict(self.reply.headers)
        if not self.reply.body:
            return 0
        if headers[b"content-type"] == b"application/json":
            if not self.reply.finished:
                return 0
            tree = orjson.loads(self.reply.body)
            assert ("error" in tree) == (self.reply.status >= 400)
            return 1
        told = payloads(self.reply.body)
        ends = told.count("[DONE]")
        assert not ends or told[-1] == "[DONE]"
        errors = ["error" in orjson.loads(each) for each in told if each != "[DONE]"]
        assert sum(errors) <= ends
        return ends


def _of(body: bytes) -> Callable[[], Awaitable[bytes]]:
    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return body

    return read


def play(
    kind: Kind, step: int, way: Way, order: int = 1, *, leaves_at: int = 0
) -> tuple[Stage, int]:
    """Carry a run that is stopped at a step; returns also how many steps there were."""
    assert scheduler._ALLOW_DETERMINISTIC_SCHEDULING  # trio's plugin for Hypothesis has set it
    scheduler._r.seed(order)
    stage = Stage(kind, leaves_at=leaves_at)
    stop = StopAt(step, stage.client.cancel if way == "the client leaves" else stage.cancel_by_id)
    trio.run(stage.play, stop, clock=trio.testing.MockClock(autojump_threshold=0))
    return stage, stop.seen


@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_nobody_stops(name: str) -> None:
    stage, steps = play(KINDS[name], 0, "the client leaves")

    assert tuple(row.status for row in stage.rows()) == KINDS[name].ends
    assert stage.reply.finished
    assert stage.ends_told() == 1
    assert steps > 5


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", KINDS)
def test_a_client_that_leaves_at_any_step(name: str, order: int) -> None:
    kind, step, steps = KINDS[name], 0, 1
    while step < steps:
        step += 1
        stage, steps = play(kind, step, "the client leaves", order)
        ends = stage.ends_told()
        assert ends <= 1
        if stage.reply.finished:
            assert tuple(row.status for row in stage.rows()) == kind.ends
        elif stage.rows():
            assert stage.rows()[-1].status in ("cancelled", "drained", *kind.ends)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_is_cancelled_by_its_id_at_any_step(name: str, order: int) -> None:
    kind, step, steps = KINDS[name], 0, 1
    while step < steps:
        step += 1
        stage, steps = play(kind, step, "cancelled by its id", order)
        assert stage.reply.finished != stage.cut
        assert stage.ends_told() == (0 if stage.cut else 1)
        last = stage.rows()[-1]
        assert last.status in ("cancelled", kind.ends[-1])
        assert "success" not in [row.status for row in stage.rows()[:-1]]


@pytest.mark.parametrize("name", KINDS)
def test_a_client_that_is_found_gone_at_any_write(name: str) -> None:
    for write in itertools.count(1):
        stage, _ = play(KINDS[name], 0, "the client leaves", leaves_at=write)
        if stage.reply.finished:
            break
        assert stage.ends_told() == 0
        assert stage.rows()[-1].status in ("cancelled", "drained", KINDS[name].ends[-1])
