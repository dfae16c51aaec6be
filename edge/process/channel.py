"""What a supervisor and a worker tell each other, over a pair of sockets that only they hold.

To the worker: settings, first those to serve with, later those to reload. Each is a length of four
bytes and a pickle; the file is read once, by the supervisor, so that all workers agree. To the
supervisor: one byte for each settings, when they are in use or were refused, and one now and then
that says that the worker's event loop goes round. When either side's end closes, it has died,
however it died: the kernel tells, and neither has to ask.
"""

import pickle
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import trio

from edge.settings import Settings

_LENGTH = struct.Struct("!I")
_BYTES: dict[bytes, "Answer"] = {b"+": "taken", b"-": "refused"}
_BEAT = b"."

Answer: TypeAlias = Literal["taken", "refused", "gone"]
"""What a worker says to settings; ``gone``: it has ended."""


class Channel:
    """One side's end; a method is used by one task at a time.

    The supervisor's needs a task that runs :meth:`listen`.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._writing = trio.Lock()
        self.ended = False
        """The other side's end has closed, as far as :meth:`receive` has seen."""
        self._told, self._answers = trio.open_memory_channel[Answer](1)

    @classmethod
    def from_descriptor(cls, descriptor: int) -> "Channel":
        """The end that was inherited under this number."""
        return cls(trio.SocketStream(trio.socket.socket(fileno=descriptor)))

    async def send(self, settings: Settings) -> Answer:
        """Hand settings to the worker and wait for what it says to them."""
        message = pickle.dumps(settings)
        try:
            await self._stream.send_all(_LENGTH.pack(len(message)) + message)
            return await self._answers.receive()
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.EndOfChannel):
            return "gone"

    async def listen(self, on_beat: Callable[[], None]) -> None:
        """Take what the worker says, until it has ended; ``on_beat`` for each sign of life."""
        with self._told, suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await self._stream.receive_some():
                for byte in data:
                    sign = bytes((byte,))
                    if sign == _BEAT:
                        on_beat()
                    else:
                        self._told.send_nowait(_BYTES[sign])

    async def receive(self) -> Settings | None:
        """The next settings; None where the supervisor has died."""
        head = await self._receive_exactly(_LENGTH.size)
        if head is None:
            return None
        message = await self._receive_exactly(*_LENGTH.unpack(head))
        if message is None:
            return None
        settings = pickle.loads(message)  # noqa: S301 - from the process that started this one
        if not isinstance(settings, Settings):
            raise TypeError(f"a supervisor sends settings, not {type(settings).__name__}")
        return settings

    async def answer(self, answer: Answer) -> None:
        """Say to the supervisor what became of the settings received last."""
        await self._say(next(byte for byte, each in _BYTES.items() if each == answer))

    async def beat(self) -> None:
        """Say to the supervisor that this worker's event loop goes round."""
        await self._say(_BEAT)

    async def _say(self, byte: bytes) -> None:
        async with self._writing:
            with suppress(trio.BrokenResourceError):  # it has died; ``receive`` tells
                await self._stream.send_all(byte)

    def close(self) -> None:
        """End it; the other side takes this one for dead."""
        self._stream.socket.close()

    async def _receive_exactly(self, size: int) -> bytes | None:
        received = bytearray()
        while len(received) < size:
            data = b""
            with suppress(trio.BrokenResourceError):
                data = await self._stream.receive_some(size - len(received))
            if not data:
                self.ended = True
                return None
            received += data
        return bytes(received)
