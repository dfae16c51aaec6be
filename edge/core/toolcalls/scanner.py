"""Walks over text and finds markers that count: outside code spans, fences and quote lines.

The scanner keeps no text. It is given the held bytes and where to go on, and says where the next
marker is, or from where text must be held back because it may still become one. Its memory is
what a line needs: whether it is blank so far, whether a code span or a quotation is open, and
whether we are inside a fence.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeAlias

from edge.core.toolcalls.lexicon import Kind, Lexicon, Token
from edge.core.toolcalls.shapes import Data

_NEWLINE, _TICK, _TILDE, _QUOTE, _LESS = b"\n`~><"
_RUN = re.compile(rb"`+|~+")
_TAG = re.compile(rb"<([A-Za-z_][\w.\-]{0,127})?(>)?")
_SPAN_END = re.compile(rb"[`\n]")
_WORD_CHARS = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_MAX_INDENT = 64
_FENCE_SIGN = re.compile("[`~]").search

Sieve: TypeAlias = Callable[[str], re.Match[str] | None]


@dataclass(frozen=True, slots=True)
class Stop:
    """Text up to ``at`` is plain text; there stands ``token``, or text to be held back (None)."""

    at: int
    token: Token | None = None
    on_own_line: bool = False


class Scanner:
    """Looks for the markers of one lexicon.

    ``tags`` are names that count as ``<NAME>`` (tools in the XML form), ``tag`` is their token.

    Attributes:
        in_word: whether the text that has gone by ends inside a word.
    """

    def __init__(
        self, lexicon: Lexicon, tags: Collection[str] = (), tag: Token | None = None
    ) -> None:
        self._lexicon = lexicon
        self._tags = frozenset(tags)
        self._tag = tag
        self._blank = True
        self._span = 0
        self._quoted = False
        self._fence: bytes = b""
        self.in_word = False

    def sieve(self) -> Sieve | None:
        """Finds what needs a look in a piece of text; None where every piece needs one."""
        if self._fence:
            return _FENCE_SIGN
        if self._blank or self._span or self._quoted:
            return None
        return self._lexicon.plain.search

    def next(self, data: Data, start: int, *, final: bool) -> Stop:
        """The next stop at or behind ``start``; at the end of ``data`` if there is none."""
        at = start
        lexicon = self._lexicon
        while True:
            careful = self._span or self._quoted
            found = (lexicon.careful if careful else lexicon.trigger).search(data, at)
            if found is None:
                return Stop(len(data))
            at = found.start()
            byte = data[at]
            if byte == _NEWLINE:
                self._span, self._quoted = 0, False
                at += 1
                continue
            blank = self._is_blank(data, start, at)
            if byte in (_TICK, _TILDE):
                end = self._ticks(data, at, blank, final)
                if isinstance(end, Stop):
                    return end
                at = end
                continue
            stop = self._marker(data, start, at, blank, final)
            if stop is not None:
                return stop
            if byte == _QUOTE and blank and not self._fence:
                self._quoted = True
            at += 1

    def passed(self, data: Data, start: int, end: int) -> None:
        """Text from ``start`` to ``end`` has gone by; keeps track of the line's beginning."""
        if end > start:
            self.in_word = data[end - 1] in _WORD_CHARS
        tail = bytes(data[max(start, end - _MAX_INDENT) : end]).rstrip(b" \t")
        if tail:
            self._blank = tail.endswith(b"\n")
        elif end - start > _MAX_INDENT:
            self._blank = False

    def passed_plain(self, text: str) -> None:
        """The same for text that went by without a look."""
        tail = text.rstrip(" \t")
        self._blank = tail.endswith("\n")
        self.in_word = text[-1].isascii() and (text[-1].isalnum() or text[-1] == "_")

    def new_line(self) -> None:
        """What comes next counts as the beginning of a line: a block has just ended."""
        self._blank, self._span, self._quoted, self.in_word = True, 0, False, False

    def open_fence(self, data: Data, at: int) -> int:
        """The fence at ``at`` is just code; returns where its content starts."""
        run = _RUN.match(data, at)
        if run is None:
            return at + 1
        self._fence = run.group()
        return run.end()

    def _is_blank(self, data: Data, start: int, at: int) -> bool:
        least = max(start, at - _MAX_INDENT)
        while at > least and data[at - 1] in b" \t":
            at -= 1
        if at == start:
            return self._blank
        return data[at - 1] == _NEWLINE

    def _ticks(self, data: Data, at: int, blank: bool, final: bool) -> "Stop | int":
        """A run of backticks or tildes: a fence's line, or the edge of a code span."""
        run = _RUN.match(data, at)
        if run is None or (run.end() == len(data) and not final):
            return Stop(at)
        ticks = run.group()
        if self._fence:
            if blank and ticks.startswith(self._fence):
                self._fence = b""
            return run.end()
        if blank and len(ticks) >= 3:
            token = self._lexicon.at(data, at)
            if token is not None:
                return Stop(at, token, on_own_line=True)
            self._fence = ticks
        elif ticks[0] == _TICK:
            if not self._span:
                self._span = len(ticks)
            elif self._span == len(ticks):
                self._span = 0
        return run.end()

    def _marker(self, data: Data, start: int, at: int, blank: bool, final: bool) -> Stop | None:
        """The marker at ``at``, or a place to hold text back from, if it counts here."""
        lexicon = self._lexicon
        if self._fence or self._quoted:
            return None
        if not final and lexicon.may_grow(data, at, blank=blank):
            return None if self._inside_word(data, start, at) else Stop(at)
        token = lexicon.at(data, at)
        if token is None:
            return self._tag_at(data, at, blank, final)
        if self._span or (token.on_own_line and not blank) or self._inside_word(data, start, at):
            return None
        if token.glance is not None and token.glance.match(data, at) is None:
            return None
        return Stop(at, token, blank)

    def _inside_word(self, data: Data, start: int, at: int) -> bool:
        """Whether a marker that is a word would start within a longer word."""
        if data[at] not in _WORD_CHARS:
            return False
        return data[at - 1] in _WORD_CHARS if at > start else self.in_word

    def _tag_at(self, data: Data, at: int, blank: bool, final: bool) -> Stop | None:
        if not self._tags or data[at] != _LESS or self._span:
            return None
        match = _TAG.match(data, at)
        name = (match.group(1) or b"").decode() if match else ""
        if match and match.group(2):
            return Stop(at, self._tag, blank) if name in self._tags else None
        if match and match.end() == len(data) and not final:
            return Stop(at) if any(tag.startswith(name) for tag in self._tags) else None
        return None


class ThinkingScanner(Scanner):
    """A scanner for inside reasoning, which a closing tag ends wherever it stands.

    Models leave fences and code spans open when they stop thinking; only a closing tag in a code
    span that ends on its line is a mention.
    """

    def sieve(self) -> Sieve | None:
        """See :class:`Scanner`; inside a fence a closing tag needs a look as well."""
        return None if self._fence else super().sieve()

    def _marker(self, data: Data, start: int, at: int, blank: bool, final: bool) -> Stop | None:
        if (self._fence or self._quoted or self._span) and data[at] in b"<[":
            if not final and self._lexicon.may_grow(data, at, blank=blank):
                return Stop(at)
            token = self._lexicon.at(data, at)
            if token is None or token.kind is not Kind.THINK_CLOSE:
                return None
            if self._span:
                end = _SPAN_END.search(data, at)
                if end is None:
                    return Stop(at, token, blank) if final else Stop(at)
                if end.group() == b"`":
                    return None
            return Stop(at, token, blank)
        return super()._marker(data, start, at, blank, final)
