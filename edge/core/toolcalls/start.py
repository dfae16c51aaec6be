"""Calls that carry no marker and only count as the first thing of an answer.

- Functionary 3.2 without its first ``>>>``, which the prompt holds: ``NAME`` newline ``{json}``.
- The bare arguments object, where the request demands one certain tool.
"""

import re

from edge.core.contract import Contract
from edge.core.repair import parse_json
from edge.core.toolcalls.brackets import BracketScanner
from edge.core.toolcalls.call_objects import are_calls, with_arguments
from edge.core.toolcalls.found import (
    Calls,
    Ending,
    NotACall,
    Outcome,
    Setting,
    decode,
    malformed,
    unfinished,
)
from edge.core.toolcalls.shapes import SPACE, Data, Shape, maybe

_BARE_NAME = re.compile(rb"([A-Za-z_][\w.\-]{0,127})(?:([ \t]*\r?\n[ \t\r\n]{0,64})(\{)?)?")

_OPENING = Shape(maybe("```", maybe("json"), SPACE), "{")
ALL_PARTS = b"all\n"
_MAX_WAIT = 65536


def bare_name_at(data: Data, at: int, setting: Setting, *, final: bool) -> bool | None:
    """Whether an offered tool's name, a newline and a brace stand here; None: more is needed."""
    match = _BARE_NAME.match(data, at)
    if match is None:
        return False
    name = match.group(1).decode()
    if match.group(3):
        return name in setting.tools
    if final or match.end() < len(data):
        return False
    if match.group(2):
        return None if name in setting.tools else False
    return None if any(tool.startswith(name) for tool in setting.tools) else False


def demanded_tool(contract: Contract) -> str:
    """The one tool that must be called, empty where there is a choice."""
    names = contract.allowed or frozenset(contract.tools)
    if contract.tool_choice in ("named", "required") and len(names) == 1:
        return next(iter(names))
    return ""


class AllBlock:
    """Functionary's part for everybody, ``all`` newline text, without its first ``>>>``.

    The line is markup only if another part follows.
    """

    def __init__(self, start: int) -> None:
        self._start = start
        self._at = start

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return self._at

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if data.find(b"\n>>>", self._at) >= 0:
            return Calls(self._start + len(ALL_PARTS), ())
        self._at = max(self._at, len(data) - len(ALL_PARTS))
        if ending.is_final or len(data) - self._start > _MAX_WAIT:
            return NotACall(self._start + 1)
        return None


class ArgumentsBlock:
    """The whole answer is one JSON object, perhaps fenced: the arguments of the demanded tool."""

    def __init__(self, start: int, name: str, setting: Setting) -> None:
        self._start = start
        self._name = name
        self._setting = setting
        self._scanner: BracketScanner | None = None
        self._end = -1

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._end, self._scanner.at if self._scanner is not None else 0)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if self._scanner is None:
            if not ending.is_final and _OPENING.is_open(data, self._start):
                return None
            opening = _OPENING.match(data, self._start)
            if opening is None:
                return NotACall(self._start + 1)
            self._scanner = BracketScanner(opening.end() - 1)
        if self._end < 0:
            if not self._scanner.advance(data, final=ending.is_final):
                return self._cut(data, self._scanner, ending) if ending.is_final else None
            self._end = self._scanner.at
        while self._end < len(data) and data[self._end] in b" \t\r\n`":
            self._end += 1
        if self._end < len(data):
            return NotACall(self._start + 1)
        return self._read(data, self._scanner) if ending.is_final else None

    def _read(self, data: Data, scanner: BracketScanner) -> Outcome:
        text = decode(data, scanner.start, scanner.at)
        parsed = parse_json(text, repair=self._setting.repair)
        if parsed.fault:
            return Calls(len(data), (malformed(self._name, text, parsed.fault),))
        if are_calls(parsed.value, self._setting.tools):
            return NotACall(self._start + 1)
        return Calls(len(data), (with_arguments(self._name, parsed.value, parsed.repairs),))

    def _cut(self, data: Data, scanner: BracketScanner, ending: Ending) -> Outcome:
        text = decode(data, scanner.start)
        if ending is Ending.STOP and not parse_json(text).is_unfinished:
            return NotACall(self._start + 1)
        where = "inside its JSON arguments"
        return Calls(len(data), (unfinished(self._name, text, ending, where),))
