"""A call in a code fence: it counts when the fence is the last thing of the message.

Anywhere else a fenced call is an example. So everything is held until the end of the answer, or
until text follows the fence.
"""

from edge.core.toolcalls.found import Block, Calls, Ending, NotACall, Outcome, Setting
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
        return FencedBlock(JsonBlock(self.inner, start, opener, setting))


class FencedBlock:
    """Waits, behind a fence that holds calls, for the end of the answer."""

    def __init__(self, inner: JsonBlock) -> None:
        self._inner = inner
        self._found: Calls | None = None

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if self._found is None:
            outcome = self._inner.advance(data, ending)
            if not isinstance(outcome, Calls):
                return outcome
            self._found = outcome
            self._at = outcome.end
        while self._at < len(data) and data[self._at] in b" \t\r\n":
            self._at += 1
        if self._at < len(data):
            return NotACall(self._found.end)
        return Calls(self._at, self._found.calls) if ending.is_final else None
