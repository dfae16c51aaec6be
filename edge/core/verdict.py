"""What the validator says of an answer."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from edge.core.collected import CollectedOutput

Category: TypeAlias = Literal[
    "unknown_tool",  # no offered tool has this name, or none was given
    "not_json",  # the arguments are no JSON object
    "schema",  # the arguments break the tool's schema
    "truncated",  # the answer was cut inside a call
    "incomplete",  # the call was left open without being cut
    "tool_choice",
    "parallel",
    "response_format",
    "strict",
    "xml_tool",
    "empty",  # neither text nor call
    "too_large",  # more than max_held_bytes had to be held
]

OUTPUT_CATEGORIES: frozenset[Category] = frozenset({"response_format", "strict"})
"""Faults of the text, told as ``output_validation_error``; the others are faults of the calls."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is wrong.

    Attributes:
        message: for people and for the model that is asked again; names the tool and the place.
        param: where in the answer, as ``tool_calls[1].arguments.limit`` or ``content``.
    """

    category: Category
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Valid:
    """``output`` is what may leave: parsed, repaired where nothing was lost, ids still raw.

    Attributes:
        repairs: names of the lossless repairs of texts (``fence``…); those of calls are theirs.
    """

    output: CollectedOutput
    repairs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Invalid:
    """At least one reason; ``output`` is what was judged."""

    reasons: tuple[Reason, ...]
    output: CollectedOutput


Verdict: TypeAlias = Valid | Invalid
