"""MiniMax M3: calls as nested elements, every tag behind a prefix that occurs nowhere else.

PREFIX<tool_call>  (PREFIX<invoke name="NAME">  elements  PREFIX</invoke>)*  PREFIX</tool_call>
"""

from edge.core.toolcalls.elements import NotElements, read_elements
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
from edge.core.toolcalls.shapes import NAME, SPACE, Data, Shape, either, group, maybe


class ElementForm:
    """A row of the registry for prefixed elements."""

    def __init__(self, name: str, prefix: str) -> None:
        self.name = name
        self.prefix = prefix
        self.openers: tuple[str, ...] = (f"{prefix}<tool_call>",)
        self.closers: tuple[str, ...] = (f"{prefix}</tool_call>",)
        quote = maybe(either('"', "'"))
        self.call = Shape(
            SPACE, f"{prefix}<invoke name=", quote, group("name", NAME), quote, SPACE, ">"
        )
        self.closer = Shape(SPACE, *self.closers)
        self.call_close = f"{prefix}</invoke>".encode()

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return ElementBlock(self, start, opener, setting)


class ElementBlock:
    """Reads one block of an :class:`ElementForm`."""

    def __init__(self, form: ElementForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._setting = setting
        self._start = start
        self._at = start + len(opener.encode())
        self._scan = self._at
        self._name: str | None = None
        self._calls: list[FoundCall] = []

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._at, self._scan)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        while True:
            inside = self._name is not None
            outcome = self._body(data, ending) if inside else self._between(data, ending)
            if outcome is not None or (self._name is not None) == inside:
                return outcome

    def _between(self, data: Data, ending: Ending) -> Outcome | None:
        form = self._form
        call = form.call.match(data, self._at)
        if call is not None:
            self._name = offered(decode(call.group("name")), self._setting.tools)
            self._at = self._scan = call.end()
            return None
        closer = form.closer.match(data, self._at)
        if closer is not None and self._calls:
            return Calls(closer.end(), tuple(self._calls))
        is_open = form.call.is_open(data, self._at) or form.closer.is_open(data, self._at)
        if is_open and not ending.is_final:
            return None
        if ending is Ending.CUT:
            self._calls.append(unfinished("", "", ending, "inside a block of calls"))
        if not self._calls:
            return NotACall(self._start + 1)
        return Calls(self._at, tuple(self._calls), form.closers[0].encode())

    def _body(self, data: Data, ending: Ending) -> Outcome | None:
        form = self._form
        while True:
            close = data.find(form.call_close, self._scan)
            if close < 0:
                self._scan = max(self._scan, len(data) - len(form.call_close) + 1)
                return self._ends_inside(data, ending) if ending.is_final else None
            end = close + len(form.call_close)
            shapes = (form.call, form.closer)
            if any(shape.match(data, end) for shape in shapes):
                break
            if any(shape.is_open(data, end) for shape in shapes):
                if not ending.is_final:
                    self._scan = close
                    return None
                if not bytes(data[end:]).strip():
                    break
            self._scan = end  # a value that holds the closing tag
        self._note(decode(data, self._at, close))
        self._at = end
        return None

    def _note(self, text: str) -> None:
        name = self._name or ""
        self._name = None
        tool = self._setting.tools.get(name)
        schema = tool.parameters if tool is not None else {}
        try:
            value = read_elements(text, {"type": "object", **schema}, schema, self._form.prefix)
        except NotElements:
            why = "its arguments are no sound elements"
            self._calls.append(malformed(name, text, why))
            return
        self._calls.append(sound(name, value))

    def _ends_inside(self, data: Data, ending: Ending) -> Outcome:
        text, name = decode(data, self._at), self._name or ""
        if ending is Ending.STOP and text.rstrip().endswith(">"):
            self._note(text)
            last = self._calls[-1]
            if not last.fault:
                self._calls[-1] = FoundCall(last.name, last.arguments, ("missing_closer",))
                return Calls(len(data), tuple(self._calls))
            self._calls.pop()
        self._calls.append(unfinished(name, text, ending, "inside its arguments"))
        return Calls(len(data), tuple(self._calls))
