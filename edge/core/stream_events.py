"""Our vocabulary for what a model sends, free of vendor shapes.

One provider answer becomes a sequence of these, whatever the dialect and whether a call came as
a native delta or as text. ``choice`` is the index of the choice (0 unless ``n > 1``).
"""

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, never empty."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning, never empty."""

    text: str
    choice: int = 0


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One whole tool call as the model made it, before it is judged.

    Attributes:
        name: the tool's name as written; empty where none was given.
        arguments: the arguments as JSON text of one object, or, where ``fault`` is set,
            whatever the model wrote.
        id: the provider's id, empty where it gave none (the emitter then makes one).
        origin: ``native``, or the name of the text form the call was read from.
        repairs: names of the lossless repairs that were needed to read it (``trailing_comma``…).
        fault: why this is no sound call, in words that name the place; empty for a sound one.
    """

    name: str
    arguments: str
    id: str = ""
    origin: str = "native"
    repairs: tuple[str, ...] = ()
    fault: str = ""
    choice: int = 0


@dataclass(frozen=True, slots=True)
class Finish:
    """The provider ended this choice; ``reason`` is one of the four, or None if it gave none."""

    reason: FinishReason | None
    choice: int = 0


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Token counts as the provider reported them (the OpenAI ``usage`` object)."""

    usage: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Extras:
    """Fields of a chunk that are worth keeping and that we do not interpret.

    ``top`` goes beside ``choices`` (system_fingerprint, service_tier), ``delta`` into the choice's
    delta (refusal, annotations, audio), ``beside`` beside the delta (logprobs).
    """

    top: dict[str, Any] = field(default_factory=dict)
    delta: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    choice: int = 0


StreamEvent: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta | Finish | UsageReport | Extras
