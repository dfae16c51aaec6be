"""Placeholder."""

from collections.abc import Mapping

from edge.core.contract import Tool
from edge.core.toolcalls.found import Ending
from edge.core.toolcalls.outbox import Outbox
from edge.core.toolcalls.shapes import Data


class MessageReader:
    """Placeholder."""

    def __init__(
        self, outbox: Outbox, tools: Mapping[str, Tool], *, repair: bool, choice: int
    ) -> None:
        pass

    @staticmethod
    def starts(data: Data, at: int, *, final: bool) -> bool | None:
        """Placeholder."""
        return False

    def advance(self, data: Data, at: int, ending: Ending) -> int:
        """Placeholder."""
        return at
