"""Finds where a bracketed value ends, without reading it, piece by piece.

Brackets inside strings do not count. Strings are JSON's or Python's (both quotes, triple quotes).
Each byte is looked at once, whatever the cuts; the value itself is decoded once, when it is whole.
"""

import re

from edge.core.lenient_json import MAX_DEPTH
from edge.core.toolcalls.shapes import Data

_OUTSIDE = re.compile(rb"[\"'{}\[\]()]")
_INSIDE = {b'"': re.compile(rb'[\\"]'), b"'": re.compile(rb"[\\']")}
_PAIRS = {b"}": b"{", b"]": b"[", b")": b"("}


class BracketScanner:
    """Looks for the bracket that closes the one at ``start``.

    Attributes:
        at: how far it has looked; behind the closing bracket once ``advance`` has said True.
    """

    __slots__ = ("_open", "_quote", "at", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.at = start
        self._open: list[bytes] = []
        self._quote = b""

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends inside a string."""
        return bool(self._quote)

    def advance(self, data: Data, *, final: bool = False) -> bool:
        """Look on; True once the closing bracket has been found."""
        while True:
            if self._quote:
                if not self._leave_string(data):
                    return False
                continue
            found = _OUTSIDE.search(data, self.at)
            if found is None:
                self.at = len(data)
                return False
            char = found.group()
            if char in b"\"'":
                if not self._enter_string(data, found.start(), char, final):
                    return False
                continue
            self.at = found.end()
            if char in b"{[(":
                self._open.append(char)
            elif self._closes(char):
                return True

    def _closes(self, char: bytes) -> bool:
        """Take a closing bracket; True if nothing is open any more.

        One that fits nothing open is passed over (a brace too many), one that fits an outer
        bracket closes what is open inside as well (a brace missing): the reader of the value
        judges both.
        """
        wanted = _PAIRS[char]
        if self._open and self._open[-1] == wanted:
            self._open.pop()
        elif len(self._open) <= MAX_DEPTH and wanted in self._open:
            while self._open.pop() != wanted:
                pass
        return not self._open

    def _enter_string(self, data: Data, at: int, char: bytes, final: bool) -> bool:
        """Note the kind of string that starts here; False if that cannot be told yet."""
        head = bytes(data[at : at + 3])
        if not final and len(head) < 3 and head == char * len(head):
            self.at = at
            return False
        self._quote = char * 3 if head == char * 3 else char
        self.at = at + len(self._quote)
        return True

    def _leave_string(self, data: Data) -> bool:
        """Look for the string's end; False if it is not there yet."""
        quote, inside = self._quote, _INSIDE[self._quote[:1]]
        while True:
            found = inside.search(data, self.at)
            if found is None:
                self.at = len(data)
                return False
            at = found.start()
            if found.group() == b"\\":
                if at + 1 >= len(data):
                    self.at = at
                    return False
                self.at = at + 2
            elif len(quote) == 1 or data[at : at + 3] == quote:
                self.at = at + len(quote)
                self._quote = b""
                return True
            elif at + 3 > len(data):
                self.at = at
                return False
            else:
                self.at = at + 1
