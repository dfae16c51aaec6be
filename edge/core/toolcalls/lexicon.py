"""The markers a scan looks for, compiled once for each choice of forms.

A lexicon answers three questions about a place in the text: can a marker start here at all (one
search with a small character class), which marker is here, and is what stands at the end of the
text the beginning of one.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from edge.core.toolcalls.found import Block, Setting
from edge.core.toolcalls.shapes import Data


class Kind(Enum):
    """What a marker does."""

    CALL = "may start a call"
    THINK_OPEN = "opens reasoning"
    THINK_CLOSE = "closes reasoning"
    SILENT = "is markup that is no text"
    END = "ends the turn, if nothing follows"
    WRAPPER = "stands around the answer, if reasoning has just ended"
    CLOSER = "closes a call whose closer did not come in its place"
    MESSAGES = "starts a message of a channelled answer"


class Form(Protocol):
    """A row of the registry."""

    @property
    def name(self) -> str:
        """What configuration and ``ToolCallDelta.origin`` call it."""
        ...

    @property
    def openers(self) -> tuple[str, ...]:
        """Markers that may start a block."""
        ...

    @property
    def closers(self) -> tuple[str, ...]:
        """Markers that end a block."""
        ...

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        ...


@dataclass(frozen=True, slots=True)
class Token:
    """A marker.

    Attributes:
        forms: for ``CALL``, the forms that it may start, in the order they are tried.
        closes: for ``CALL``, the markers that close it (empty: it has none).
        on_own_line: whether it only counts as the first thing on its line.
        glance: what has to stand there for a closer look to be worth it; None: always.
    """

    text: str
    kind: Kind
    forms: tuple[Form, ...] = ()
    closes: tuple[str, ...] = ()
    on_own_line: bool = False
    glance: re.Pattern[bytes] | None = None


class Lexicon:
    """A set of markers.

    Attributes:
        trigger: finds the next byte at which a marker or a mention may start.
        careful: the same, and line ends.
        plain: for text as ``str``: whether there is any such place.
        longest: bytes of the longest marker.
    """

    def __init__(self, tokens: Iterable[Token]) -> None:
        self.tokens = {token.text.encode(): token for token in tokens}
        ordered = sorted(self.tokens, key=len, reverse=True)
        self.longest = max(map(len, ordered), default=1)
        self._any = re.compile(b"|".join(map(re.escape, ordered)) or b"(?!)")
        self._starts = _beginnings(t for t, token in self.tokens.items() if not token.on_own_line)
        self._line_starts = _beginnings(t for t, token in self.tokens.items() if token.on_own_line)
        words = [text for text in self.tokens if text[:1].isalnum()]
        signs = {text.decode()[0] for text in self.tokens if not text[:1].isalnum()} | set("`~>")
        self.trigger = re.compile(_trigger(signs, words, ""))
        self.careful = re.compile(_trigger(signs, words, "\n"))
        self.plain = re.compile(_trigger(signs, words, "").decode())

    def at(self, data: Data, at: int) -> Token | None:
        """The longest marker at ``at``."""
        match = self._any.match(data, at)
        return None if match is None else self.tokens[match.group()]

    def may_grow(self, data: Data, at: int, *, blank: bool = True) -> bool:
        """Whether ``data[at:]`` is the beginning of a (longer) marker.

        ``blank`` says that nothing stands before it on its line.
        """
        if len(data) - at >= self.longest:
            return False
        rest = bytes(data[at:])
        return rest in self._starts or (blank and rest in self._line_starts)

    def growing(self, data: Data, at: int) -> Token | None:
        """A marker that ``data[at:]`` is the beginning of."""
        rest = bytes(data[at:])
        return next((self.tokens[text] for text in self.tokens if text.startswith(rest)), None)


def _beginnings(texts: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(text[:size] for text in texts for size in range(1, len(text)))


def _trigger(signs: set[str], words: list[bytes], more: str) -> bytes:
    """One class for markers that start with a sign; words are spelled out, and their beginnings.

    A word's first letter alone would be found all over plain text.
    """
    branches = ["[" + "".join(re.escape(sign) for sign in sorted(signs)) + more + "]"]
    for word in words:
        text = word.decode()
        cut = ""
        for char in reversed(text[1:-1]):
            cut = f"(?:{re.escape(char)}{cut})?"
        branches += [re.escape(text), f"{re.escape(text[0])}{cut}\\Z"]
    return "|".join(branches).encode()
