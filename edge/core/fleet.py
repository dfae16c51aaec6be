"""What is configured: providers, and the routes whose targets they are."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

RoutePolicy: TypeAlias = Literal["ordered", "weighted", "least_busy"]

EVERY_MODEL = "*"
"""Name of the route that takes what no other route names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """A provider as the pool sees it.

    Attributes:
        max_concurrent: slots, 0 for no cap.
        normalized: whether its answers may be decoded (``path`` is not ``tunnel``).
        tunnel: whether bytes may pass through (it speaks the clients' dialect).
    """

    name: str
    max_concurrent: int = 0
    normalized: bool = True
    tunnel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One of a route's choices.

    Attributes:
        provider: the provider's name.
        model: the model name to ask it for, None to pass the client's on.
        weight: its share of the runs, relative to the route's other targets; 0 for none unless
            no other target can be used.
    """

    provider: str
    model: str | None = None
    weight: float = 1.0

    @property
    def name(self) -> str:
        """What the target is called in statistics, and in what a retry avoids."""
        return self.provider if self.model is None else f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A public model name and the targets behind it.

    Attributes:
        model: the name clients ask for, or ``*``.
        policy: ``ordered`` takes the first target with a free slot, ``weighted`` draws by weight,
            ``least_busy`` takes the lowest score (see ``core.pool``).
    """

    model: str
    targets: tuple[Target, ...]
    policy: RoutePolicy = "least_busy"
