"""Forms that write each parameter as text between tags; the tool's schema gives the types.

    [wrapper]  call  (parameter  VALUE  value_close)*  call_close  [closer]

How such a form looks, and where a value ends, is in ``tagged_grammar.py``; here is the walk over
one block, from structure to structure.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from edge.core import schema_view
from edge.core.repair import parse_json, to_json
from edge.core.toolcalls.brackets import BracketScanner
from edge.core.toolcalls.elements import nested
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
from edge.core.toolcalls.shapes import Data
from edge.core.toolcalls.tagged_grammar import Grammar, TaggedForm, ValueScanner, grammar
from edge.core.toolcalls.typed_values import typed

_WRAPPING_KEYS = frozenset({"arguments", "input"})
_CDATA = b"<![CDATA["
_BLANK = b" \t\r\n"
_OPENED = re.compile(r"^<parameter=([^>\n]+)>$", re.MULTILINE)


class Tagged:
    """A row of the registry for a tagged form."""

    def __init__(self, form: TaggedForm) -> None:
        self.form = form
        self.name = form.name
        self.openers = form.openers
        self.closers = form.closers

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return TaggedBlock(self.form, start, opener, setting)


class TaggedBlock:
    """Reads one block of a :class:`TaggedForm`."""

    def __init__(self, form: TaggedForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._setting = setting
        self._start = start
        self._is_wrapped = opener in form.wrappers
        self._at = start + (len(opener.encode()) if self._is_wrapped else 0)
        self._end = self._at
        self._rules: Grammar = grammar(form, "", self._is_wrapped)
        self._calls: list[FoundCall] = []
        # The function, not the bound method: that would be a cycle of references.
        self._step: Callable[[TaggedBlock, Data, Ending], Outcome | None] = TaggedBlock._expect_call
        self._call = _OpenCall("", {})
        self._key, self._string = "", ""
        self._value = ValueScanner(self._rules, "", start)
        self._json = BracketScanner(start)
        self._stray_at = -1
        self._scan = 0

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._at, self._scan, self._value.reach, self._json.at)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        while True:
            step = self._step
            outcome = step(self, data, ending)
            if outcome is not None or self._step is step:
                return outcome

    def _expect_call(self, data: Data, ending: Ending) -> Outcome | None:
        """Between calls: another one, the closer, or the end of the block."""
        rules = self._rules
        if not ending.is_final and rules.call.is_open(data, self._at):
            return None
        match = rules.call.match(data, self._at)
        if match is not None:
            return self._begin_call(data, decode(match.group("name")).strip(), match.end())
        if self._calls and rules.closer is not None:
            closer = rules.closer.match(data, self._at)
            if closer is not None:
                return Calls(closer.end(), tuple(self._calls))
            if not ending.is_final and rules.closer.is_open(data, self._at):
                return None
        return self._over(data, ending)

    def _over(self, data: Data, ending: Ending) -> Outcome:
        """No more calls, and no closer."""
        if not self._calls:
            cut = ending is Ending.CUT and self._is_wrapped and _is_blank(data, self._at)
            return self._cut(data, ending, self._at) if cut else NotACall(self._start + 1)
        if ending is Ending.CUT and self._is_wrapped:
            self._calls.append(unfinished("", "", ending, "inside a block of calls"))
        owed = self._form.closers[0].encode() if self._is_wrapped else b""
        return Calls(self._end, tuple(self._calls), owed)

    def _begin_call(self, data: Data, written: str, end: int) -> Outcome | None:
        name = offered(written, self._setting.tools)
        if not self._is_wrapped and name not in self._setting.tools:
            return self._over(data, Ending.OPEN)
        self._rules = grammar(self._form, written, self._is_wrapped)
        self._call = _OpenCall(name, self._schema_of(name))
        self._at = end
        self._stray_at = -1
        self._step = TaggedBlock._expect_parameter
        return None

    def _expect_parameter(self, data: Data, ending: Ending) -> Outcome | None:
        """Inside a call: another parameter, or the end of the call."""
        rules = self._rules
        match = rules.parameter.match(data, self._at)
        if match is not None:
            self._begin_value(match)
            return None
        if not ending.is_final and rules.may_grow(data, self._at):
            return None
        end = rules.end_of_call(data, self._at)
        if end is not None:
            if end == self._at and rules.call_end is not None:
                self._call.repairs += ("missing_closer",)
            return self._end_call(end)
        at = _skip_blank(data, self._at)
        if self._form.bare_json and not self._call.arguments and data[at : at + 1] == b"{":
            self._json = BracketScanner(at)
            self._step = TaggedBlock._read_json
            return None
        if at == len(data):
            return self._ends_between(data, ending) if ending.is_final else None
        if self._is_prose() and not data.startswith(self._form.parameter_start.encode(), at):
            return NotACall(self._start + 1)
        self._stray_at = self._scan = at
        self._step = TaggedBlock._pass_stray
        return None

    def _is_prose(self) -> bool:
        """Whether text behind a call's opening shows that it is none: nothing of it fits so far."""
        if self._call.arguments or self._calls:
            return False
        is_in_line = not self._is_wrapped and not self._setting.on_own_line
        return self._rules.call_end is None or is_in_line

    def _pass_stray(self, data: Data, ending: Ending) -> Outcome | None:
        """Text where a parameter is due: look for where structure goes on."""
        rules = self._rules
        known = ", ".join(self._call.properties) or "none"
        self._call.fault = f"it has text outside its parameters (it takes: {known})"
        while True:
            found = rules.landmark.search(data, self._scan)
            if found is None:
                self._scan = max(self._scan, len(data) - 256)
                return self._ends_stray(data, ending) if ending.is_final else None
            self._scan = at = found.start()
            if rules.parameter.match(data, at) or rules.end_of_call(data, at) is not None:
                self._at = at
                self._step = TaggedBlock._expect_parameter
                return None
            if not ending.is_final and rules.may_grow(data, at):
                return None
            self._scan = at + 1

    def _ends_stray(self, data: Data, ending: Ending) -> Outcome:
        if not self._is_wrapped and not self._call.arguments:
            return NotACall(self._start + 1)
        if ending is Ending.CUT:
            return self._cut(data, ending, self._stray_at)
        text = decode(data, self._stray_at)
        self._calls.append(malformed(self._call.name, text, self._call.fault))
        return Calls(len(data), tuple(self._calls))

    def _read_json(self, data: Data, ending: Ending) -> Outcome | None:
        """All arguments as one JSON object in place of parameters."""
        scanner = self._json
        if not scanner.advance(data, final=ending.is_final):
            return self._cut(data, ending, scanner.start) if ending.is_final else None
        text = decode(data, scanner.start, scanner.at)
        parsed = parse_json(text, repair=self._setting.repair)
        self._call.arguments = parsed.value if isinstance(parsed.value, dict) else {}
        self._call.repairs += parsed.repairs
        self._call.fault = parsed.fault
        self._at = scanner.at
        self._step = TaggedBlock._expect_parameter
        return None

    def _begin_value(self, match: Any) -> None:
        groups = match.groupdict()
        self._key = decode(groups["key"]).strip()
        self._string = decode(groups.get("string") or b"").lower()
        self._value = ValueScanner(self._rules, self._key, match.end())
        self._at = match.end()
        self._step = TaggedBlock._read_value

    def _read_value(self, data: Data, ending: Ending) -> Outcome | None:
        head = bytes(data[self._at : self._at + len(_CDATA)])
        if _CDATA.startswith(head) and len(head) < len(_CDATA) and not ending.is_final:
            return None
        if head == _CDATA and self._value.behind == self._at:
            close = "]]>" + self._form.value_close.replace("{key}", self._key)
            self._value = ValueScanner(self._rules, self._key, self._at + len(_CDATA), close)
        if not self._value.advance(data, final=ending.is_final):
            return self._ends_inside(data, ending) if ending.is_final else None
        start = self._at + (len(_CDATA) if head == _CDATA else 0)
        self._take_value(decode(data, start, self._value.at), as_is=head == _CDATA)
        self._at = self._value.behind
        self._step = TaggedBlock._expect_parameter
        return None

    def _ends_inside(self, data: Data, ending: Ending) -> Outcome:
        text = decode(data, self._at)
        name = self._call.name
        self._calls.append(unfinished(name, text, ending, f"inside parameter {self._key}"))
        return Calls(len(data), tuple(self._calls))

    def _take_value(self, text: str, *, as_is: bool) -> None:
        call, key = self._call, self._key
        if key in call.arguments:
            call.fault = f"parameter {key} is there twice"
            return
        if not as_is:
            text = self._laid_out(text)
            if self._form.layout == "line":
                call.swallowed += [(key, inner) for inner in _OPENED.findall(text)]
        schema = schema_view.property_schema(key, call.schema, call.schema)
        if as_is or self._string == "true":
            value: Any = text
        elif self._string == "false":
            parsed = parse_json(text, repair=self._setting.repair)
            value = text if parsed.fault else parsed.value
            call.repairs += parsed.repairs
            if parsed.fault:
                call.fault = f"parameter {key} is no sound JSON: {parsed.fault}"
        else:
            value, repairs = typed(text, schema, call.schema, repair=self._setting.repair)
            call.repairs += repairs
            if value is text and text.lstrip()[:1] == "<":
                value = nested(text, schema, call.schema)
        call.arguments[key] = value

    def _laid_out(self, text: str) -> str:
        """The value without what its form's layout adds."""
        if self._form.layout == "trim":
            return text.strip()
        if self._form.layout == "line":
            text = text[2:] if text.startswith("\r\n") else text.removeprefix("\n")
            return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
        return text

    def _end_call(self, end: int) -> Outcome | None:
        self._note_call()
        self._at = self._end = end
        self._step = TaggedBlock._expect_call
        return None

    def _note_call(self) -> None:
        call = self._call
        if self._form.unwraps:
            call.unwrap(repair=self._setting.repair)
        self._calls.append(call.found())

    def _ends_between(self, data: Data, ending: Ending) -> Outcome:
        """The answer is over inside a call, but not inside a value."""
        is_bare = not self._call.arguments and not self._call.fault
        if is_bare and (not self._is_wrapped or self._call.name not in self._setting.tools):
            return NotACall(self._start + 1)
        if ending is Ending.CUT:
            return self._cut(data, ending, self._at)
        self._call.repairs += ("missing_closer",)
        self._note_call()
        return Calls(len(data), tuple(self._calls))

    def _cut(self, data: Data, ending: Ending, at: int) -> Outcome:
        text = to_json(self._call.arguments) if self._call.arguments else decode(data, at)
        self._calls.append(unfinished(self._call.name, text, ending, "between its parameters"))
        return Calls(len(data), tuple(self._calls))

    def _schema_of(self, name: str) -> Mapping[str, Any]:
        tool = self._setting.tools.get(name)
        return tool.parameters if tool is not None else {}


