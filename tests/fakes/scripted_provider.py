"""A provider without a socket that plays scripts, and counts what is opened and closed.

The nth attempt is answered by the nth script, and the last one answers all that follow. A script
is a list of steps; every step first gives way to other tasks, so that it can be cancelled there:

    {"content": "Hel"}      a chunk with this delta
    "stop"                  a chunk with this finish reason
    USAGE                   a usage chunk (any mapping with ``prompt_tokens``)
    3.0                     a pause, in seconds of the test's clock
    b"data: …"              bytes, for an answer that passes through
    ProviderUnreachable     an exception to raise; as the first step it is raised while opening

An answer is whole when its script has been played to its end.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import trio

from edge.providers.port import ByteStream, ChunkStream, Provider, ProviderRequest, TunnelRequest
from edge.wire.openai_chunks import Chunk

USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

Step: TypeAlias = Mapping[str, Any] | str | float | bytes | type[Exception]
Script: TypeAlias = Sequence[Step]


@dataclass
class ScriptedProvider:
    """See the module's docstring.

    Attributes:
        asked: every request, in order.
        open_now: answers that are open.
        opened, closed: how often an answer was opened, and let go of.
    """

    name: str
    scripts: Sequence[Script]
    can_tunnel: bool = True
    asked: list[ProviderRequest | TunnelRequest] = field(default_factory=list)
    opened: int = 0
    closed: int = 0

    @property
    def open_now(self) -> int:
        return self.opened - self.closed

    def open(self, request: ProviderRequest) -> "ScriptedChunks":
        return ScriptedChunks(self, self._script(request))

    def open_tunnel(self, request: TunnelRequest) -> "ScriptedBytes":
        return ScriptedBytes(self, self._script(request))

    def _script(self, request: ProviderRequest | TunnelRequest) -> Script:
        self.asked.append(request)
        return self.scripts[min(len(self.asked), len(self.scripts)) - 1]

    async def list_models(self) -> list[dict[str, Any]]:
        await trio.lowlevel.checkpoint()
        return []

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class _Playing:
    """One answer; it may be entered once, and left once."""

    def __init__(self, provider: ScriptedProvider, script: Script) -> None:
        self._provider = provider
        self._steps = list(script)
        self._left = False

    async def __aenter__(self) -> Self:
        self._provider.opened += 1
        try:
            await trio.lowlevel.checkpoint()
            if self._steps and isinstance(self._steps[0], type):
                raise self._steps[0]("as the script says")
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        assert not self._left, "an answer was closed twice"
        self._left = True
        self._provider.closed += 1

    async def _next(self) -> Step | None:
        """The next step that is no pause; None at the end."""
        assert not self._left, "an answer was read after it was closed"
        while self._steps:
            step = self._steps.pop(0)
            await trio.sleep(step if isinstance(step, float) else 0)
            if isinstance(step, type):
                raise step("as the script says")
            if not isinstance(step, float):
                return step
        await trio.lowlevel.checkpoint()
        return None


class ScriptedChunks(_Playing):
    """A decoded answer."""

    complete = False

    async def receive(self) -> list[Chunk]:
        step = await self._next()
        if step is None:
            self.complete = True
            return []
        if isinstance(step, str):
            return [_chunk({}, step)]
        assert isinstance(step, Mapping)
        if "prompt_tokens" in step:
            return [{"choices": [], "usage": step}]
        return [_chunk(step, None)]

    async def receive_each(self, take: Callable[[list[Chunk]], bool]) -> None:
        while (chunks := await self.receive()) and take(chunks):
            pass


class ScriptedBytes(_Playing):
    """An answer that passes through."""

    status = 200

    def __init__(self, provider: ScriptedProvider, script: Script) -> None:
        super().__init__(provider, script)
        first = script[0] if script else b""
        streamed = isinstance(first, bytes) and first.startswith(b"data:")
        self._media = b"text/event-stream" if streamed else b"application/json"

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"content-type", self._media)]

    @property
    def ended(self) -> bool:
        return not self._steps

    async def receive(self) -> bytes:
        step = await self._next()
        assert step is None or isinstance(step, bytes)
        return step or b""

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        while not self.ended and (data := await self.receive()) and take(data):
            pass


def _chunk(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": dict(delta), "finish_reason": finish}]}


if TYPE_CHECKING:
    _conforms: type[Provider] = ScriptedProvider
    _chunks: type[ChunkStream] = ScriptedChunks
    _bytes: type[ByteStream] = ScriptedBytes
