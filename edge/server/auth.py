"""Who is asking: client keys and what they may do.

Keys are kept as SHA-256 digests. A presented key is hashed and its digest looked up, so the time
of a look-up says nothing about how much of a key was right.

A browser sets no headers on a WebSocket, but it sends cookies and an address's trust with it, from
whatever page it is on. So a key may also come as an offered protocol, ``edge.key.`` and the key in
base64url without padding; and a page's origin must be the gateway's own or a configured one.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from edge.errors import Forbidden, ModelNotFound, Unauthorized
from edge.server.exchange import Headers

MIRROR_PROTOCOL = "edge.mirror"
"""What a browser offers beside its key, for the gateway to choose."""

KEY_PROTOCOL = "edge.key."


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRights:
    """A client key without its secret.

    Attributes:
        name: what logs, ledger and metrics call it; empty where the gateway is open.
        max_concurrent: its runs at a time; 0 is no cap.
        models: public model names it may use; empty is all.
        observe: it sees the runs of other keys too.
        mirror: it may follow the runs it sees.
        trace: of traced runs that it follows it is told what is told of them alone: what they were
            asked, what their providers sent, and what was held back.
        cancel: it may cancel the runs it sees.
    """

    name: str = ""
    max_concurrent: int = 0
    models: frozenset[str] = frozenset()
    observe: bool = False
    mirror: bool = True
    trace: bool = True
    cancel: bool = True

    def may_use(self, model: str) -> bool:
        """Whether this key may ask for a public model name."""
        return not self.models or model in self.models

    def may_see(self, owner: str) -> bool:
        """Whether this key may see the runs of the key named ``owner``."""
        return self.observe or owner == self.name

    def check_model(self, model: str) -> None:
        """Raise ``ModelNotFound`` where the key may not use the model: it need not know of it."""
        if not self.may_use(model):
            raise ModelNotFound(f"the model {model!r} does not exist", param="model")


OPEN = KeyRights(observe=True)
"""Where no keys are configured, everybody may see and do everything."""


class Doorkeeper:
    """Tells keys apart."""

    def __init__(self, keys: Iterable[tuple[str, KeyRights]] = ()) -> None:
        self._by_digest = {_digest(secret): rights for secret, rights in keys}

    def identify(self, headers: Headers) -> KeyRights:
        """The rights of the key that the request carries.

        Raises:
            Unauthorized: there is none, or nobody's.
        """
        if not self._by_digest:
            return OPEN
        secret = _presented(headers)
        if not secret:
            raise Unauthorized("no API key: send Authorization: Bearer KEY", code="no_api_key")
        rights = self._by_digest.get(_digest(secret))
        if rights is None:
            raise Unauthorized("the API key is not valid here", code="invalid_api_key")
        return rights

    def identify_observer(self, headers: Headers) -> KeyRights:
        """As ``identify``, for what only keys with ``observe`` may see."""
        rights = self.identify(headers)
        if not rights.observe:
            raise Forbidden("this key may not see the runs of others")
        return rights


def check_origin(headers: Headers, allowed: frozenset[str]) -> None:
    """Let a web page in only if it is the gateway's own, or from an allowed origin.

    The scheme is not compared: behind a proxy that ends TLS it differs.

    Raises:
        Forbidden: the page is from elsewhere.
    """
    origin = headers.get("origin")
    if origin is None or origin in allowed or "*" in allowed:
        return
    if origin.partition("://")[2].lower() != (headers.get("host") or "").lower():
        raise Forbidden(f"pages from {origin} may not open sockets here", code="origin")


def _presented(headers: Headers) -> str:
    scheme, _, value = (headers.get("authorization") or "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    return (headers.get("x-api-key") or "").strip() or _offered(headers)


def _offered(headers: Headers) -> str:
    """The key among the protocols that a browser offers for a WebSocket."""
    for protocol in (headers.get("sec-websocket-protocol") or "").split(","):
        _, is_key, text = protocol.strip().partition(KEY_PROTOCOL)
        if is_key:
            try:
                padded = text + "=" * (-len(text) % 4)
                return base64.urlsafe_b64decode(padded).decode("ascii")
            except (binascii.Error, ValueError):
                return ""
    return ""


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
