"""Text that comes in pieces: whether it is one whole JSON value by now, without reading it again.

A server that repeats a call's name with every fragment asks that at every fragment. Each character
is looked at once, and the text is joined once, when its first value has come to its end: what comes
behind that, blanks aside, can never make it JSON.
"""

import re

import orjson

_STRUCTURE = re.compile(r'["\\{}\[\]]')
_JSON_BLANKS = " \t\n\r"


class GrowingJson:
    """A feed machine.

    Attributes:
        pieces: all that came.
        has_text: whether any of it was more than blanks.
    """

    __slots__ = (
        "_blanks_after",
        "_blanks_before",
        "_chars",
        "_depth",
        "_escaped",
        "_in_string",
        "_scanned",
        "_verdict",
        "has_text",
        "pieces",
    )

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.has_text = False
        self._chars = 0
        self._blanks_before = 0
        self._blanks_after = 0
        self._scanned = 0
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._verdict: bool | None = None
        """Whether it was JSON when its first value had ended; None before."""

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        self.pieces.append(piece)
        self._chars += len(piece)
        kept = len(piece.rstrip())
        if kept:
            if not self.has_text:
                self._blanks_before += len(piece) - len(piece.lstrip())
            self.has_text = True
            self._blanks_after = len(piece) - kept
        elif self.has_text:
            self._blanks_after += len(piece)
        else:
            self._blanks_before += len(piece)

    def is_same(self, text: str) -> bool:
        """Whether it is this text, blanks at either end aside."""
        text = text.strip()
        chars = self._chars - self._blanks_before - self._blanks_after
        return len(text) == chars and text == "".join(self.pieces).strip()

    def is_whole(self) -> bool:
        """Whether it is one JSON object, array or string."""
        while self._scanned < len(self.pieces):
            piece = self.pieces[self._scanned]
            self._scanned += 1
            if self._verdict is None:
                self._scan(piece)
            elif self._verdict and piece.strip(_JSON_BLANKS):
                self._verdict = False
        return bool(self._verdict)

    def _scan(self, piece: str) -> None:
        skipped = 0 if self._escaped and piece else -1
        self._escaped = self._escaped and not piece
        for found in _STRUCTURE.finditer(piece):
            at = found.start()
            if at == skipped:
                continue
            mark = piece[at]
            if self._in_string:
                if mark == "\\":
                    skipped = at + 1
                    self._escaped = skipped == len(piece)
                elif mark == '"':
                    self._in_string = False
            elif mark == '"':
                self._in_string = True
            elif mark != "\\":
                self._depth += 1 if mark in "{[" else -1
            if self._depth <= 0 and not self._in_string and mark in '"}]':
                self._verdict = is_json("".join(self.pieces[: self._scanned]))
                return


def is_json(text: str) -> bool:
    """Whether a text is one JSON object, array or string."""
    if not text.rstrip().endswith(("}", "]", '"')):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
