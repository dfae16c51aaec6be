"""The adapter for servers that speak OpenAI's chat completions: vLLM, SGLang, llama.cpp.

A chat request is always streamed from the provider, whatever the client asked for. What comes
back is held to be an event stream unless its content type says JSON (a server that passed over
``stream: true``); anything else is a provider at fault. Leaving an answer before its end closes
the connection, which is how these servers are told to stop.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import trio

from edge.errors import ProviderError, ProviderProtocolError, ProviderRefused
from edge.providers.port import Provider, ProviderRequest, TunnelRequest
from edge.providers.redaction import Redaction
from edge.providers.transport import Exchange, Transport
from edge.providers.tunnel_exchange import TunnelExchange
from edge.wire.openai_chunks import Chunk, chunk_error, completion_to_chunks, decode_chunk
from edge.wire.same_text import SameText
from edge.wire.sse import DONE_PAYLOAD, SseDecoder
from edge.wire.strict_json import MalformedJson, encode, parse

MAX_ERROR_BYTES = 64 * 1024
"""How much of an error body is read; the rest says nothing that a person would read."""

ERROR_BODY_WAIT_S = 5.0
"""How long an error body may take; its status is already known."""

LINGER_S = 0.05
"""How long to wait for the body's end behind ``[DONE]``, so that the connection can be kept."""

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Bound of a JSON answer that is read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIOptions:
    """What differs between servers of this dialect.

    Attributes:
        api_key: sent as a bearer token; empty sends none.
        can_tunnel: whether bytes may pass through.
        max_event_bytes: bound of one event of a stream.
        list_timeout_s: how long listing the models may take.
    """

    api_key: str = ""
    can_tunnel: bool = True
    max_event_bytes: int = 8 * 1024 * 1024
    list_timeout_s: float = 2.0


class OpenAIProvider:
    """A model server reached over HTTP."""

    def __init__(self, name: str, transport: Transport, options: OpenAIOptions) -> None:
        self._name = name
        self._transport = transport
        self._options = options
        key = options.api_key
        self._auth = [(b"authorization", b"Bearer " + key.encode())] if key else []
        self._redaction = Redaction(key)

    @property
    def name(self) -> str:
        """See :class:`Provider`."""
        return self._name

    @property
    def can_tunnel(self) -> bool:
        """See :class:`Provider`."""
        return self._options.can_tunnel

    def open(self, request: ProviderRequest) -> "ChatExchange":
        """See :class:`Provider`."""
        headers = [
            (b"content-type", b"application/json"),
            (b"accept", b"text/event-stream"),
            *self._auth,
            *_encoded(request.headers),
        ]
        body = encode(request.body)
        exchange = self._transport.request("POST", "/chat/completions", headers, body)
        return ChatExchange(self._name, exchange, self._redaction, self._options)

    def open_tunnel(self, request: TunnelRequest) -> "TunnelExchange":
        """See :class:`Provider`."""
        headers = [*request.headers, *self._auth]
        exchange = self._transport.request("POST", request.path, headers, request.body)
        return TunnelExchange(exchange, self._redaction)

    async def list_models(self) -> list[dict[str, Any]]:
        """See :class:`Provider`."""
        with trio.move_on_after(self._options.list_timeout_s):
            exchange = self._transport.request("GET", "/models", self._auth)
            async with exchange as answer:
                body = await read_bounded(answer, MAX_BODY_BYTES)
            if answer.status != 200:
                raise ProviderError(
                    f"provider {self._name!r} answered {answer.status} to a list of its models",
                    provider=self._name,
                )
            listing = _tree(body)
            data = listing.get("data") if isinstance(listing, dict) else None
            return [entry for entry in data or [] if isinstance(entry, dict)]
        raise ProviderError(
            f"provider {self._name!r} did not list its models in time", provider=self._name
        )

    async def aclose(self) -> None:
        """See :class:`Provider`."""
        await self._transport.aclose()


