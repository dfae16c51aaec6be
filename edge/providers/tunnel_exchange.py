"""A provider's answer that is passed on as it is: its bytes, and the headers that may travel.

Nobody decodes what passes through, so an error event inside of a good answer is not told from the
rest: all of it is looked through for the key that was sent.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from edge.providers.redaction import Redaction
from edge.providers.transport import HOP_BY_HOP, Exchange

PRIVATE = frozenset(
    {
        b"alt-svc",
        b"authentication-info",
        b"authorization",
        b"date",
        b"location",
        b"openai-organization",
        b"openai-project",
        b"server",
        b"set-cookie",
        b"strict-transport-security",
        b"www-authenticate",
        b"x-request-id",
    }
)
"""Fields of an answer that speak of the provider, not of the answer, or that we set ourselves."""

_NEVER_DOWN = HOP_BY_HOP | PRIVATE
_NEVER_DOWN_PREFIXES = (b"x-edge-", b"access-control-")


class TunnelExchange:
    """One request whose answer is passed on as it is."""

    def __init__(self, exchange: Exchange, redaction: Redaction) -> None:
        self._exchange = exchange
        self._redaction = redaction
        self._redactor = redaction.in_pieces()
        self._redacts = True

    @property
    def status(self) -> int:
        """See :class:`~edge.providers.port.ByteStream`."""
        return self._exchange.status

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """See :class:`~edge.providers.port.ByteStream`."""
        dropped = _NEVER_DOWN
        if named := self._exchange.header(b"connection"):
            dropped |= {token.strip().lower() for token in named.split(b",")}
        redact = self._redaction.body
        return [
            (name, redact(value))
            for name, value in self._exchange.headers
            if name not in dropped and not name.startswith(_NEVER_DOWN_PREFIXES)
        ]

    @property
    def ended(self) -> bool:
        """See :class:`~edge.providers.port.ByteStream`."""
        return self._exchange.ended

    async def __aenter__(self) -> Self:
        await self._exchange.__aenter__()
        redaction = self._redaction
        self._redacts = bool(redaction) if self.status >= 400 else redaction.is_telling
        return self

    async def receive(self) -> bytes:
        """See :class:`~edge.providers.port.ByteStream`."""
        exchange, redactor = self._exchange, self._redactor
        if not self._redacts:
            return await exchange.receive()
        while data := await exchange.receive():
            told = redactor.feed(data)
            if exchange.ended:
                told += redactor.finish()
            if told:
                return told
        return redactor.finish()

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        """See :class:`~edge.providers.port.ByteStream`."""
        if not self._redacts:
            await self._exchange.receive_each(take)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exchange.close()
