"""Takes a provider's key out of what the provider says when something is wrong.

Servers quote what they refuse, credentials included, and an error's words go far: to the client,
into logs, the ledger and mirrors. Answers that are no errors are not looked through: what a model
writes is not made of our requests' headers.
"""

MASK = "[redacted]"


class Redaction:
    """Replaces one secret by ``[redacted]``; an empty secret is found nowhere."""

    __slots__ = ("_bytes", "_text")

    def __init__(self, secret: str) -> None:
        self._text = secret
        self._bytes = secret.encode()

    def __bool__(self) -> bool:
        return bool(self._text)

    def text(self, said: str) -> str:
        """The same words without the secret."""
        return said.replace(self._text, MASK) if self._text else said

    def body(self, data: bytes) -> bytes:
        """The same bytes without the secret."""
        return data.replace(self._bytes, MASK.encode()) if self._text else data

    def in_pieces(self) -> "PieceRedactor":
        """For a body that comes in pieces."""
        return PieceRedactor(self._bytes)


class PieceRedactor:
    """A feed/finish machine: what may still become the secret is held back."""

    __slots__ = ("_held", "_secret")

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """What may leave now."""
        secret = self._secret
        if not secret:
            return data
        data = (self._held + data).replace(secret, MASK.encode())
        longest = min(len(secret) - 1, len(data))
        kept = next(n for n in range(longest, -1, -1) if data.endswith(secret[:n]))
        self._held = data[len(data) - kept :]
        return data[: len(data) - kept]

    def finish(self) -> bytes:
        """The rest."""
        held, self._held = self._held, b""
        return held
