"""Many chat runs over one WebSocket: what the client's messages say, and what it is told.

Up, one JSON object a message: ``{"id", "request"}`` begins a run, ``{"id", "cancel": true}`` ends
it. The id is the client's own, text or a whole number, and every run gets exactly one last word.

Down, one object a message: ``{"id", "chunk"}``… and ``{"id", "done": true, "run_id"}``, or
``{"id", "completion"}`` in place of the chunks where the request says ``"stream": false``, or
``{"id", "status", "error"}``. What belongs to no run has ``"id": null``.
"""

from dataclasses import dataclass
from typing import Any

from edge.errors import InvalidRequest
from edge.wire.sse import DONE_PAYLOAD
from edge.wire.strict_json import decode, encode
from edge.wire.websocket import PING, text_frame

MAX_ID_CHARS = 200

_DATA = b"data: "


@dataclass(frozen=True, slots=True)
class Asked:
    """A message of the client: a request, or None where it cancels."""

    id: str | int
    request: dict[str, Any] | None


def read_message(message: str | bytes) -> Asked:
    """What a message asks for.

    Raises:
        InvalidRequest: it is no message of this protocol.
    """
    data = message if isinstance(message, bytes) else message.encode()
    tree = decode(data, what="The message")
    if not isinstance(tree, dict):
        raise InvalidRequest("a message is a JSON object with an id")
    run_id = tree.get("id")
    if (
        not isinstance(run_id, str | int)
        or isinstance(run_id, bool)
        or len(str(run_id)) > MAX_ID_CHARS
    ):
        raise InvalidRequest(
            f"an id is text of at most {MAX_ID_CHARS} characters, or a whole number", param="id"
        )
    request, cancel = tree.get("request"), tree.get("cancel")
    if isinstance(request, dict) and not cancel:
        return Asked(run_id, request)
    if cancel is True and request is None:
        return Asked(run_id, None)
    raise InvalidRequest(
        'a message has either a "request" object or "cancel": true', param="request"
    )


class RunFrames:
    """The frames of one run.

    Args:
        asked_id: the client's id for it; None where it belongs to no run.
    """

    __slots__ = ("_opening", "_rest")

    def __init__(self, asked_id: str | int | None) -> None:
        self._opening = encode({"id": asked_id})[:-1]
        self._rest = b""

    def chunks(self, data: bytes) -> bytes:
        """What the emitter wrote as SSE events, in any cut; its JSON is not read.

        A comment, which keeps a waiting client's connection alive, becomes a ping.
        """
        *events, self._rest = (self._rest + data if self._rest else data).split(b"\n\n")
        frames = []
        for event in events:
            if event.startswith(b":"):
                frames.append(PING)
            elif event.startswith(_DATA) and event[6:] != DONE_PAYLOAD:
                frames.append(text_frame(b'%b,"chunk":%b}' % (self._opening, event[6:])))
        return b"".join(frames)

    def completion(self, body: bytes) -> bytes:
        """A whole answer, JSON."""
        return text_frame(b'%b,"completion":%b}' % (self._opening, body))

    def done(self, run_id: str) -> bytes:
        """The last word of a run that went well; ``run_id`` is the gateway's."""
        return text_frame(b'%b,"done":true,"run_id":%b}' % (self._opening, encode(run_id)))

    def error(self, status: int, error: dict[str, Any]) -> bytes:
        """The last word of a run that did not; ``status`` is what HTTP would have had."""
        told = encode({"status": status, "error": error})[1:]
        return text_frame(b"%b,%b" % (self._opening, told))
