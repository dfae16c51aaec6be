"""A whole answer, folded from stream events, as the validator and the emitters see it."""

from dataclasses import dataclass, field
from typing import Any

from edge.core.stream_events import FinishReason, ToolCallDelta


@dataclass(frozen=True, slots=True)
class CollectedChoice:
    """One choice of an answer.

    Attributes:
        finish: the provider's own reason, None where it gave none.
        extras: fields that travel untouched, as ``Extras.delta`` and ``Extras.beside``.
    """

    index: int = 0
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    finish: FinishReason | None = None
    delta_extras: dict[str, Any] = field(default_factory=dict)
    beside_extras: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectedOutput:
    """The answer of one attempt."""

    choices: tuple[CollectedChoice, ...]
    usage: dict[str, Any] | None = None
    top_extras: dict[str, Any] = field(default_factory=dict)
