"""What a form's reader hands back: calls, or the word that there are none."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from edge.core.contract import Tool
from edge.core.repair import to_json
from edge.core.toolcalls.shapes import Data


class Ending(Enum):
    """What comes behind the text at hand."""

    OPEN = "more text may come"
    STOP = "the model has ended its answer"
    CUT = "the answer was cut by the length limit"

    @property
    def is_final(self) -> bool:
        """Whether no more text comes."""
        return self is not Ending.OPEN


@dataclass(frozen=True, slots=True)
class FoundCall:
    """One call read from text; fields as in ``ToolCallDelta``."""

    name: str
    arguments: str
    repairs: tuple[str, ...] = ()
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Calls:
    """The block at hand is over at offset ``end`` and held these calls (perhaps none)."""

    end: int
    calls: tuple[FoundCall, ...]
    owed: bytes = b""
    """A closing marker that did not come; should it come later, it is no text."""


@dataclass(frozen=True, slots=True)
class NotACall:
    """No call after all: the text up to offset ``end`` is text."""

    end: int


Outcome: TypeAlias = Calls | NotACall


@dataclass(frozen=True, slots=True)
class Setting:
    """What a block may know beside its own text.

    Attributes:
        tools: the offered tools by name.
        repair: whether lossless repairs may be made.
        on_own_line: whether the opening marker is the first thing on its line.
        has_calls: whether the answer has made a call before.
    """

    tools: Mapping[str, Tool]
    repair: bool = True
    on_own_line: bool = True
    has_calls: bool = False


class Block(Protocol):
    """Reads one block of markup that starts at a fixed offset of the held text."""

    @property
    def reach(self) -> int:
        """How far it has looked; what lies behind a rejected marker is looked at again."""
        ...

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """Look at what has come; None while more is needed (never where ``ending`` is final)."""
        ...


def offered(name: str, tools: Mapping[str, Tool]) -> str:
    """The offered tool that ``name`` means: ``functions.NAME`` is a habit of some models."""
    if name not in tools and name.startswith("functions."):
        bare = name.removeprefix("functions.")
        if bare in tools:
            return bare
    return name


def sound(name: str, arguments: Any, repairs: tuple[str, ...] = ()) -> FoundCall:
    """A call with arguments that were read."""
    return FoundCall(name, to_json(arguments), tuple(dict.fromkeys(repairs)))


def unfinished(name: str, text: str, ending: Ending, where: str) -> FoundCall:
    """A call that ends too soon; ``where`` says inside what."""
    if ending is Ending.CUT:
        fault = f"the call of {name or 'a tool'} was cut by the length limit, {where}"
    else:
        fault = f"the call of {name or 'a tool'} is incomplete: the answer ends {where}"
    return FoundCall(name, text, (), fault)


def malformed(name: str, text: str, why: str) -> FoundCall:
    """A call that cannot be read."""
    return FoundCall(name, text, (), f"the call of {name or 'a tool'} is malformed: {why}")


def decode(data: Data, start: int = 0, end: int | None = None) -> str:
    """Held bytes as text."""
    return bytes(data[start:end]).decode("utf-8", "surrogatepass")
