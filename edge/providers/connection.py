"""One HTTP/1.1 connection: a request goes out, its answer comes in, then perhaps another.

The request is written in one system call. If the kernel does not take it all at once, the rest is
sent beside the reading of the answer, since a server may refuse a large body before it has read it:
an error answer stops the sending, any other waits for it. That is the only task ever made here.

Faults are values (:attr:`Connection.parser` has them): who asked decides what they mean.
"""

from collections.abc import Callable, Sequence

import trio

from edge.providers.channel import Channel
from edge.providers.http1 import AnswerParser


class Connection:
    """A channel and the parser of what it brings.

    Attributes:
        idle_since: when it was last put aside, in trio's clock; the pool's business.
        parser: how far the current answer has come.
    """

    __slots__ = ("_channel", "_sending", "_spoilt", "idle_since", "parser")

    def __init__(self, channel: Channel, max_head_bytes: int) -> None:
        self._channel = channel
        self._sending = False
        self._spoilt = False
        self.parser = AnswerParser(max_head_bytes)
        self.idle_since = 0.0

    async def ask(self, method: str, head: bytes, body: bytes) -> bool:
        """Send a request and wait for the head of its answer.

        Returns:
            False if the peer closed before it sent a byte, so that the request may be repeated
            elsewhere. Otherwise the parser has the head, or a fault.
        """
        self.parser.expect(method)
        # Sending may need no wait, hence no chance to be cancelled: nothing is sent for nobody.
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            unsent = await self._channel.send(head, body)
        except trio.BrokenResourceError:
            # It has closed its ear; what it said before (a 413, a 503) may still be there.
            self._spoilt = True
            unsent = ()
        if unsent:
            await self._send_and_listen(unsent)
        else:
            await self._read_head()
        return self.parser.begun

    async def read(self) -> None:
        """Read once and parse."""
        parser = self.parser
        try:
            data = await self._channel.receive_some()
        except trio.BrokenResourceError:
            parser.finish(clean=False)
            return
        if data:
            parser.feed(data)
        else:
            parser.finish(clean=True)

    async def read_each(self, take: Callable[[bytes], bool]) -> None:
        """Read and parse, and give ``take`` the body bytes of each read while it returns True.

        May return at any time: the parser says whether the answer has ended.

        Raises:
            Exception: what ``take`` raised.
        """
        parser = self.parser

        def parse(data: bytes) -> bool:
            body = parser.decode(data)
            goes_on = take(body) if body else True
            return goes_on and not parser.complete and parser.fault is None

        try:
            await self._channel.receive_each(parse)
        except trio.BrokenResourceError:
            parser.finish(clean=False)

    def is_reusable(self) -> bool:
        """Whether the answer has ended and the connection may carry another request."""
        parser = self.parser
        return parser.complete and parser.keep_alive and not self._spoilt

    def is_quiet(self) -> bool:
        """Whether the peer has left an idle connection alone."""
        return self._channel.is_quiet()

    def close(self) -> None:
        """Hang up, now."""
        self._channel.close()
        self.parser.close()

    async def _read_head(self) -> None:
        parser = self.parser
        while not parser.head_done and parser.fault is None:
            await self.read()

    async def _send_and_listen(self, unsent: Sequence[bytes | memoryview]) -> None:
        async with trio.open_nursery() as nursery:
            self._sending = True
            nursery.start_soon(self._send_rest, unsent)
            await self._read_head()
            parser = self.parser
            if parser.fault is not None or parser.complete or parser.status >= 300:
                self._abandon()

    async def _send_rest(self, unsent: Sequence[bytes | memoryview]) -> None:
        try:
            for piece in unsent:
                await self._channel.send_all(piece)
        except trio.BrokenResourceError:
            self._spoilt = True
        self._sending = False

    def _abandon(self) -> None:
        if self._sending:
            self._spoilt = True
            self._channel.abandon_sending()
