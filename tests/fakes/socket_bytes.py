"""WebSocket on the wire, as a client writes and reads it: byte by byte, also where it is wrong."""

from collections.abc import Iterator

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
CONTINUATION = 0x0

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]

_MASK = b"\x01\x02\x03\x04"


def client_frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    masked: bool = True,
    reserved: int = 0,
    declared: int | None = None,
) -> bytes:
    """A frame of a client.

    Args:
        opcode: as the specification numbers them.
        payload: before it is masked.
        final: whether the message ends with it.
        masked: a client has to.
        reserved: the three reserved bits.
        declared: a length to write in place of the real one.
    """
    size = len(payload) if declared is None else declared
    head = bytes([final << 7 | reserved << 4 | opcode])
    mask_bit = masked << 7
    if size < 126:
        head += bytes([mask_bit | size])
    elif size < 65536:
        head += bytes([mask_bit | 126]) + size.to_bytes(2, "big")
    else:
        head += bytes([mask_bit | 127]) + size.to_bytes(8, "big")
    if not masked:
        return head + payload
    return head + _MASK + bytes(byte ^ _MASK[at % 4] for at, byte in enumerate(payload))


def server_frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Opcode and payload of each whole frame of a server."""
    while len(data) >= 2:
        size, start = data[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(data[2:start], "big")
        if len(data) < start + size:
            return
        yield data[0] & 0xF, data[start : start + size]
        data = data[start + size :]


def close_codes(data: bytes) -> list[int]:
    """The codes of the close frames in what a server sent."""
    return [
        int.from_bytes(payload[:2], "big")
        for opcode, payload in server_frames(data)
        if opcode == CLOSE
    ]
