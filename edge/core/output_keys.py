"""The keys of :class:`~edge.core.output_policy.OutputPolicy` and what each may be.

One table serves both ways in: ``[output]`` of the configuration brings typed values
(:meth:`OutputKey.check`), a request brings strings (:meth:`OutputKey.parse`). Both are strict: no
``yes`` for true, no ``"3"`` where a number is due, no number where a word is due.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, get_args

from edge.core.near_match import did_you_mean, shown
from edge.core.output_policy import Buffer, Validate
from edge.core.toolcalls.registry import FORM_NAMES

_WHOLE = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{0,64}")

MIN_HELD_BYTES = 1024
"""Less could not hold the smallest call, and every run would fail."""

MAX_ATTEMPTS = 20
"""More attempts than this are a mistake of the configuration, not patience."""


class OutputKey(Protocol):
    """What one key may hold."""

    def check(self, value: object) -> object:
        """The value as the policy holds it; ``ValueError`` says what it must be."""
        ...

    def parse(self, text: str) -> object:
        """The same for a value written as a string."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if isinstance(value, str) and value in self.words:
            return value
        options = " or ".join(f'"{word}"' for word in self.words)
        hint = did_you_mean(value, self.words) if isinstance(value, str) else ""
        raise ValueError(f"must be {options}, not {shown(value)}{hint}")

    def parse(self, text: str) -> object:
        """See :class:`OutputKey`."""
        return self.check(text)


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if isinstance(value, bool):
            return value
        raise ValueError(f"must be true or false, not {shown(value)}")

    def parse(self, text: str) -> object:
        """See :class:`OutputKey`."""
        if text in ("true", "false"):
            return text == "true"
        raise ValueError(f"must be true or false, not {shown(text)}")


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds, both allowed."""

    low: int
    high: int

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if type(value) is int and self.low <= value <= self.high:
            return value
        raise ValueError(
            f"must be a whole number from {self.low} to {self.high}, not {shown(value)}"
        )

    def parse(self, text: str) -> object:
        """See :class:`OutputKey`."""
        return self.check(int(text) if _WHOLE.fullmatch(text) else text)


@dataclass(frozen=True, slots=True)
class Seconds:
    """A finite, positive length of time."""

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if type(value) in (int, float):
            seconds = float(value)  # type: ignore[arg-type]  # narrowed by its exact type
            if 0 < seconds < math.inf:
                return seconds
        raise ValueError(f"must be a positive number of seconds, not {shown(value)}")

    def parse(self, text: str) -> object:
        """See :class:`OutputKey`."""
        return self.check(float(text) if _DECIMAL.fullmatch(text) else text)


@dataclass(frozen=True, slots=True)
class ToolName:
    """A tool's name, or empty for none."""

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if isinstance(value, str) and _TOOL_NAME.fullmatch(value):
            return value
        raise ValueError(f"must be a tool's name or empty, not {shown(value)}")

    def parse(self, text: str) -> object:
        """See :class:`OutputKey`."""
        return self.check(text)


@dataclass(frozen=True, slots=True)
class Forms:
    """Names of text forms, none of them twice; none at all means every form."""

    known: Collection[str]

    def check(self, value: object) -> object:
        """See :class:`OutputKey`."""
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of form names, not {shown(value)}")
        for name in value:
            if not isinstance(name, str) or name not in self.known:
                hint = did_you_mean(name, self.known) if isinstance(name, str) else ""
                raise ValueError(f"unknown form {shown(name)}{hint}")
        if len(set(value)) < len(value):
            raise ValueError("names a form twice")
        return tuple(value)

    def parse(self, text: str) -> object:
        """Names apart by commas (``hermes, mistral``)."""
        names = [name.strip() for name in text.split(",")]
        return self.check([name for name in names if name])


OUTPUT_KEYS: Mapping[str, OutputKey] = MappingProxyType(
    {
        "buffer": Choice(get_args(Buffer)),
        "validate": Choice(get_args(Validate)),
        "recover": Flag(),
        "forms": Forms(FORM_NAMES),
        "repair": Flag(),
        "max_attempts": Whole(1, MAX_ATTEMPTS),
        "feedback": Flag(),
        "constrain_last_attempt": Flag(),
        "heal_history": Flag(),
        "strict": Flag(),
        "xml_completion_tool": ToolName(),
        "trace": Flag(),
        "heartbeat_s": Seconds(),
        "run_timeout_s": Seconds(),
        "max_held_bytes": Whole(MIN_HELD_BYTES, 1 << 40),
    }
)
