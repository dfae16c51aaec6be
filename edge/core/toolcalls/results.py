"""Tool results that the model made up behind its own calls: they are dropped."""

from edge.core.toolcalls.found import Block, Calls, Ending, NotACall, Outcome, Setting
from edge.core.toolcalls.shapes import Data


class ResultForm:
    """A row of the registry: a pair of markers that only a tool's answer stands between."""

    def __init__(self, opener: str, closer: str) -> None:
        self.name = "made-up-result"
        self.openers = (opener,)
        self.closers: tuple[str, ...] = ()
        self.closer = closer.encode()

    def block(self, start: int, opener: str, setting: Setting) -> Block:
        """A reader for the block that ``opener`` starts at offset ``start``."""
        return ResultBlock(start, start + len(opener.encode()), self.closer, setting)


class ResultBlock:
    """Passes over one made-up result, to its closer or the end of the answer."""

    def __init__(self, start: int, at: int, closer: bytes, setting: Setting) -> None:
        self._start = start
        self._at = at
        self._closer = closer
        self._follows_call = setting.has_calls

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return self._at

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        if not self._follows_call:
            return NotACall(self._start + 1)
        at = data.find(self._closer, self._at)
        if at >= 0:
            return Calls(at + len(self._closer), ())
        self._at = max(self._at, len(data) - len(self._closer) + 1)
        return Calls(len(data), ()) if ending.is_final else None
