"""The pool against a model, with every way an exchange can begin and end.

The model is a list of idle connections and a set of leased ones. Whatever happens, each connection
is in exactly one of them or closed, and the transport's counts are the model's.
"""

from dataclasses import dataclass

import trio
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

from edge.errors import ProviderError, ProviderProtocolError, ProviderUnreachable
from edge.providers.channel import Channel
from edge.providers.transport import Exchange, Transport, TransportLimits
from tests.fakes.channel import FakeChannel, Said

EXPIRY_S = 10.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n"


@dataclass
class Idle:
    """An idle connection of the model."""

    channel: FakeChannel
    since: float


@dataclass
class Lease:
    """An exchange in flight and what ends it."""

    exchange: Exchange
    channel: FakeChannel
    scope: trio.CancelScope
    keeps: bool


class PoolMachine(RuleBasedStateMachine):
    """Drives a transport over channels in memory, a rule at a time."""

    leases: Bundle[Lease] = Bundle("leases")

    @initialize(max_idle=st.integers(0, 4))
    def begin(self, max_idle: int) -> None:
        self.now = 0.0
        self.max_idle = max_idle
        self.all: list[FakeChannel] = []
        self.refusing = False
        self.closed = False
        self.cancels_dial: trio.CancelScope | None = None
        self.idle: list[Idle] = []
        self.leased: list[FakeChannel] = []
        self.transport = Transport(
            "http://gpu1",
            TransportLimits(max_idle=max_idle, idle_expiry_s=EXPIRY_S),
            dial=self._dial,
            now=lambda: self.now,
        )

    async def _dial(self) -> Channel:
        if self.cancels_dial is not None:
            self.cancels_dial.cancel()
        await trio.lowlevel.checkpoint()
        if self.refusing:
            raise ProviderUnreachable("nobody there")
        channel = FakeChannel()
        channel.says = list(self.script)
        self.all.append(channel)
        return channel

    # What the model expects

    def _take(self) -> FakeChannel | None:
        while self.idle:
            kept = self.idle.pop()
            if kept.channel.quiet and kept.since >= self.now - EXPIRY_S:
                return kept.channel
        return None

    def _keep(self, channel: FakeChannel) -> None:
        if self.closed:
            return
        self.idle.append(Idle(channel, self.now))
        self.idle = [kept for kept in self.idle if kept.since >= self.now - EXPIRY_S]
        self.idle = self.idle[max(0, len(self.idle) - self.max_idle) :]

    def _enter(self, script: list[Said], scope: trio.CancelScope | None = None) -> Exchange | None:
        """Enter an exchange whose server follows a script; None if it failed or was cancelled."""
        self.script = script
        self.expected = self._take()
        if self.expected is not None and not self.expected.says:
            self.expected.says = list(script)
        self.error: ProviderError | None = None
        exchange = self.transport.request("POST", "/x")

        async def enter() -> Exchange | None:
            with scope or trio.CancelScope():
                return await exchange.__aenter__()
            return None

        try:
            return trio.run(enter)
        except ProviderError as error:
            self.error = error
            return None

    def _asked(self) -> FakeChannel:
        """The connection that the model says the last request went out on."""
        return self.expected if self.expected is not None else self.all[-1]

    # What happens

    @rule(
        target=leases,
        end=st.sampled_from(["keep", "keep", "keep", "close", "surplus", "open"]),
        cut=st.integers(1, 60),
    )
    def a_request_is_answered(self, end: str, cut: int) -> Lease | MultipleResults[Lease]:
        wire = HEAD + (b"connection: close\r\n" if end == "close" else b"") + b"\r\n"
        wire += {"open": b"bo", "surplus": b"body?"}.get(end, b"body")
        cut = min(cut, len(wire) - 2)  # what is surplus comes with the end, or was never read
        scope = trio.CancelScope()
        exchange = self._enter([*filter(None, (wire[:cut], wire[cut:])), scope])
        if exchange is None:
            assert self.expected is None
            assert self.refusing
            return multiple()
        channel = self._asked()
        self.leased.append(channel)
        return Lease(exchange, channel, scope, keeps=end == "keep")

    @rule(noise=st.sampled_from([b"<html>", b"HTTP/1.1 2", b"HTTP/2 200\r\n\r\n"]))
    def a_request_gets_a_broken_head(self, noise: bytes) -> None:
        assert self._enter([noise, b""]) is None

        asked = self.expected is not None or not self.refusing
        assert isinstance(self.error, ProviderProtocolError if asked else ProviderUnreachable)

    @rule(how=st.sampled_from([b"", trio.BrokenResourceError()]))
    def a_used_connection_turns_out_to_be_closed(self, how: bytes | Exception) -> None:
        doomed = self.idle[-1].channel if self.idle else None
        if doomed is not None:
            doomed.says = [how]
        exchange = self._enter([HEAD + b"\r\nbody"])
        if exchange is None:
            assert self.refusing
            return
        answering = self.all[-1] if self.expected is doomed else self._asked()
        assert answering is not doomed
        assert trio.run(_leave, exchange, "to the end", trio.CancelScope())
        self._keep(answering)

    @rule(before=st.sampled_from(["dialling", b"", b"HTTP/1.1 100 C\r\n\r\n", HEAD]))
    def a_request_is_cancelled(self, before: str | bytes) -> None:
        scope = trio.CancelScope()
        self.cancels_dial = scope if before == "dialling" else None
        script: list[Said] = [before, scope] if isinstance(before, bytes) and before else [scope]
        assert self._enter(script, scope) is None
        assert self.error is None or self.refusing
        self.cancels_dial = None

    @rule(
        lease=consumes(leases),
        how=st.sampled_from(["to the end", "to the end", "early", "exception"]),
    )
    def an_exchange_ends(self, lease: Lease, how: str) -> None:
        complete = trio.run(_leave, lease.exchange, how, lease.scope)
        self.leased.remove(lease.channel)
        if complete and lease.keeps:
            lease.channel.says.clear()
            self._keep(lease.channel)

    @precondition(lambda self: self.idle)
    @rule(data=st.data())
    def the_provider_closes_an_idle_connection(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.idle)).channel.quiet = False

    @rule(seconds=st.sampled_from([1.0, 5.0, EXPIRY_S, EXPIRY_S + 1]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(refusing=st.booleans())
    def the_provider_stops_or_starts_accepting(self, refusing: bool) -> None:
        self.refusing = refusing

    @precondition(lambda self: len(self.all) > 5)
    @rule()
    def the_transport_is_closed(self) -> None:
        trio.run(self.transport.aclose)
        self.closed = True
        self.idle = []

    # What always holds

    @invariant()
    def the_counts_are_the_models(self) -> None:
        statistics = self.transport.statistics()
        counts = (statistics.idle, statistics.leased, statistics.connecting)
        assert counts == (len(self.idle), len(self.leased), 0)
        assert statistics.opened == len(self.all)
        assert statistics.idle <= self.max_idle

    @invariant()
    def each_connection_is_idle_or_leased_or_closed_once(self) -> None:
        held = [id(kept.channel) for kept in self.idle] + [id(channel) for channel in self.leased]
        assert len(set(held)) == len(held)
        for channel in self.all:
            assert channel.closed == (0 if id(channel) in held else 1)


async def _leave(exchange: Exchange, how: str, scope: trio.CancelScope) -> bool:
    """End an exchange in one of several ways; whether its answer was complete then."""
    with scope:
        while how == "to the end" and await exchange.receive():
            pass
    connection = exchange._connection
    assert connection is not None
    complete = connection.parser.complete
    error = ValueError() if how == "exception" else None
    await exchange.__aexit__(type(error) if error else None, error, None)
    return complete


def test_the_pool_keeps_to_its_model() -> None:
    run_state_machine_as_test(PoolMachine)
