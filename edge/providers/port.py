"""The seam between runs and the servers that answer them.

A provider is opened once per attempt. What it raises is an ``EdgeError`` of the provider family
(foreign exceptions are translated in the adapter); anything else is a bug. Leaving the ``async
with`` closes the provider's connection at once unless the answer was read to its end: closing is
how model servers are told to stop generating.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from edge.wire.openai_chunks import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRequest:
    """One attempt's chat request, ready to be sent.

    Attributes:
        body: the JSON body, as a tree that must not be changed.
        headers: ``x-edge-*`` headers and ``traceparent``; never the client's credentials.
        model: the model name in ``body``.
        attempt: 1 for the first attempt of the run.
    """

    body: Mapping[str, Any]
    model: str
    attempt: int = 1
    run_id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunnelRequest:
    """Bytes to pass through: ``path`` is below the provider's base URL (``/embeddings``)."""

    path: str
    body: bytes
    headers: Sequence[tuple[bytes, bytes]]
    model: str
    attempt: int = 1
    run_id: str = ""


class ChunkStream(Protocol):
    """A normalized answer: decoded ``chat.completion.chunk`` objects."""

    @property
    def complete(self) -> bool:
        """Whether the provider itself said that the answer is whole (``[DONE]``)."""
        ...

    async def receive(self) -> list[Chunk]:
        """All chunks that one read brought, in order, never empty until the end.

        An empty list means the answer is complete (``[DONE]``, or a sound end of the body).

        Raises:
            ProviderProtocolError: the body stopped early, or is no sound stream.
            ProviderStreamError: it holds an error object; chunks before it were returned first.
        """
        ...

    async def receive_each(self, take: Callable[[Sequence[Chunk]], bool]) -> None:
        """Give ``take`` the chunks of each read, without waking the task, while it returns True.

        A quicker way, and never the whole one: it may return at any time, and at once;
        :meth:`receive` then says how it goes on. ``take`` must not block.

        Raises:
            Exception: what ``take`` raised.
        """
        ...


class ByteStream(Protocol):
    """A tunnelled answer: status, headers and raw body bytes."""

    @property
    def status(self) -> int:
        """The provider's HTTP status."""
        ...

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """End-to-end headers only, names in lower case."""
        ...

    @property
    def ended(self) -> bool:
        """Whether it is known that nothing follows what :meth:`receive` has returned."""
        ...

    async def receive(self) -> bytes:
        """The bytes of one read; empty at the end."""
        ...

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        """As :meth:`ChunkStream.receive_each`, with the bytes of each read."""
        ...


class Provider(Protocol):
    """A configured model server."""

    @property
    def name(self) -> str:
        """Its configured name."""
        ...

    @property
    def can_tunnel(self) -> bool:
        """Whether it speaks the clients' own dialect, so that bytes may pass through."""
        ...

    def open(self, request: ProviderRequest) -> AbstractAsyncContextManager[ChunkStream]:
        """Send a chat request; entering waits for the answer's head."""
        ...

    def open_tunnel(self, request: TunnelRequest) -> AbstractAsyncContextManager[ByteStream]:
        """Send bytes as they are; entering waits for the answer's head, whatever its status."""
        ...

    async def list_models(self) -> list[dict[str, Any]]:
        """What the provider lists at ``/models``; raises ``ProviderError`` where it cannot."""
        ...

    async def aclose(self) -> None:
        """Close idle connections and keep none from now on; what has begun may still ask."""
        ...
