"""What web pages from elsewhere may do: cross-origin requests as browsers ask for them (CORS).

A page of a configured origin gets the headers that let it read answers, errors included, and its
preflights are answered here, before anything asks for a key: a browser sends none with them. No
other page gets either. Credentials of the browser (cookies) are never asked for.

A gateway without keys has one thing more to fear: any page that its user happens to look at can
*send* a request to it, though not read the answer, and so spend the user's models or cancel runs.
There, what changes anything is refused to pages of foreign origins. Programs send no ``Origin``,
and applications whose origin is no web page (``vscode-webview://``) are let through.

Source of the rules: the Fetch standard, "HTTP-CORS protocol".
"""

import re
from dataclasses import dataclass

from edge.errors import Forbidden
from edge.server.client_reply import ClientReply
from edge.server.exchange import Exchange, GatewayRequest
from edge.server.protocol import HeaderList

ANY = "*"
MAX_AGE_S = 600

_EXPOSED = (
    b"retry-after, x-edge-attempts, x-edge-provider, x-edge-run-id, x-request-id, x-should-retry"
)
_METHODS = b"GET, POST, DELETE"
_HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})
_FIELD_NAMES = re.compile(
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:[ \t]*,[ \t]*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*"
)
_MAX_FIELD_NAMES = 4096


@dataclass(frozen=True, slots=True)
class Cors:
    """Which pages may do what.

    Attributes:
        origins: those that may call and read answers, as browsers write them; ``*`` for any.
        is_open: no key is asked for, so that foreign pages are kept from changing anything.
    """

    origins: frozenset[str] = frozenset()
    is_open: bool = False

    async def answers(self, exchange: Exchange) -> bool:
        """Answer a preflight; any other request of a page is prepared to be answered.

        Raises:
            Forbidden: the page may not do this.
        """
        request = exchange.request
        origin = request.headers.get("origin")
        if origin is None:
            return False
        allowed = ANY in self.origins or origin in self.origins
        if allowed:
            exchange.reply.also = self._permission(origin)
        if request.method == "OPTIONS":
            return await self._preflight(request, exchange.reply, origin, allowed=allowed)
        if self.is_open and not allowed and request.method not in _HARMLESS:
            _check_own(request, origin)
        return False

    def _permission(self, origin: str) -> HeaderList:
        any_page = ANY in self.origins
        return [
            (b"access-control-allow-origin", b"*" if any_page else origin.encode("latin-1")),
            (b"access-control-expose-headers", _EXPOSED),
            *([] if any_page else [(b"vary", b"origin")]),
        ]

    async def _preflight(
        self, request: GatewayRequest, reply: ClientReply, origin: str, *, allowed: bool
    ) -> bool:
        headers = request.headers
        if "access-control-request-method" not in headers or not request.path.startswith("/v1/"):
            return False
        if not allowed:
            raise Forbidden(f"pages from {origin} may not call here", code="origin")
        fields = [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-max-age", b"%d" % MAX_AGE_S),
        ]
        wanted = headers.get("access-control-request-headers") or ""
        if len(wanted) <= _MAX_FIELD_NAMES and _FIELD_NAMES.fullmatch(wanted):
            fields.append((b"access-control-allow-headers", wanted.encode("latin-1")))
        if headers.get("access-control-request-private-network") == "true":
            fields.append((b"access-control-allow-private-network", b"true"))
        await reply.start(204, fields)
        await reply.finish()
        return True


def _check_own(request: GatewayRequest, origin: str) -> None:
    """Let the gateway's own page through, and what is no web page."""
    scheme, _, place = origin.partition("://")
    is_web = origin == "null" or scheme.lower() in ("http", "https")
    if is_web and place.lower() != (request.headers.get("host") or "").lower():
        raise Forbidden(
            f"pages from {origin} may not call here; see server.cors_origins", code="origin"
        )
