"""Forms whose payload is JSON between markers: most families.

    opener  head  payload  [closer]                 Hermes, Granite, Phi-4, Mistral, Functionary…
    opener  (begin  head  payload  [end])*  closer  Kimi K2, DeepSeek: a section of calls

The payload is one JSON object or list (or several behind each other) that holds name and arguments,
or, where the head names the tool, the arguments alone. Its end is found by a scan that knows
strings, so that braces, markers and fences inside strings do not count; then it is decoded once.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from edge.core.repair import Parsed, parse_json
from edge.core.toolcalls.brackets import BracketScanner
from edge.core.toolcalls.call_objects import are_calls, calls_in, with_arguments
from edge.core.toolcalls.found import (
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
from edge.core.toolcalls.shapes import SPACE, Data, Part, Shape, either, maybe

_NAMED = re.compile(r"""["'](?:name|tool_name|function)["']\s*:\s*["']([^"'\\]{1,256})["']""")
_ARGUMENTS = re.compile(r"""["'](?:arguments|parameters|args)["']\s*:\s*""")
_ANY_SPACE = Shape(SPACE)


@dataclass(frozen=True, slots=True)
class JsonForm:
    """One JSON form.

    Attributes:
        openers: markers that start a block.
        head: what stands between opener (or ``begins``) and payload; a group ``name`` in it is the
            tool's name, and the payload then is the arguments.
        closers: markers that end the block; the last one may be missing at a normal stop.
        begins: markers that start each call of a section; what is outside calls is noise there.
        ends: what may stand behind each payload of a section.
        joined: separators between several payloads in one block, empty for one payload only.
        close_optional: whether the closer is missing as a rule.
        again: what another call of the same block starts with, where its marker is not repeated.
        in_opener: how many characters at the opener's end belong to the payload.
        needs_offered: the call counts only if its tool is offered (the marker alone is no proof).
        looks_like: what an unmarked payload has to start with; it is text unless it holds calls.
    """

    name: str
    openers: tuple[str, ...]
    head: Shape = _ANY_SPACE
    closers: tuple[str, ...] = ()
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    joined: str = ""
    close_optional: bool = False
    again: Shape | None = None
    in_opener: int = 0
    needs_offered: bool = False
    looks_like: Shape | None = None

    def block(self, start: int, opener: str, setting: Setting) -> "JsonBlock":
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return JsonBlock(self, start, opener, setting)


class JsonBlock:
    """Reads one block of a :class:`JsonForm`."""

    def __init__(self, form: JsonForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._setting = setting
        self._start = start
        self._calls: list[FoundCall] = []
        self._at = self._body = start + len(opener.encode()) - form.in_opener
        self._end = start
        self._broken_at = start
        self._name: str | None = None
        self._scanner: BracketScanner | None = None
        # The function, not the bound method: that would be a cycle of references.
        self._step: Callable[[JsonBlock, Data, Ending], Outcome | None] = JsonBlock._head
        self._shapes = _shapes(form)
        if form.begins and opener not in form.begins:
            self._step = JsonBlock._noise

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._at, self._scanner.at if self._scanner is not None else 0)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        while True:
            step = self._step
            outcome = step(self, data, ending)
            if outcome is not None or (self._step is step and not ending.is_final):
                return outcome

    def _noise(self, data: Data, ending: Ending) -> Outcome | None:
        """Between the calls of a section: nothing here is text."""
        found = self._shapes.landmark.search(data, self._at)
        if found is None:
            if not ending.is_final:
                self._at = max(self._at, len(data) - self._shapes.longest)
                return None
            if not self._calls:
                return self._empty_section(data, ending)
            if ending is Ending.CUT:
                self._calls.append(unfinished("", "", ending, "inside a section of calls"))
            return Calls(len(data), tuple(self._calls))
        self._at = found.end()
        if decode(found.group()) in self._form.closers:
            if not self._calls and data[self._body : found.start()].strip():
                return NotACall(self._start + 1)  # no noise then: it was all that there is
            return Calls(self._at, tuple(self._calls))
        self._step = JsonBlock._head
        return None

    def _empty_section(self, data: Data, ending: Ending) -> Outcome:
        if ending is Ending.CUT:
            return Calls(len(data), (unfinished("", "", ending, "inside a section of calls"),))
        return NotACall(self._start + 1)

    def _head(self, data: Data, ending: Ending) -> Outcome | None:
        head = self._form.head
        if not ending.is_final and head.is_open(data, self._at):
            return None
        match = head.match(data, self._at)
        if match is None:
            return self._headless(data, ending)
        self._name = None
        if "name" in match.groupdict():
            self._name = offered(decode(match.group("name")), self._setting.tools)
            if self._form.needs_offered and self._name not in self._setting.tools:
                return NotACall(self._start + 1)
        self._at = match.end()
        self._step = JsonBlock._payload
        return None

    def _headless(self, data: Data, ending: Ending) -> Outcome | None:
        """The marker came, and then something else than its form demands."""
        if ending is Ending.CUT and self._form.head.is_open(data, self._at):
            rest = decode(data, self._at)
            self._calls.append(unfinished("", rest, ending, "before its arguments"))
            return Calls(len(data), tuple(self._calls))
        if self._form.begins:
            self._broken_at = self._at
            self._step = JsonBlock._broken
            return None
        return self._over(self._at) if self._calls else NotACall(self._start + 1)

    def _broken(self, data: Data, ending: Ending) -> Outcome | None:
        """A call of a section that cannot be read ends at the next marker of the section.

        Where none comes, and nothing was read before, the marker was only mentioned.
        """
        found = self._shapes.landmark.search(data, self._at)
        if found is None and not ending.is_final:
            self._at = max(self._at, len(data) - self._shapes.longest + 1)
            return None
        if found is None and not self._calls and ending is Ending.STOP:
            return NotACall(self._start + 1)
        end = found.start() if found is not None else len(data)
        text = decode(data, self._broken_at, end).strip()
        why = "no name and JSON object behind its marker"
        self._calls.append(malformed(self._name or "", text, why))
        self._at = end
        self._step = JsonBlock._noise
        return None

    def _payload(self, data: Data, ending: Ending) -> Outcome | None:
        char = bytes(data[self._at : self._at + 1])
        likely = self._form.looks_like
        if likely is not None and not likely.match(data, self._at):
            if not ending.is_final and likely.is_open(data, self._at):
                return None
            return self._over(self._end) if self._calls else NotACall(self._start + 1)
        if char in (b"{", b"[") and (char == b"{" or self._name is None):
            self._scanner = BracketScanner(self._at)
            self._step = JsonBlock._scan
            return None
        closer = self._shapes.after_payload
        if self._name is not None:
            if closer is not None and closer.match(data, self._at):
                # The head named the tool and nothing came: no arguments.
                self._calls.append(sound(self._name, {}))
                self._step = JsonBlock._after
                return None
            if not ending.is_final and closer is not None and closer.is_open(data, self._at):
                return None
        if ending is Ending.CUT and not char:
            self._calls.append(unfinished(self._name or "", "", ending, "before its arguments"))
            return Calls(len(data), tuple(self._calls))
        if not char and not ending.is_final:
            return None
        if self._form.begins:
            self._broken_at = self._at
            self._step = JsonBlock._broken
            return None
        return NotACall(self._start + 1)

    def _scan(self, data: Data, ending: Ending) -> Outcome | None:
        scanner = self._scanner
        assert scanner is not None  # noqa: S101 - this step is only entered with a scanner
        if scanner.advance(data, final=ending.is_final):
            text = decode(data, scanner.start, scanner.at)
            self._at = scanner.at
            parsed = parse_json(text, repair=self._setting.repair)
            if self._form.looks_like is not None and not self._is_meant(parsed, text):
                return self._over(self._end) if self._calls else NotACall(scanner.at)
            self._take(parsed, text)
            self._end = scanner.at
            self._step = JsonBlock._after
            return None
        return self._ends_inside(data, scanner, ending) if ending.is_final else None

    def _is_meant(self, parsed: Parsed, text: str) -> bool:
        """Whether an unmarked payload is meant as calls: it holds them, or fails to plainly."""
        if not parsed.fault:
            return are_calls(parsed.value, self._setting.tools)
        return self._setting.on_own_line and self._visible(text)[0] in self._setting.tools

    def _ends_inside(self, data: Data, scanner: BracketScanner, ending: Ending) -> Outcome | None:
        """The answer is over and the payload is not."""
        end = len(data)
        if ending is Ending.STOP and self._name is None:
            end = _without_closer(data, self._form.closers)
            text = decode(data, scanner.start, end)
            parsed = parse_json(text, repair=self._setting.repair, outer_closer=True)
            if not parsed.fault:
                self._take(parsed, text)
                return self._judged(len(data))
        text = decode(data, scanner.start, end)
        parsed = parse_json(text, repair=self._setting.repair)
        named, arguments = self._visible(text)
        if self._form.needs_offered and named not in self._setting.tools:
            return NotACall(self._start + 1)
        if ending is Ending.CUT or parsed.is_unfinished:
            where = "inside a string" if scanner.in_string else "inside its JSON"
            self._calls.append(unfinished(named, arguments, ending, where))
        else:
            self._calls.append(malformed(named, arguments, parsed.fault))
        return Calls(len(data), tuple(self._calls))

    def _take(self, parsed: Parsed, text: str) -> None:
        """Turn a whole payload into calls."""
        if parsed.fault:
            named, arguments = self._visible(text)
            self._calls.append(malformed(named, arguments, parsed.fault))
        elif self._name is not None:
            self._calls.append(with_arguments(self._name, parsed.value, parsed.repairs))
        else:
            found = calls_in(parsed.value, self._setting.tools, repair=self._setting.repair)
            for call in found:
                repairs = tuple(dict.fromkeys((*parsed.repairs, *call.repairs)))
                self._calls.append(FoundCall(call.name, call.arguments, repairs, call.fault))

    def _visible(self, text: str) -> tuple[str, str]:
        """Name and raw arguments as far as they can be seen in JSON that cannot be read."""
        if self._name is not None:
            return self._name, text
        name, start = _NAMED.search(text), _ARGUMENTS.search(text)
        return (
            offered(name.group(1), self._setting.tools) if name else "",
            text[start.end() :] if start else text,
        )

    def _after(self, data: Data, ending: Ending) -> Outcome | None:
        """Behind a payload: the closer, another payload, or the end of the block."""
        shapes = self._shapes
        if shapes.surplus.match(data, self._at):
            return self._forgive_brace(data) or self._after(data, ending)
        for shape in (shapes.after_payload, shapes.closer, shapes.joint):
            if shape is None:
                continue
            match = shape.match(data, self._at)
            if match is None or (match.end() == len(data) and shape is shapes.joint):
                if not ending.is_final and shape.is_open(data, self._at):
                    return None
                if match is None:
                    continue
            if shape is shapes.closer:
                return self._judged(match.end())
            if shape is shapes.joint:
                if data[match.end() : match.end() + 1] == b"{":
                    self._at = match.end()
                    self._step = JsonBlock._payload
                    return None
                continue
            self._at = match.end()
            self._step = JsonBlock._noise
            return None
        if not ending.is_final and shapes.surplus.is_open(data, self._at):
            return None
        again = self._form.again
        if again is not None:
            if again.match(data, self._at):
                self._step = JsonBlock._head
                return None
            if not ending.is_final and again.is_open(data, self._at):
                return None
        if self._form.begins:
            self._step = JsonBlock._noise
            return None
        return self._over(self._at, ending)

    def _forgive_brace(self, data: Data) -> Outcome | None:
        """One closing brace too many, behind the payload."""
        last = self._calls[-1] if self._calls else None
        at = data.index(b"}", self._at) + 1
        if last is None or last.fault or "surplus_brace" in last.repairs:
            return self._over(self._at)
        if not self._setting.repair:
            why = "one closing brace too many behind its JSON"
            self._calls[-1] = malformed(last.name, last.arguments, why)
        else:
            self._calls[-1] = replace(last, repairs=(*last.repairs, "surplus_brace"))
        self._at = at
        return None

    def _over(self, end: int, ending: Ending = Ending.OPEN) -> Outcome:
        """The block ends without its closer."""
        closers = () if self._form.close_optional else self._form.closers
        if ending is Ending.CUT and closers and self._calls and not self._calls[-1].fault:
            last = self._calls.pop()
            where = "before its closing marker"
            self._calls.append(unfinished(last.name, last.arguments, ending, where))
        elif closers and self._calls and not self._calls[-1].fault:
            last = self._calls.pop()
            self._calls.append(replace(last, repairs=(*last.repairs, "missing_closer")))
        outcome = self._judged(end)
        if isinstance(outcome, Calls) and closers:
            return Calls(outcome.end, outcome.calls, closers[0].encode())
        return outcome

    def _judged(self, end: int) -> Outcome:
        if not self._calls and not self._form.closers:
            return NotACall(end)  # an empty list is no proof that calls were meant
        if self._form.needs_offered:
            tools = self._setting.tools
            if not self._calls or any(call.name not in tools for call in self._calls):
                return NotACall(end)
        return Calls(end, tuple(self._calls))


@dataclass(frozen=True, slots=True)
class _Shapes:
    """What may stand behind a payload, compiled once a form."""

    closer: Shape | None
    after_payload: Shape | None
    joint: Shape | None
    surplus: Shape
    landmark: re.Pattern[bytes]
    longest: int


_CACHE: dict[str, _Shapes] = {}


def _shapes(form: JsonForm) -> _Shapes:
    known = _CACHE.get(form.name)
    if known is None:
        marks = sorted((*form.begins, *form.closers, *form.ends), key=len, reverse=True)
        fence: tuple[Part | str, ...] = () if "```" in form.closers else (maybe("```"), SPACE)
        known = _CACHE[form.name] = _Shapes(
            closer=Shape(SPACE, *fence, either(*form.closers)) if form.closers else None,
            after_payload=Shape(SPACE, *fence, either(*form.ends)) if form.ends else None,
            joint=Shape(SPACE, maybe(either(*form.joined)), SPACE) if form.joined else None,
            surplus=Shape(SPACE, "}"),
            landmark=re.compile(b"|".join(re.escape(mark.encode()) for mark in marks) or b"(?!)"),
            longest=max((len(mark.encode()) for mark in marks), default=1),
        )
    return known


def _without_closer(data: Data, closers: tuple[str, ...]) -> int:
    """Where the text ends if a closer at its end is left out."""
    tail = bytes(data[-1024:]).rstrip()
    end = len(data) - len(data[-1024:]) + len(tail)
    for closer in closers:
        if tail.endswith(closer.encode()):
            return end - len(closer.encode())
    return end
