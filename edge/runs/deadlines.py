"""The deadlines of one attempt: first token, then idle."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

import trio

from edge.errors import ProviderTimeout

COARSENESS = 1 / 16
"""By how much of the idle time its deadline may come late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptTimeouts:
    """Seconds a provider may take.

    Attributes:
        first_token_s: from the start of the attempt to the first content.
        idle_s: the longest silence after it.
    """

    first_token_s: float = 120.0
    idle_s: float = 60.0


class AttemptDeadline:
    """Ends an attempt whose provider is silent for too long.

        with AttemptDeadline(timeouts, provider=name) as deadline:
            async with provider.open(request) as stream:
                while batch := await stream.receive():
                    deadline.progress()

    Before the first :meth:`progress` the first-token time counts, after
    it the idle time. :meth:`progress` is called once per read and costs a look at the clock: the
    scope's deadline is only moved when it lags by a sixteenth of the idle time (at most a second),
    so an idle deadline is never early and at most that much late. (Moving it at every read would
    cost ten times as much.)

    Raises:
        ProviderTimeout: on leaving, after a deadline passed; its ``code`` is
            ``first_token_timeout`` or ``idle_timeout``.
    """

    __slots__ = ("_clock", "_coarse_s", "_idle_s", "_move_at", "_provider", "_started", "scope")

    def __init__(self, timeouts: AttemptTimeouts, *, provider: str = "") -> None:
        self._provider = provider
        self._idle_s = timeouts.idle_s
        self._coarse_s = min(timeouts.idle_s * COARSENESS, 1.0)
        self._started = False
        self._move_at = 0.0
        self._clock = trio.lowlevel.current_clock().current_time
        self.scope = trio.CancelScope(deadline=self._clock() + timeouts.first_token_s)

    def __enter__(self) -> Self:
        self.scope.__enter__()
        return self

    def progress(self) -> float:
        """Content has come; returns the time, since most who say so want to know it too."""
        now = self._clock()
        if now >= self._move_at:
            self._started = True
            self._move_at = now + self._coarse_s
            self.scope.deadline = now + self._idle_s + self._coarse_s
        return now

    @property
    def expired(self) -> bool:
        """Whether a deadline has passed: then the attempt's end is no give-up."""
        return self.scope.cancel_called

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        absorbed = self.scope.__exit__(exc_type, exc, traceback)
        if self.scope.cancelled_caught:
            raise self._timeout()
        return bool(absorbed)

    def _timeout(self) -> ProviderTimeout:
        if self._started:
            return ProviderTimeout(
                f"the provider sent nothing for {self._idle_s:g} s",
                provider=self._provider,
                code="idle_timeout",
            )
        return ProviderTimeout(
            "the provider's first token did not come in time",
            provider=self._provider,
            code="first_token_timeout",
        )
