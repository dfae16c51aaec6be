"""Gemma's calls: ``call:NAME{K:V, …}`` between markers, strings between delimiters of their own."""

import re
from dataclasses import dataclass

from edge.core.lenient_json import JsonFault
from edge.core.repair import describe
from edge.core.toolcalls.found import (
    Block,
    Calls,
    Ending,
    FoundCall,
    NotACall,
    Outcome,
    Setting,
    decode,
    malformed,
    offered,
    sound,
    unfinished,
)
from edge.core.toolcalls.literals import GemmaReader
from edge.core.toolcalls.shapes import NAME, SPACE, Data, Shape, either, group, maybe

_HEAD = Shape(SPACE, maybe("call:"), SPACE, group("name", NAME), SPACE)


@dataclass(frozen=True, slots=True, eq=False)
class GemmaForm:
    """One form of this syntax; ``bare`` openers count only with an offered name behind them."""

    name: str
    openers: tuple[str, ...]
    closers: tuple[str, ...]
    delimiter: str
    bare: tuple[str, ...] = ()

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return GemmaBlock(self, start, opener, setting)


class GemmaBlock:
    """Reads one call (the marker is repeated for each)."""

    def __init__(self, form: GemmaForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._setting = setting
        self._start = start
        self._is_bare = opener in form.bare
        self._at = start + len(opener.encode())
        self._body = -1
        self._name = ""
        self._depth = 0
        self._inside = False
        self._edge = re.compile(rb"[{}()\[\]]|" + re.escape(form.delimiter.encode()))
        self._delimiter = form.delimiter.encode()
        self._closer = Shape(SPACE, either(*form.closers))

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return self._at

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if self._body < 0:
            outcome = self._head(data, ending)
            if outcome is not None or self._body < 0:
                return outcome
        if self._depth >= 0 and not self._scan(data):
            return self._ends_inside(data, ending) if ending.is_final else None
        self._depth = -1
        closer = self._closer.match(data, self._at)
        if closer is None and not ending.is_final and self._closer.is_open(data, self._at):
            return None
        call = self._read(decode(data, self._body, self._at))
        if closer is not None:
            return Calls(closer.end(), (call,))
        if ending is Ending.CUT and not self._is_bare and self._at == len(data):
            where = "before its closing marker"
            return Calls(self._at, (unfinished(call.name, call.arguments, ending, where),))
        return Calls(self._at, (call,), self._form.closers[0].encode())

    def _head(self, data: Data, ending: Ending) -> Outcome | None:
        if not ending.is_final and _HEAD.is_open(data, self._at):
            return None
        head = _HEAD.match(data, self._at)
        if head is None or data[head.end() : head.end() + 1] not in (b"{", b"("):
            if ending is Ending.CUT and not self._is_bare and _HEAD.is_open(data, self._at):
                cut = unfinished("", decode(data, self._at), ending, "before its arguments")
                return Calls(len(data), (cut,))
            return NotACall(self._start + 1)
        self._name = offered(decode(head.group("name")), self._setting.tools)
        if self._is_bare and self._name not in self._setting.tools:
            return NotACall(self._start + 1)
        self._body = self._at = head.end()
        return None

    def _scan(self, data: Data) -> bool:
        """Look for the closing bracket; True once it has been found."""
        while True:
            found = self._edge.search(data, self._at)
            if found is None:
                self._at = max(self._at, len(data) - len(self._delimiter) + 1)
                return False
            self._at = found.end()
            char = found.group()
            if char == self._delimiter:
                self._inside = not self._inside
            elif not self._inside:
                self._depth += 1 if char in b"{([" else -1
                if self._depth <= 0:
                    return True

    def _read(self, text: str) -> FoundCall:
        try:
            value = GemmaReader(text, self._form.delimiter).arguments()
        except JsonFault as fault:
            return malformed(self._name, text, describe(fault, text))
        return sound(self._name, value)

    def _ends_inside(self, data: Data, ending: Ending) -> Outcome:
        text = decode(data, self._body)
        call = self._read(text)
        if ending is Ending.CUT or not call.fault:
            call = unfinished(self._name, text, ending, "inside its arguments")
        return Calls(len(data), (call,))
