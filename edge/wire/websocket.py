"""WebSocket frames as a server sends them (RFC 6455, section 5.2).

A server's frames carry no mask, so a frame is the same bytes for every client: it is made once and
given to any number of them. Frames that are not compressed are allowed on a connection that has
agreed to ``permessage-deflate`` (RFC 7692, section 6).
"""

from collections.abc import Iterable

PING = b"\x89\x00"
"""A ping without payload; the client's pong needs no answer."""

_TEXT = 0x81
_SHORT = 126
_MEDIUM = 1 << 16


def text_frame(payload: bytes) -> bytes:
    """A whole text message in one frame; ``payload`` must be UTF-8."""
    size = len(payload)
    if size < _SHORT:
        return bytes((_TEXT, size)) + payload
    if size < _MEDIUM:
        return bytes((_TEXT, 126)) + size.to_bytes(2, "big") + payload
    return bytes((_TEXT, 127)) + size.to_bytes(8, "big") + payload


def array_frame(frames: Iterable[bytes]) -> bytes:
    """One message in the place of many: a JSON array of what :func:`text_frame` was made of."""
    return text_frame(b"[%b]" % b",".join(map(_payload, frames)))


def _payload(frame: bytes) -> bytes:
    return frame[{126: 4, 127: 10}.get(frame[1], 2) :]
