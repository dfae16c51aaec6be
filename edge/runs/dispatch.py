"""Takes slots for attempts: waits where the pool says so, and hands them back."""

from collections.abc import Mapping

from edge.core.attempt import AttemptOutcome
from edge.providers.port import Provider


class Lease:
    """One slot of a provider, from dispatch to the end of the attempt.

    Attributes:
        provider: who answers.
        provider_name: its name.
        model: the target's model name, None where the client's is passed on.
        target: the target's name, for ``AttemptOutcome.target``.
    """

    provider: Provider
    provider_name: str
    model: str | None
    target: str

    def release(self, outcome: AttemptOutcome | None) -> None:
        """Give the slot back; None for an attempt that says nothing of the provider's health.

        Never waits. A second call does nothing.
        """
        raise NotImplementedError


class Dispatcher:
    """Waits for slots."""

    def __init__(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    async def lease(
        self,
        route: str,
        *,
        avoid: frozenset[str] = frozenset(),
        need_normalized: bool = True,
    ) -> Lease:
        """Wait for a slot of ``route``.

        Raises:
            Overloaded: none may come soon; ``retry_after_s`` says when one may.
        """
        raise NotImplementedError

    def route_for(self, model: str) -> str | None:
        """The name of the route that serves ``model``; ``*`` takes what no other route names."""
        raise NotImplementedError

    def targets(self, route: str) -> tuple[str, ...]:
        """The names of the route's targets, for ``RetryPolicy.targets``."""
        raise NotImplementedError

    def saturated(self, route: str) -> bool:
        """Whether so many runs wait for the route that no attempt may be added."""
        raise NotImplementedError