class _OpenCall:
    """The call being read."""

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.schema = schema
        self.arguments: dict[str, Any] = {}
        self.repairs: tuple[str, ...] = ()
        self.fault = ""
        self.swallowed: list[tuple[str, str]] = []

    @property
    def properties(self) -> Iterable[str]:
        """Names of the tool's parameters."""
        known = schema_view.resolve(self.schema, self.schema).get("properties")
        return list(known) if isinstance(known, Mapping) else []

    def unwrap(self, *, repair: bool) -> None:
        """One parameter called ``arguments`` that holds them all."""
        if len(self.arguments) != 1:
            return
        ((key, value),) = self.arguments.items()
        if key not in _WRAPPING_KEYS or key in self.properties:
            return
        if isinstance(value, str):
            value = parse_json(value, repair=repair).value
        if isinstance(value, dict):
            self.arguments = value
            self.repairs += ("wrapped_arguments",)

    def found(self) -> FoundCall:
        """The call as it is handed back."""
        for outer, inner in self.swallowed:
            if inner in self.properties and inner not in self.arguments and not self.fault:
                self.fault = f"parameter {outer} is not closed before parameter {inner} opens"
        if self.fault:
            return malformed(self.name, to_json(self.arguments), self.fault)
        return sound(self.name, self.arguments, self.repairs)


def _skip_blank(data: Data, at: int) -> int:
    while at < len(data) and data[at] in _BLANK:
        at += 1
    return at


def _is_blank(data: Data, at: int) -> bool:
    return _skip_blank(data, at) == len(data)
