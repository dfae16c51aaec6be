"""The client's end of a run, as the run sees it; the server implements it."""

from collections.abc import Sequence
from typing import Protocol


class ClientGone(Exception):
    """The client closed its connection, or read nothing for ``write_timeout_s``: a give-up."""


class AnswerCut(Exception):
    """An answer that has begun cannot be brought to a sound end.

    The connection is closed without the end of the body, so that nobody takes what was sent for
    the whole.
    """


class Reply(Protocol):
    """Writes one HTTP answer.

    Every method may raise :class:`ClientGone`. A client's disconnect also cancels the task the run
    lives in, at whatever await it is.
    """

    @property
    def started(self) -> bool:
        """Whether the status line has been sent (or given to be sent)."""
        ...

    async def start(
        self,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        content_length: int | None = None,
    ) -> None:
        """Send the head; without ``content_length`` the body is framed as chunks."""
        ...

    async def write(self, data: bytes) -> None:
        """Send body bytes; returns when the kernel has taken them."""
        ...

    def write_now(self, data: bytes) -> bool:
        """Take body bytes, and send what needs no wait.

        Returns whether all of them are on their way. If not, ``write(b"")`` sends the rest, and has
        to come before anything else.
        """
        ...

    async def finish(self, data: bytes = b"") -> None:
        """Send the last body bytes, if any, and the body's end in one piece.

        Once it has returned, the client's leaving is no give-up.
        """
        ...
