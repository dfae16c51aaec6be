"""Making a connection: name, TCP, perhaps a proxy's tunnel, perhaps TLS.

Names are looked up and addresses tried by trio (happy eyeballs, RFC 8305). Certificates are checked
unless that was turned off; a ``ca_file`` replaces the system's trust. Only HTTP/1.1 is offered
(ALPN). The deadline is the caller's; whatever ends a dial early leaves no socket behind.
"""

import socket
import ssl
from collections.abc import Awaitable, Callable

import trio

from edge.errors import ProviderUnreachable
from edge.providers.channel import Channel, SocketChannel
from edge.providers.connection import Connection
from edge.providers.origin import Origin
from edge.providers.proxy import Proxy
from edge.providers.tls import TlsChannel
from edge.providers.watch import Watch

Dial = Callable[[], Awaitable[Channel]]
"""Makes a new connection; raises ``ProviderUnreachable``."""


class Dialer:
    """Dials one origin."""

    def __init__(
        self,
        origin: Origin,
        *,
        name: str,
        context: ssl.SSLContext | None,
        proxy: Proxy | None,
        max_head_bytes: int,
        watch: Watch | None = None,
    ) -> None:
        self._origin = origin
        self._name = name
        self._context = context
        self._proxy = proxy
        self._max_head_bytes = max_head_bytes
        self._watch = watch

    async def __call__(self) -> Channel:
        """A channel that is ready for a request.

        Raises:
            ProviderUnreachable: it cannot be had; the message says why, and names no address.
        """
        address = self._proxy or self._origin
        channel = await self._connect(address.host, address.port)
        try:
            if self._proxy is not None:
                await self._ask_for_tunnel(channel, self._proxy)
            if self._context is not None:
                return await self._secure(channel, self._context)
        except BaseException:
            channel.close()
            raise
        return channel

    async def _connect(self, host: str, port: int) -> SocketChannel:
        try:
            stream = await trio.open_tcp_stream(host, port)
        except (OSError, UnicodeError) as error:
            raise self._unreachable(_reason(error)) from error
        # trio has set TCP_NODELAY; from here on the descriptor is the channel's.
        return SocketChannel(socket.socket(fileno=stream.socket.detach()), self._watch)

    async def _ask_for_tunnel(self, channel: SocketChannel, proxy: Proxy) -> None:
        connection = Connection(channel, self._max_head_bytes)
        # As with HEAD, nothing that the answer's head says makes a body follow.
        answered = await connection.ask("HEAD", proxy.connect_request(self._origin), b"")
        parser = connection.parser
        if not answered or parser.fault is not None:
            raise self._unreachable("the proxy gave no sound answer")
        if not 200 <= parser.status < 300:
            raise self._unreachable(f"the proxy refused with status {parser.status}")

    async def _secure(self, channel: SocketChannel, context: ssl.SSLContext) -> TlsChannel:
        secured = TlsChannel(channel, context, self._origin.host)
        try:
            await secured.handshake()
        except trio.BrokenResourceError as error:
            raise self._unreachable(_tls_reason(error.__cause__)) from error
        return secured

    def _unreachable(self, reason: str) -> ProviderUnreachable:
        return ProviderUnreachable(
            f"provider {self._name!r} cannot be reached: {reason}", provider=self._name
        )


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror | UnicodeError):
        return "its name is not known"
    if isinstance(error, ConnectionRefusedError) or _all_refused(error):
        return "it refused the connection"
    return "no connection could be made"


def _all_refused(error: OSError) -> bool:
    """Whether each address that trio tried refused; trio's own error holds them as its cause."""
    cause = error.__cause__
    causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else [cause]
    return all(isinstance(each, ConnectionRefusedError) for each in causes)


def _tls_reason(cause: BaseException | None) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        # After a comma comes the name that was expected: an address.
        return f"its certificate is not trusted: {cause.verify_message.partition(',')[0]}"
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or 'the connection was closed'}"
    return "the connection broke during the TLS handshake"
