"""Forms that write calls in Python's syntax: ``[NAME(K=V), …]``, marked or not.

The end is found by a scan that knows strings and brackets, then the whole is read once as data.
"""

import re
from dataclasses import dataclass

from edge.core.lenient_json import JsonFault
from edge.core.repair import describe
from edge.core.toolcalls.brackets import BracketScanner
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
from edge.core.toolcalls.literals import PythonReader
from edge.core.toolcalls.shapes import SPACE, Data, Shape, either

_LIST = re.compile(rb"\[[ \t\r\n]{0,512}")
_CALL_NAME = re.compile(rb"([A-Za-z_][\w.\-]{0,127})?([ \t]{0,64}\()?")
_BETWEEN = re.compile(rb"[ \t\r\n,;]*")


@dataclass(frozen=True, slots=True, eq=False)
class PythonicForm:
    """One pythonic form.

    Attributes:
        openers: markers, or the list's bracket itself where there are none.
        closers: markers behind the calls.
        unmarked: whether nothing but an offered name shows that a call is meant.
    """

    name: str
    openers: tuple[str, ...]
    closers: tuple[str, ...] = ()
    unmarked: bool = False

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return PythonicBlock(self, start, opener, setting)


class PythonicBlock:
    """Reads a list of calls, or bare calls, up to the closer."""

    def __init__(self, form: PythonicForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._setting = setting
        self._start = start
        self._at = start + (0 if form.unmarked else len(opener.encode()))
        self._scanner: BracketScanner | None = None
        self._from = self._at
        self._calls: list[FoundCall] = []
        self._closer = Shape(SPACE, either(*form.closers)) if form.closers else None

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._at, self._scanner.at if self._scanner is not None else 0)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        while True:
            if self._scanner is None:
                outcome = self._begin(data, ending)
                if outcome is not None or self._scanner is None:
                    return outcome
            if not self._scanner.advance(data, final=ending.is_final):
                return self._ends_inside(data, ending) if ending.is_final else None
            outcome = self._whole(data, self._scanner.at)
            if outcome is not None:
                return outcome
            self._at = self._scanner.at
            self._scanner = None

    def _begin(self, data: Data, ending: Ending) -> Outcome | None:
        """Where a list or a call is due; also behind one, where the closer may stand."""
        if self._closer is not None and self._calls:
            closer = self._closer.match(data, self._at)
            if closer is not None:
                return Calls(closer.end(), tuple(self._calls))
            if not ending.is_final and self._closer.is_open(data, self._at):
                return None
        between = _BETWEEN.match(data, self._at)
        at = between.end() if between else self._at
        is_call = self._starts_call(data, at, ending)
        if is_call is None:
            return None
        if is_call:
            self._from = at
            self._scanner = BracketScanner(data.index(b"[" if data[at] == 0x5B else b"(", at))
            return None
        if not self._calls:
            if ending is Ending.CUT and at == len(data) and not self._form.unmarked:
                return Calls(at, (unfinished("", "", ending, "before its arguments"),))
            return NotACall(self._start + 1)
        return self._over(ending)

    def _starts_call(self, data: Data, at: int, ending: Ending) -> bool | None:
        """Whether a call, or a list that starts with one, stands here; None: more is needed."""
        if self._form.unmarked and self._calls:
            return False
        bracket = _LIST.match(data, at)
        name = _CALL_NAME.match(data, bracket.end() if bracket else at)
        if name is None or (name.group(1) is None and (name.group(2) or name.end() < len(data))):
            return False
        word = decode(name.group(1) or b"")
        if name.group(2) is None:
            if ending.is_final or name.end() < len(data):
                return False
            tools = self._setting.tools
            likely = not self._form.unmarked or any(tool.startswith(word) for tool in tools)
            return None if likely else False
        return not self._form.unmarked or word in self._setting.tools

    def _over(self, ending: Ending) -> Outcome:
        if ending is Ending.CUT and self._closer is not None:
            self._calls.append(unfinished("", "", ending, "inside a block of calls"))
        owed = self._form.closers[0].encode() if self._form.closers else b""
        return Calls(self._at, tuple(self._calls), owed)

    def _whole(self, data: Data, end: int) -> Outcome | None:
        """Read the calls up to ``end``; an outcome only if the block ends here."""
        text = decode(data, self._from, end)
        calls, fault = self._read(text)
        if fault is None:
            self._calls += calls
            return Calls(end, tuple(self._calls)) if self._form.unmarked else None
        if self._form.unmarked and not self._is_meant(fault):
            return NotACall(end)
        name = calls[-1].name if calls else ""
        self._calls += calls[:-1]
        self._calls.append(malformed(name, text, self._explain(name, fault, text)))
        return Calls(end, tuple(self._calls)) if self._form.unmarked else None

    def _read(self, text: str) -> tuple[list[FoundCall], JsonFault | None]:
        """The calls in ``text``; with a fault, the last one is the call it is in."""
        reader = PythonReader(text)
        calls: list[FoundCall] = []
        is_list = text.startswith("[")
        reader.position = 1 if is_list else 0
        while reader.skip_space() not in ("]", "") or not calls:
            at = reader.position
            reader.repairs = {}
            try:
                written, arguments = reader.call()
            except JsonFault as fault:
                word = text[at:].split("(")[0].strip()
                calls.append(FoundCall(offered(word, self._setting.tools), text[at:]))
                return calls, fault
            name = offered(written, self._setting.tools)
            # Python's own spellings are this form's own; only what it had to forgive is a repair.
            repairs = tuple(repair for repair in reader.repairs if repair != "python_literal")
            calls.append(sound(name, arguments, repairs))
            if reader.skip_space() in (",", ";"):
                reader.position += 1
        return calls, None

    def _is_meant(self, fault: JsonFault) -> bool:
        """Whether an unmarked list that cannot be read is a failed call, rather than prose."""
        return self._setting.on_own_line or fault.kind == "duplicate_key"

    def _explain(self, name: str, fault: JsonFault, text: str) -> str:
        why = describe(fault, text).replace("not sound JSON: ", "").replace(" JSON", "")
        tool = self._setting.tools.get(name)
        known = list(tool.parameters.get("properties") or ()) if tool is not None else []
        takes = f"; it takes: {', '.join(known)}" if known else ""
        return f"{why}{takes}"

    def _ends_inside(self, data: Data, ending: Ending) -> Outcome:
        """The answer is over inside a list or a call."""
        text = decode(data, self._from)
        calls, fault = self._read(text)
        only_bracket = fault is None and text.startswith("[")
        if only_bracket and ending is Ending.STOP:
            found = tuple(
                FoundCall(call.name, call.arguments, ("missing_closer",)) for call in calls
            )
            return Calls(len(data), (*self._calls, *found))
        name = calls[-1].name if calls else ""
        if fault is not None and fault.kind != "unfinished" and ending is Ending.STOP:
            if self._form.unmarked and not self._is_meant(fault):
                return NotACall(self._start + 1)
            self._calls.append(malformed(name, text, self._explain(name, fault, text)))
        else:
            self._calls.append(unfinished(name, text, ending, "inside its arguments"))
        return Calls(len(data), tuple(self._calls))
