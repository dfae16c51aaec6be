"""A call in a code fence: it counts when the fence is the last thing of the message.

Anywhere else a fenced call is an example. So everything is held until the end of the answer, or
until text follows the fence.
"""

from edge.core.toolcalls.found import (
    Block,
    Calls,
    Ending,
    FoundCall,
    NotACall,
    Outcome,
    Setting,
)
from edge.core.toolcalls.json_forms import JsonBlock, JsonForm
from edge.core.toolcalls.shapes import Data


class FencedForm:
    """A row of the registry: JSON calls between fences."""

    def __init__(self, inner: JsonForm) -> None:
        self.inner = inner
        self.name = inner.name
        self.openers = inner.openers
        self.closers: tuple[str, ...] = ()

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return FencedBlock(self.inner, start, opener, setting)


class FencedBlock:
    """Waits, behind fences that hold calls, for the end of the answer."""

    def __init__(self, form: JsonForm, start: int, opener: str, setting: Setting) -> None:
        self._form = form
        self._opener = opener
        self._setting = setting
        self._inner: JsonBlock | None = JsonBlock(form, start, opener, setting)
        self._calls: tuple[FoundCall, ...] = ()
        self._first_end = 0
        self._at = start

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return max(self._at, self._inner.reach if self._inner is not None else 0)

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        while True:
            if self._inner is not None:
                outcome = self._inner.advance(data, ending)
                if outcome is None or (not self._calls and not isinstance(outcome, Calls)):
                    return outcome
                if not isinstance(outcome, Calls):
                    return NotACall(self._first_end)
                self._calls += outcome.calls
                self._first_end = self._first_end or outcome.end
                self._inner, self._at = None, outcome.end
            while self._at < len(data) and data[self._at] in b" \t\r\n":
                self._at += 1
            if self._at == len(data):
                return Calls(self._at, self._calls) if ending.is_final else None
            fence = bytes(data[self._at : self._at + len(self._opener)])
            if fence == self._opener.encode():
                self._inner = JsonBlock(self._form, self._at, self._opener, self._setting)
            elif ending.is_final or not self._opener.encode().startswith(fence):
                return NotACall(self._first_end)
            else:
                return None
