"""Answers that are read to their end for the bill, after their client has gone.

Some providers bill a broken-off answer in full, and only tell the count at its end. For those
(``on_give_up = "drain"``) the provider's stream must outlive the run that asked for it, while
every scope of that run is cancelled. So it never lives in the run's task: a task of the drainer
opens it and reads it, and hands each read to the run, which waits for it at the other end of a
channel without a buffer.

    async with drainer.open(provider, request, terms, custodian) as stream:
        while chunks := await stream.receive(): ...

When the run leaves before the end, its custodian is asked whether this is a give-up. If so, the
task reads on, within ``drain_s`` and ``drain_tokens``, gives nothing to anybody, and tells the
custodian how it ended; slot and ledger row are the custodian's from the hand-over on. If not (a
deadline, a cancelled run, a fault), and at the end of a whole answer, leaving waits until the
provider's connection has been closed, as it does for any other provider.

Providers with ``on_give_up = "cancel"`` are opened directly and pay for none of this.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

import trio

from edge.providers.port import Provider, ProviderRequest
from edge.runs.reply import ClientGone
from edge.wire.openai_chunks import Chunk

CLOSE_S = 5.0
"""How long leaving waits for the provider's connection to be closed. It takes no time; the bound
is against a provider adapter that hangs."""

DrainEnd: TypeAlias = Literal[
    "end",  # the answer came to its end
    "drain_s",
    "drain_tokens",
    "error",  # the provider broke off
    "shutdown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainTerms:
    """How far a drain may go after the give-up.

    Attributes:
        drain_s: seconds.
        drain_tokens: tokens, counted as chunks that carry a choice.
    """

    drain_s: float = 30.0
    drain_tokens: int = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """How a drain ended.

    Attributes:
        usage: the last usage the provider reported, None if it reported none.
        chunks: chunks that carried a choice, since the answer's beginning: about its tokens.
        error: what the provider failed with.
    """

    ended_by: DrainEnd
    usage: dict[str, Any] | None = None
    chunks: int = 0
    error: Exception | None = None


class Custodian(Protocol):
    """Owns an attempt's slot and ledger row; nothing here may wait."""

    def gave_up(self) -> bool:
        """Whether the run is being left because its client has gone."""
        ...

    def hand_over(self) -> None:
        """The answer is being drained: from now on :meth:`drained` ends the attempt."""
        ...

    def drained(self, result: Drained) -> None:
        """The drain has ended and the provider's connection is closed; called once."""
        ...


class Drainer:
    """Opens streams that can be drained, once :meth:`run` is under way.

    Args:
        max_drains: so many at a time; a client that leaves beyond it cancels its answer.
    """

    def __init__(self, *, max_drains: int = 256) -> None:
        self._nursery: trio.Nursery | None = None
        self._max_drains = max_drains
        self._draining = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the streams' tasks, beside the runs and for longer; its cancellation ends them."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    @property
    def draining(self) -> int:
        """Answers being drained now."""
        return self._draining

    def open(
        self,
        provider: Provider,
        request: ProviderRequest,
        terms: DrainTerms,
        custodian: Custodian,
    ) -> "DrainableStream":
        """As ``provider.open(request)``, but to be drained when the client gives up."""
        return DrainableStream(self, provider, request, terms, custodian)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Start a stream's task beside the runs."""
        if self._nursery is None:
            raise RuntimeError("the drainer is not running")
        self._nursery.start_soon(task)

    def enter(self) -> bool:
        """Count one more drain, if there is room."""
        if self._draining >= self._max_drains:
            return False
        self._draining += 1
        return True

    def leave(self) -> None:
        """Count one drain less."""
        self._draining -= 1


class _Opened:
    """Says that the provider's answer has begun."""


_News: TypeAlias = _Opened | list[Chunk] | Exception


