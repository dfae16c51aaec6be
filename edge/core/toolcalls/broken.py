"""A pair of markers with something between them that no form can read."""

import re
from typing import Literal

from edge.core.toolcalls.found import (
    Calls,
    Ending,
    NotACall,
    Outcome,
    Setting,
    decode,
    malformed,
)
from edge.core.toolcalls.shapes import Data

_WORD = re.compile(r"[\w.\-]+")
_LINE_END = b"\r\n<["


class BrokenBlock:
    """Tells a failed call from text that mentions a marker.

    It is a failed call if opener and closer stand apart from prose: the opener first on its line,
    the closer last on its own. Asked last, when every form of the marker has said no.
    """

    def __init__(self, start: int, opener: str, closers: tuple[str, ...], setting: Setting) -> None:
        self._start = start
        self._body = start + len(opener.encode())
        self._at = self._body
        self._closers = [closer.encode() for closer in closers]
        self._tools = setting.tools
        self._opener = opener
        self._longest = max(map(len, self._closers))

    @property
    def reach(self) -> int:
        """See :class:`Block`."""
        return self._at

    def advance(self, data: Data, ending: Ending) -> Outcome | None:
        """See :class:`Block`."""
        again = self._opens_again(data, ending)
        if again is not False:
            return again
        found = [(data.find(closer, self._at), closer) for closer in self._closers]
        at, closer = min(((at, c) for at, c in found if at >= 0), default=(-1, b""))
        if at < 0:
            self._at = max(self._at, len(data) - self._longest)
            return NotACall(self._start + 1) if ending.is_final else None
        end = at + len(closer)
        if end == len(data) and not ending.is_final:
            self._at = at
            return None
        if end < len(data) and data[end] not in _LINE_END:
            return NotACall(self._start + 1)
        body = decode(data, self._body, at).strip()
        why = "what stands between its markers is neither JSON nor any other known form"
        word = _WORD.match(body)
        name = word.group() if word and word.group() in self._tools else ""
        return Calls(end, (malformed(name, body, why),))

    def _opens_again(self, data: Data, ending: Ending) -> Outcome | Literal[False] | None:
        """The marker written twice: the first one means nothing."""
        at = self._body
        while at < len(data) and data[at] in b" \t\r\n":
            at += 1
        opener = self._opener.encode()
        head = bytes(data[at : at + len(opener)])
        if head == opener:
            return Calls(at, ())
        return None if opener.startswith(head) and not ending.is_final else False
