"""Patterns that know whether more text could still complete them.

Model text comes in pieces, so behind every marker there are three answers: it is there, it cannot
be there, or one must wait. A :class:`Shape` is built from small parts and compiled to two regular
expressions, one for the whole and one for every beginning of it:

    HEAD = Shape(SPACE, "<function=", NAME, ">")
    HEAD.match(data, at)      → the match, or None
    HEAD.is_open(data, at)    → whether all of data[at:] is a beginning of the shape

Parts are bounded in length (white space, names), so a test costs a bounded time at any place.
Shapes work on the UTF-8 bytes that the reader holds.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

Data: TypeAlias = bytes | bytearray

_CHARACTER_ENDS = r"(?![\x80-\xbf])"
"""No byte follows that goes on with a character."""


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a shape: the expression of the whole, and that of its beginnings."""

    whole: str
    start: str


def literal(text: str) -> Part:
    """Exactly this text."""
    start = ""
    for char in reversed(text):
        for byte in reversed(char.encode()):
            start = f"(?:{_escape(byte)}{start})?"
    return Part("".join(_escape(byte) for byte in text.encode()), start)


def chars(expression: str, least: int = 0, most: int = 256) -> Part:
    """A run of one character class, of so many bytes; it never ends inside a character."""
    return Part(f"{expression}{{{least},{most}}}{_CHARACTER_ENDS}", f"{expression}{{0,{most}}}")


def group(name: str, *parts: "Part | str") -> Part:
    """A named group around parts."""
    inside = _sequence(parts)
    return Part(f"(?P<{name}>{inside.whole})", inside.start)


def maybe(*parts: "Part | str") -> Part:
    """These parts or nothing."""
    inside = _sequence(parts)
    return Part(f"(?:{inside.whole})?", f"(?:{inside.start})?")


def either(*options: "Part | str") -> Part:
    """One of the options, the first that fits."""
    parts = [_part(option) for option in options]
    return Part(
        f"(?:{'|'.join(part.whole for part in parts)})",
        f"(?:{'|'.join(part.start for part in parts)})",
    )


def sequence(*parts: "Part | str") -> Part:
    """These parts one after another."""
    return _sequence(parts)


SPACE = chars(r"[ \t\r\n]", 0, 512)
BLANKS = chars(r"[ \t]", 0, 64)
NAME = chars(r"[^\s<>\[\]{}()\"'`|=,;:]", 1, 256)
"""A tool's or parameter's name: no brackets, quotes, blanks or marker characters."""


class Shape:
    """A sequence of parts (text stands for itself)."""

    __slots__ = ("_start", "_whole")

    def __init__(self, *parts: Part | str) -> None:
        inside = _sequence(parts)
        self._whole = re.compile(inside.whole.encode("latin-1"))
        self._start = re.compile(f"(?:{inside.start})\\Z".encode("latin-1"))

    def match(self, data: Data, at: int) -> re.Match[bytes] | None:
        """The shape at ``at``, whole."""
        return self._whole.match(data, at)

    def is_open(self, data: Data, at: int) -> bool:
        """Whether ``data[at:]`` is a beginning of the shape, which more text could complete."""
        return self._start.match(data, at) is not None


def _part(part: Part | str) -> Part:
    return literal(part) if isinstance(part, str) else part


def _sequence(given: tuple[Part | str, ...]) -> Part:
    parts = [_part(part) for part in given]
    whole = "".join(part.whole for part in parts)
    # A beginning is: some parts whole, then a beginning of the next one.
    start = ""
    for part in reversed(parts):
        start = f"(?:{_unnamed(part.whole)}{start}|{part.start})" if start else part.start
    return Part(whole, start or "")


def _unnamed(expression: str) -> str:
    """The expression without group names, which may occur once only."""
    return re.sub(r"\(\?P<\w+>", "(?:", expression)


def _escape(byte: int) -> str:
    return re.escape(chr(byte)) if byte < 128 else f"\\x{byte:02x}"