class DrainableStream:
    """A provider's stream that is read in a task of the drainer's; a ``ChunkStream``."""

    def __init__(
        self,
        drainer: Drainer,
        provider: Provider,
        request: ProviderRequest,
        terms: DrainTerms,
        custodian: Custodian,
    ) -> None:
        self._drainer = drainer
        self._provider = provider
        self._request = request
        self._terms = terms
        self._custodian = custodian
        self._scope = trio.CancelScope()
        self._closed = trio.Event()
        self._detached = False
        self._chunks = 0
        self._chunks_left = 0
        self._usage: dict[str, Any] | None = None
        self._ended = False
        self.complete = False

    async def __aenter__(self) -> Self:
        self._to_run, self._from_task = trio.open_memory_channel[_News](0)
        self._drainer.start(self._read)
        try:
            await self._next()
        except BaseException as exc:
            self._let_go(exc)
            with trio.move_on_after(CLOSE_S, shield=True):
                await self._wait_closed()
            raise
        return self

    async def receive(self) -> list[Chunk]:
        """See :class:`~edge.providers.port.ChunkStream`."""
        if self._ended:
            return []
        news = await self._next()
        chunks = news if isinstance(news, list) else []
        self._ended = not chunks
        return chunks

    async def receive_each(self, take: Callable[[Sequence[Chunk]], bool]) -> None:
        """Nothing is quicker here: another task reads."""

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._let_go(exc)
        with trio.move_on_after(CLOSE_S, shield=True):
            await self._wait_closed()

    async def _next(self) -> _News:
        news = await self._from_task.receive()
        if isinstance(news, Exception):
            raise news
        return news

    def _let_go(self, exc: BaseException | None) -> None:
        """Hand the answer over to be drained, or have it closed."""
        if isinstance(exc, trio.Cancelled | ClientGone) and self._may_drain():
            self._detached = True
            self._chunks_left = self._terms.drain_tokens
            self._scope.deadline = trio.current_time() + self._terms.drain_s
            self._custodian.hand_over()
        else:
            self._scope.cancel()
        self._from_task.close()

    async def _wait_closed(self) -> None:
        if not self._detached:
            await self._closed.wait()

    def _may_drain(self) -> bool:
        return not self._closed.is_set() and self._custodian.gave_up() and self._drainer.enter()

    async def _read(self) -> None:
        """The drainer's task: the life of the provider's stream, and its last word to the run."""
        with self._to_run:
            await self._hand(await self._live() or [])

    async def _live(self) -> Exception | None:
        ended_by: DrainEnd = "shutdown"
        error: Exception | None = None
        try:
            with self._scope:
                ended_by = await self._read_all()
            if self._scope.cancelled_caught:
                ended_by = "drain_s"
        except Exception as fault:
            # Whoever listens hears of it, and if nobody does, it is in the result.
            ended_by, error = "error", fault
        finally:
            self._closed.set()
            if self._detached:
                self._drainer.leave()
                self._custodian.drained(
                    Drained(ended_by=ended_by, usage=self._usage, chunks=self._chunks, error=error)
                )
        return error

    async def _read_all(self) -> DrainEnd:
        async with self._provider.open(self._request) as stream:
            await self._hand(_Opened())
            while chunks := await stream.receive():
                self._note(chunks)
                await self._hand(chunks)
                if self._detached and self._chunks_left <= 0:
                    return "drain_tokens"
            self.complete = stream.complete
        return "end"

    def _note(self, chunks: list[Chunk]) -> None:
        with_choice = 0
        for chunk in chunks:
            if isinstance(chunk, str):
                with_choice += 1
                continue
            with_choice += bool(chunk.get("choices"))
            usage = chunk.get("usage")
            if isinstance(usage, dict):
                self._usage = usage
        self._chunks += with_choice
        if self._detached:
            self._chunks_left -= with_choice

    async def _hand(self, news: _News) -> None:
        """Give news to the run and wait until it has taken them; when it has gone, do nothing."""
        if self._detached or self._scope.cancel_called:
            return
        try:
            await self._to_run.send(news)
        except trio.BrokenResourceError:
            await trio.lowlevel.checkpoint()
