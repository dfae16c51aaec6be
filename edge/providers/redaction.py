"""Takes a provider's key out of what the provider says when something is wrong.

Servers quote what they refuse, credentials included, and an error's words go far: to the client,
into logs, the ledger and mirrors. Answers that are decoded and are no errors are not looked
through: what a model writes is not made of our requests' headers. Answers that pass through
undecoded are, errors or not.
"""

MASK = "[redacted]"

TELLING_CHARS = 16
"""Shorter keys (``none``, ``EMPTY``) are words: in a good answer they are left alone."""


class Redaction:
    """Replaces one secret by ``[redacted]``; an empty secret is found nowhere.

    In bytes the mask is as long as the secret, so that a length told ahead stays true.
    """

    __slots__ = ("_bytes", "_mask", "_text")

    def __init__(self, secret: str) -> None:
        self._text = secret
        self._bytes = secret.encode()
        self._mask = MASK.encode().ljust(len(self._bytes), b"*")[: len(self._bytes)]

    def __bool__(self) -> bool:
        return bool(self._text)

    @property
    def is_telling(self) -> bool:
        """Whether the secret is one that nobody writes by chance."""
        return len(self._text) >= TELLING_CHARS

    def text(self, said: str) -> str:
        """The same words without the secret."""
        return said.replace(self._text, MASK) if self._text else said

    def body(self, data: bytes) -> bytes:
        """The same bytes without the secret."""
        return data.replace(self._bytes, self._mask) if self._text else data

    def in_pieces(self) -> "PieceRedactor":
        """For a body that comes in pieces."""
        return PieceRedactor(self._bytes, self._mask)


class PieceRedactor:
    """A feed/finish machine: what may still become the secret is held back."""

    __slots__ = ("_held", "_in_secret", "_mask", "_secret")

    def __init__(self, secret: bytes, mask: bytes) -> None:
        self._secret = secret
        self._mask = mask
        self._in_secret = frozenset(secret)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may leave now."""
        secret = self._secret
        if not secret or not data:
            return data
        if not self._held and data[-1] not in self._in_secret:  # an event ends in a line feed
            return data.replace(secret, self._mask)
        data = (self._held + data).replace(secret, self._mask)
        longest = min(len(secret) - 1, len(data))
        kept = next(n for n in range(longest, -1, -1) if data.endswith(secret[:n]))
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def finish(self) -> bytes:
        """The rest."""
        held, self._held = self._held, b""
        return held
