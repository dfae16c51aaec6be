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
from edge.core.toolcalls.shapes import Data

_BARE_NAME = re.compile(rb"([A-Za-z_][\w.\-]{0,127})(?:([ \t]*\r?\n[ \t\r\n]{0,64})(\{)?)?")


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


class ArgumentsBlock:
    """The whole answer is one JSON object: the arguments of the one demanded tool."""

    def __init__(self, start: int, name: str, setting: Setting) -> None:
        self._start = start
        self._name = name
        self._setting = setting
        self._scanner = BracketScanner(start)
        self._whole = False

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if not self._whole:
            self._whole = self._scanner.advance(data, final=ending.is_final)
            if not self._whole:
                return self._cut(data, ending) if ending.is_final else None
        if bytes(data[self._scanner.at :]).strip():
            return NotACall(self._start + 1)
        if not ending.is_final:
            return None
        text = decode(data, self._start, self._scanner.at)
        parsed = parse_json(text, repair=self._setting.repair)
        if parsed.fault:
            return Calls(len(data), (malformed(self._name, text, parsed.fault),))
        if are_calls(parsed.value, self._setting.tools):
            return NotACall(self._start + 1)
        return Calls(len(data), (with_arguments(self._name, parsed.value, parsed.repairs),))

    def _cut(self, data: Data, ending: Ending) -> Outcome:
        text = decode(data, self._start)
        if ending is Ending.STOP and not parse_json(text).is_unfinished:
            return NotACall(self._start + 1)
        where = "inside its JSON arguments"
        return Calls(len(data), (unfinished(self._name, text, ending, where),))
