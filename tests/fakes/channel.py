"""A channel in memory: what an HTTP connection is put upon where no socket is wanted."""

from collections.abc import Sequence

import trio

from edge.providers.watch import Take

Said = bytes | Exception | trio.CancelScope


class FakeChannel:
    """Takes requests down and says what it was told to say.

    Attributes:
        says: what each read brings, in order; empty bytes are the end, an exception is raised, a
            cancel scope is cancelled in the middle of the read.
        sent: all that was sent.
        quiet: whether the peer seems to have left it alone.
        closed: how often it was closed.
    """

    def __init__(self) -> None:
        self.says: list[Said] = []
        self.sent: list[bytes] = []
        self.quiet = True
        self.closed = 0

    async def send(self, head: bytes, body: bytes) -> Sequence[bytes | memoryview]:
        assert not self.closed
        self.sent.append(head + body)
        return ()

    async def send_all(self, data: bytes | memoryview) -> None:
        raise AssertionError(f"everything was sent, why {data!r}?")

    def abandon_sending(self) -> None:
        raise AssertionError("everything was sent")

    async def receive_some(self) -> bytes:
        assert not self.closed
        await trio.lowlevel.checkpoint()
        said = self.says.pop(0)
        if isinstance(said, trio.CancelScope):
            said.cancel()
            await trio.sleep_forever()
            raise AssertionError("the scope is not around this read")
        if isinstance(said, Exception):
            raise said
        return said

    async def receive_each(self, take: Take) -> None:
        while take(await self.receive_some()):
            pass

    def is_quiet(self) -> bool:
        return self.quiet

    def close(self) -> None:
        self.closed += 1
