"""Answers that outlive their client, in virtual time."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pytest
import trio
import trio.testing

from edge.errors import ProviderProtocolError, ProviderUnreachable
from edge.providers.port import ByteStream, ChunkStream, ProviderRequest, TunnelRequest
from edge.runs.drain import Drained, Drainer, DrainTerms
from edge.runs.reply import ClientGone
from edge.wire.openai_chunks import Chunk

REQUEST = ProviderRequest(body={}, model="m")
TERMS = DrainTerms(drain_s=30, drain_tokens=10)
USAGE = {"prompt_tokens": 7, "completion_tokens": 5}


def text(word: str) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": word}}]}


@dataclass
class PacedProvider:
    """Sends a chunk a second, then a usage report; or raises ``fault`` in its place."""

    chunks: int = 5
    opens_after_s: float = 0.0
    every_s: float = 1.0
    fault: Exception | None = None
    fault_at_opening: bool = False
    name: str = "paced"
    can_tunnel: bool = False
    log: list[str] = field(default_factory=list)

    def open(self, request: ProviderRequest) -> AbstractAsyncContextManager[ChunkStream]:
        return PacedStream(self)

    def open_tunnel(self, request: TunnelRequest) -> AbstractAsyncContextManager[ByteStream]:
        raise NotImplementedError

    async def list_models(self) -> list[dict[str, Any]]:
        return []

    async def aclose(self) -> None:
        return None


class PacedStream:
    def __init__(self, provider: PacedProvider) -> None:
        self._provider = provider
        self._sent = 0
        self.complete = False

    async def __aenter__(self) -> Self:
        provider = self._provider
        provider.log.append("opened")
        try:
            await trio.sleep(provider.opens_after_s)
            if provider.fault is not None and provider.fault_at_opening:
                raise provider.fault
        except BaseException:
            provider.log.append("closed")
            raise
        return self

    async def receive(self) -> list[Chunk]:
        provider = self._provider
        if self._sent > provider.chunks:
            self.complete = True
            return []
        await trio.sleep(provider.every_s)
        self._sent += 1
        if self._sent <= provider.chunks:
            return [text(f"w{self._sent}")]
        if provider.fault is not None:
            raise provider.fault
        return [{"choices": [], "usage": USAGE}]

    async def receive_each(self, take: Callable[[list[Chunk]], bool]) -> None:
        while (chunks := await self.receive()) and take(chunks):
            pass

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._provider.log.append("whole" if self.complete else "closed")


@dataclass
class RecordingCustodian:
    """Remembers what it was told."""

    log: list[str]
    is_give_up: bool = True
    results: list[Drained] = field(default_factory=list)

    def gave_up(self) -> bool:
        return self.is_give_up

    def hand_over(self) -> None:
        self.log.append("handed over")

    def drained(self, result: Drained) -> None:
        self.log.append("drained")
        self.results.append(result)


@asynccontextmanager
async def running(drainer: Drainer | None = None) -> AsyncIterator[Drainer]:
    drainer = drainer or Drainer()
    async with trio.open_nursery() as nursery:
        await nursery.start(drainer.run)
        yield drainer
        await drained(drainer)
        nursery.cancel_scope.cancel()


async def drained(drainer: Drainer) -> None:
    while drainer.draining:  # noqa: ASYNC110 - the clock is virtual, and nothing tells of the end
        await trio.sleep(1)


async def read_all(
    drainer: Drainer,
    provider: PacedProvider,
    custodian: RecordingCustodian,
    terms: DrainTerms = TERMS,
    on_chunks: Callable[[Sequence[Chunk]], None] = lambda _: None,
) -> int:
    """What a run does; returns how many reads there were."""
    reads = 0
    async with drainer.open(provider, REQUEST, terms, custodian) as stream:
        while chunks := await stream.receive():
            reads += 1
            on_chunks(chunks)
        assert stream.complete
        assert await stream.receive() == []
    return reads


async def test_a_run_that_stays_reads_the_whole_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider()
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        assert await read_all(drainer, provider, custodian) == 6

    assert provider.log == ["opened", "whole"]


async def test_a_give_up_hands_the_answer_over_and_the_usage_is_learnt(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider(chunks=5)
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with trio.move_on_after(2.5):
            await read_all(drainer, provider, custodian)
        assert drainer.draining == 1
        left_at = trio.current_time()
        await drained(drainer)
        assert trio.current_time() - left_at < 5

    assert provider.log == ["opened", "handed over", "whole", "drained"]
    assert custodian.results == [Drained(ended_by="end", usage=USAGE, chunks=5)]


async def test_a_client_found_gone_by_a_write_hands_over_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider(chunks=3)
    custodian = RecordingCustodian(provider.log)

    def write(chunks: Sequence[Chunk]) -> None:
        raise ClientGone

    async with running() as drainer:
        with pytest.raises(ClientGone):
            await read_all(drainer, provider, custodian, on_chunks=write)

    assert [result.ended_by for result in custodian.results] == ["end"]


async def test_a_give_up_before_the_answers_head_is_drained_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider(chunks=3, opens_after_s=5)
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with trio.move_on_after(2):
            await read_all(drainer, provider, custodian)

    assert custodian.results == [Drained(ended_by="end", usage=USAGE, chunks=3)]


async def test_a_drain_ends_after_its_seconds(autojump_clock: trio.testing.MockClock) -> None:
    provider = PacedProvider(chunks=3, every_s=25)
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with trio.move_on_after(2):
            await read_all(drainer, provider, custodian)
        left_at = trio.current_time()
        await drained(drainer)
        assert trio.current_time() - left_at == pytest.approx(30, abs=1)

    assert provider.log == ["opened", "handed over", "closed", "drained"]
    assert custodian.results == [Drained(ended_by="drain_s", chunks=1)]


async def test_a_drain_ends_after_its_tokens(autojump_clock: trio.testing.MockClock) -> None:
    provider = PacedProvider(chunks=1000)
    custodian = RecordingCustodian(provider.log)
    terms = DrainTerms(drain_s=1000, drain_tokens=10)
    async with running() as drainer:
        with trio.move_on_after(3.5):
            await read_all(drainer, provider, custodian, terms)

    assert custodian.results == [Drained(ended_by="drain_tokens", chunks=13)]
    assert provider.log[-2:] == ["closed", "drained"]


async def test_a_provider_that_breaks_off_ends_the_drain(
    autojump_clock: trio.testing.MockClock,
) -> None:
    fault = ProviderProtocolError("it died")
    provider = PacedProvider(chunks=4, fault=fault)
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with trio.move_on_after(1.5):
            await read_all(drainer, provider, custodian)

    assert custodian.results == [Drained(ended_by="error", chunks=4, error=fault)]


async def test_a_bug_in_a_drain_harms_nobody_else(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider(chunks=2, fault=ZeroDivisionError())
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with trio.move_on_after(1.5):
            await read_all(drainer, provider, custodian)
        await drained(drainer)

        other = PacedProvider()
        assert await read_all(drainer, other, RecordingCustodian(other.log)) == 6

    assert [result.ended_by for result in custodian.results] == ["error"]


@pytest.mark.parametrize("leave_after_s", [0.5, 2.5])
async def test_what_is_no_give_up_closes_the_connection_before_leaving(
    leave_after_s: float, autojump_clock: trio.testing.MockClock
) -> None:
    """A deadline or a run cancelled by its id: the provider is told to stop."""
    provider = PacedProvider(opens_after_s=1)
    custodian = RecordingCustodian(provider.log, is_give_up=False)
    async with running() as drainer:
        left_at = trio.current_time() + leave_after_s
        with trio.move_on_after(leave_after_s):
            await read_all(drainer, provider, custodian)
        provider.log.append("left")

        assert trio.current_time() == pytest.approx(left_at)
        assert drainer.draining == 0

    assert provider.log == ["opened", "closed", "left"]


async def test_a_fault_of_the_run_closes_the_connection_before_leaving(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider()
    custodian = RecordingCustodian(provider.log)

    def refuse(chunks: Sequence[Chunk]) -> None:
        raise ProviderProtocolError("too large")

    async with running() as drainer:
        with pytest.raises(ProviderProtocolError):
            await read_all(drainer, provider, custodian, on_chunks=refuse)
        provider.log.append("left")

    assert provider.log == ["opened", "closed", "left"]


@pytest.mark.parametrize("at_opening", [True, False])
async def test_a_failing_provider_is_heard_by_the_run(
    at_opening: bool, autojump_clock: trio.testing.MockClock
) -> None:
    fault = ProviderUnreachable("nobody there")
    provider = PacedProvider(chunks=1, fault=fault, fault_at_opening=at_opening)
    custodian = RecordingCustodian(provider.log)
    async with running() as drainer:
        with pytest.raises(ProviderUnreachable) as heard:
            await read_all(drainer, provider, custodian)

    assert heard.value is fault
    assert provider.log == ["opened", "closed"]


async def test_beyond_the_bound_a_give_up_cancels(
    autojump_clock: trio.testing.MockClock,
) -> None:
    providers = [PacedProvider(chunks=20) for _ in range(3)]
    custodians = [RecordingCustodian(provider.log) for provider in providers]
    async with running(Drainer(max_drains=2)) as drainer:
        for provider, custodian in zip(providers, custodians, strict=True):
            with trio.move_on_after(1.5):
                await read_all(drainer, provider, custodian)
        assert drainer.draining == 2

    assert providers[2].log == ["opened", "closed"]
    assert custodians[2].results == []


async def test_going_down_ends_every_drain_with_its_row(
    autojump_clock: trio.testing.MockClock,
) -> None:
    provider = PacedProvider(chunks=100)
    custodian = RecordingCustodian(provider.log)
    drainer = Drainer()
    async with trio.open_nursery() as nursery:
        await nursery.start(drainer.run)
        with trio.move_on_after(1.5):
            await read_all(drainer, provider, custodian)
        nursery.cancel_scope.cancel()

    assert custodian.results == [Drained(ended_by="shutdown", chunks=1)]
    assert provider.log == ["opened", "handed over", "closed", "drained"]


async def test_a_drainer_that_does_not_run_says_so() -> None:
    provider = PacedProvider()
    stream = Drainer().open(provider, REQUEST, TERMS, RecordingCustodian([]))

    with pytest.raises(RuntimeError):
        await stream.__aenter__()