class ChatExchange:
    """One chat request and its streamed answer."""

    def __init__(
        self, provider: str, exchange: Exchange, redaction: Redaction, options: OpenAIOptions
    ) -> None:
        self._provider = provider
        self._redaction = redaction
        self._exchange = exchange
        self._decoder = SseDecoder(max_event_bytes=options.max_event_bytes)
        self._same_text = SameText()
        self._whole: list[Chunk] | None = None
        self._fault: ProviderError | None = None
        self._done = False
        self._ended = False

    @property
    def complete(self) -> bool:
        """See :class:`~edge.providers.port.ChunkStream`."""
        return self._done

    async def __aenter__(self) -> Self:
        await self._exchange.__aenter__()
        try:
            await self._read_head()
        except BaseException:
            self._exchange.close()
            raise
        return self

    async def receive(self) -> list[Chunk]:
        """See :class:`~edge.providers.port.ChunkStream`."""
        if self._whole is not None:
            chunks, self._whole, self._done = self._whole, [], True
            return chunks
        while True:
            if self._fault is not None:
                raise self._fault
            if self._done or self._ended:
                return []
            try:
                data = await self._exchange.receive()
                payloads = self._decoder.feed(data) if data else self._decoder.finish()
            except ProviderError as fault:
                raise self._mine(fault) from None
            self._ended = not data
            if payloads and (chunks := self._decode(payloads)):
                return chunks

    async def receive_each(self, take: Callable[[Sequence[Chunk]], bool]) -> None:
        """See :class:`~edge.providers.port.ChunkStream`."""
        decoder, texts_of = self._decoder, self._same_text.texts_of

        def decode_and_take(data: bytes) -> bool:
            if decoder.is_between:
                texts = texts_of(data, decoder.max_event_bytes)
                if texts is not None:
                    return take(texts)
            try:
                payloads = decoder.feed(data)
                chunks = self._decode(payloads) if payloads else None
            except ProviderError as fault:
                self._fault = self._mine(fault)
                return False
            goes_on = take(chunks) if chunks else True
            return goes_on and not self._done and self._fault is None

        if not self._done and not self._ended and self._fault is None and self._whole is None:
            await self._exchange.receive_each(decode_and_take)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if exc_type is None and self._done and not (self._ended or self._exchange.ended):
                # Bounded inside; a cancellation may cut it, since nothing more is wanted.
                await self._read_off()  # noqa: ASYNC102
        finally:
            self._exchange.close()

    async def _read_off(self) -> None:
        """Wait for the body's end behind ``[DONE]``: then the connection can be kept."""
        with trio.move_on_after(LINGER_S), contextlib.suppress(ProviderError):
            while await self._exchange.receive():
                pass

    def _decode(self, payloads: list[bytes]) -> list[Chunk]:
        """Chunks up to ``[DONE]`` or a fault, which is raised once they have been handed out."""
        chunks: list[Chunk] = []
        for payload in payloads:
            text = self._same_text.text_of(payload)
            if text is not None:
                chunks.append(text)
                continue
            if payload == DONE_PAYLOAD or payload.strip() == DONE_PAYLOAD:
                self._done = True
                break
            chunk, fault = _decoded(payload)
            if fault is not None:
                self._fault = self._mine(fault)
                if not chunks:
                    raise self._fault
                break
            self._same_text.learn(payload, chunk)
            chunks.append(chunk)
        return chunks

    async def _read_head(self) -> None:
        exchange = self._exchange
        status = exchange.status
        if status >= 400:
            raise await self._refusal()
        if status != 200:
            raise self._protocol_error(f"answered {status}, which is no answer to a chat request")
        encoding = exchange.header(b"content-encoding") or b"identity"
        if encoding.lower() != b"identity":
            raise self._protocol_error("compressed its answer unasked")
        media = (exchange.header(b"content-type") or b"").split(b";")[0].strip().lower()
        if media == b"application/json" or media.endswith(b"+json"):
            await self._read_whole()
        elif media not in (b"text/event-stream", b"", b"application/octet-stream", b"text/plain"):
            kind = media.decode("latin-1")[:80]
            raise self._protocol_error(f"answered with {kind} in place of an event stream")

    async def _read_whole(self) -> None:
        try:
            body = await read_bounded(self._exchange, MAX_BODY_BYTES)
            self._whole = [*completion_to_chunks(decode_chunk(body))]
        except ProviderError as fault:
            raise self._mine(fault) from None

    async def _refusal(self) -> ProviderError:
        exchange = self._exchange
        body = b""
        with trio.move_on_after(ERROR_BODY_WAIT_S):
            with contextlib.suppress(ProviderError):  # the status says enough
                body = await read_bounded(exchange, MAX_ERROR_BYTES, cut=True)
        body = self._redaction.body(body)
        return ProviderRefused(
            f"provider {self._provider!r} answered {exchange.status}{_said(body)}",
            provider=self._provider,
            upstream_status=exchange.status,
            upstream_body=body,
            upstream_type=(exchange.header(b"content-type") or b"").decode("latin-1"),
            retry_after_s=retry_after_s(exchange.header(b"retry-after")),
        )

    def _protocol_error(self, what: str) -> ProviderProtocolError:
        return ProviderProtocolError(f"provider {self._provider!r} {what}", provider=self._provider)

    def _mine(self, fault: ProviderError) -> ProviderError:
        """The same error, with the provider's name on it and its key out of it."""
        fault.provider = self._provider
        fault.message = self._redaction.text(fault.message)
        return fault


async def read_bounded(exchange: Exchange, limit: int, *, cut: bool = False) -> bytes:
    """The whole body; past ``limit`` it is cut, or it is a fault of the provider."""
    parts: list[bytes] = []
    size = 0
    while data := await exchange.receive():
        parts.append(data)
        size += len(data)
        if size > limit:
            if cut:
                break
            raise ProviderProtocolError(f"the answer is longer than {limit} bytes")
    return b"".join(parts)[:limit]


def retry_after_s(value: bytes | None) -> float | None:
    """``Retry-After`` in seconds; a date or nonsense counts as absent."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def _encoded(headers: Mapping[str, str]) -> Sequence[tuple[bytes, bytes]]:
    return [
        (name.encode("ascii"), value.encode("latin-1", "replace"))
        for name, value in headers.items()
    ]


def _decoded(payload: bytes) -> tuple[dict[str, Any], ProviderError | None]:
    """The chunk of one event, or the fault that it is or tells."""
    try:
        chunk = decode_chunk(payload)
    except ProviderProtocolError as fault:
        return {}, fault
    return chunk, chunk_error(chunk)


def _tree(body: bytes) -> Any:
    """The JSON value of a body, None where it is none."""
    try:
        return parse(body)
    except MalformedJson:
        return None


def _said(body: bytes) -> str:
    """The provider's own words, if its body has some where they usually stand."""
    tree = _tree(body)
    error = tree.get("error", tree) if isinstance(tree, dict) else None
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return f": {message[:500]}" if isinstance(message, str) and message else ""


if TYPE_CHECKING:
    _conforms: type[Provider] = OpenAIProvider
