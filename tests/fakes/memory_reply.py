"""A client's end of a run without a socket: what it was sent, and how it was told the end.

It behaves as the server's own reply does. What is written is on its way at once, and then waits
for the client to take it, which is where a write can be cancelled; a known length keeps the head
back until the body; an end that was cancelled while it waited is not written a second time.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from edge.runs.reply import ClientGone, Reply


class MemoryReply:
    """See the module's docstring.

    Attributes:
        status: 0 until the head has been sent.
        body: without its framing.
        finished: the client has the whole answer.
        leaves_at: the client is found gone at the write of this number, from 1; 0: never.
    """

    def __init__(self, *, leaves_at: int = 0) -> None:
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.finished = False
        self.leaves_at = leaves_at
        self.writes = 0
        self._waiting = b""
        self._ended = False

    @property
    def started(self) -> bool:
        return self.status > 0

    async def start(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        content_length: int | None = None,
    ) -> None:
        assert not self.started, "an answer was begun twice"
        self.status = status
        self.headers = list(headers)
        if content_length is None:
            await self._take(b"")

    async def write(self, data: bytes) -> None:
        assert self.started
        assert not self._ended
        await self._take(data)

    def write_now(self, data: bytes) -> bool:
        assert self.started
        assert not self._ended
        self._waiting += data
        return False

    async def finish(self, data: bytes = b"") -> None:
        if self.finished:
            return
        assert self.started
        if self._ended:
            await trio.lowlevel.checkpoint()
        else:
            self._ended = True
            await self._take(data)
        self.finished = True

    async def _take(self, data: bytes) -> None:
        self.writes += 1
        if self.leaves_at and self.writes >= self.leaves_at:
            raise ClientGone
        self.body += self._waiting + data
        self._waiting = b""
        await trio.lowlevel.checkpoint()


if TYPE_CHECKING:
    _conforms: type[Reply] = MemoryReply
