"""The client's end of a run that shares a WebSocket with others.

The run writes what it would write over HTTP; here its events are put between other braces. Back-
pressure is the socket's: the run waits until the kernel has taken its frame, and a client that
reads nothing for ``write_timeout_s`` has given up every run of the socket.
"""

from collections.abc import Sequence

from edge.errors import EdgeError
from edge.server.client_socket import ClientSocket
from edge.server.error_exit import told_object
from edge.wire.socket_frames import RunFrames


class SocketReply:
    """The :class:`edge.runs.reply.Reply` of one run on a socket.

    Args:
        socket: all runs of the client.
        asked_id: the client's id for this one.
        run_id: the gateway's.
    """

    def __init__(self, socket: ClientSocket, asked_id: str | int, run_id: str) -> None:
        self._socket = socket
        self._frames = RunFrames(asked_id)
        self._run_id = run_id
        self._is_whole = False
        self._body: list[bytes] = []
        self._finished = False
        self.started = False

    async def start(
        self,
        status: int,  # noqa: ARG002 - errors come by `fail`
        headers: Sequence[tuple[bytes, bytes]],  # noqa: ARG002 - a socket has none
        *,
        content_length: int | None = None,
    ) -> None:
        """Begin; with ``content_length`` the answer is one JSON body, else it is events."""
        self.started = True
        self._is_whole = content_length is not None

    async def write(self, data: bytes) -> None:
        """Send events; bytes of a body wait for its end.

        Raises:
            ClientGone: the client left, or reads nothing.
        """
        self._body.append(data)
        if not self._is_whole and (frames := self._frames.chunks(self._taken())):
            await self._socket.send(frames)

    def write_now(self, data: bytes) -> bool:
        """Nothing is sent without giving way: a socket has many runs."""
        self._body.append(data)
        return self._is_whole

    async def finish(self, data: bytes = b"") -> None:
        """Send the rest and the last word, in one piece; raises as :meth:`write` does."""
        if self._finished:
            return
        self._finished = True
        self._body.append(data)
        rest = (self._frames.completion if self._is_whole else self._frames.chunks)(self._taken())
        await self._socket.send(rest + self._frames.done(self._run_id))

    async def fail(self, error: EdgeError) -> None:
        """Send the error as the last word; raises as :meth:`write` does."""
        if not self._finished:
            self._finished = True
            await self._socket.send(self._frames.error(*told_object(error)))

    def _taken(self) -> bytes:
        """What was given to be sent and has not been."""
        data = b"".join(self._body)
        self._body.clear()
        return data
