"""What the server allows one client's connection, as one frozen value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Bounds of the HTTP side; times in seconds, sizes in bytes.

    Attributes:
        write_timeout_s: a client that takes no byte for so long has given up.
        max_body_bytes: longest request body; counted while it arrives.
        body_timeout_s: how long a body may take, from when a handler asks for it.
        max_head_bytes: longest request head; each header counts 32 more than its bytes.
        header_timeout_s: how long a head may take, from its first byte.
        keep_alive_s: how long a connection may wait for a request. Longer than what proxies and
            SDK pools keep theirs (60 s mostly), so that they close first, not we under a request.
        drain_s: how long running requests may go on after shutdown was asked for.
        max_connections: connections at a time. Beyond it the one that has been connected for the
            longest time without a request of its own is closed, or else the new one.
        backlog: connections the kernel holds that were not accepted yet.
        max_websocket_message_bytes: longest message a WebSocket client may send.
        max_frames_per_s: short WebSocket frames of one client, pings included, over ten seconds.
    """

    write_timeout_s: float = 30.0
    max_body_bytes: int = 32 * 1024 * 1024
    body_timeout_s: float = 60.0
    max_head_bytes: int = 64 * 1024
    header_timeout_s: float = 10.0
    keep_alive_s: float = 75.0
    drain_s: float = 30.0
    max_connections: int = 10_000
    backlog: int = 2048
    max_websocket_message_bytes: int = 1024 * 1024
    max_frames_per_s: int = 1000
