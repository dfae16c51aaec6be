"""The provider's own reasoning field, read for the one case in which it holds a call.

Some servers cut the reasoning off wrongly and put a call with it. The markup there counts if
nothing else comes: no content, no native call. Else it was a draft, and reasoning.
"""

from collections.abc import Mapping

from edge.core.contract import Tool
from edge.core.stream_events import ReasoningDelta, StreamEvent
from edge.core.toolcalls.found import Calls, Ending
from edge.core.toolcalls.lexicon import Token
from edge.core.toolcalls.markup import MarkupReader
from edge.core.toolcalls.outbox import BLANK, Outbox
from edge.core.toolcalls.scanner import Scanner, Sieve, Stop
from edge.core.toolcalls.vocabulary import Vocabulary


class ReasoningField(MarkupReader):
    """Feeds on the reasoning field; ``settle`` says that something else has come."""

    def __init__(
        self,
        words: Vocabulary,
        tools: Mapping[str, Tool],
        *,
        repair: bool,
        choice: int,
        max_held: int,
    ) -> None:
        outbox = Outbox(choice, live=True, max_held=max_held)
        outbox.open_thinking()
        scanner = Scanner(words.field)
        super().__init__(
            scanner, words, outbox, tools, repair=repair, choice=choice, max_held=max_held
        )
        self._sieve: Sieve | None = None
        self._settled = False

    @property
    def is_waiting(self) -> bool:
        """Whether something is held that looks like a call."""
        return self._block is not None or self.outbox.is_withholding

    def feed(self, text: str) -> list[StreamEvent]:
        """The events of a piece of the field."""
        sieve = self._sieve
        if sieve is not None and text[-1] not in BLANK and sieve(text) is None:
            self._scanner.passed_plain(text)
            return [ReasoningDelta(text, self._choice)]
        self._data += text.encode("utf-8", "surrogatepass")
        self._run(Ending.OPEN)
        is_clear = self.outbox.is_settled and self.outbox.is_clear
        is_plain = is_clear and not self._data and not self._after_call
        self._sieve = self._scanner.sieve() if is_plain else None
        return self._taken()

    def settle(self) -> list[StreamEvent]:
        """Something else has come: what looked like a call is reasoning."""
        self._settled = True
        if self._block is not None:
            self._block = None
            self._pass(len(self._data))
        self.outbox.close_thinking()
        self.outbox.settle()
        self.outbox.open_thinking()
        return self._taken()

    def finish(self, ending: Ending, *, alone: bool) -> list[StreamEvent]:
        """What was held: a call if the field is all there is, else reasoning."""
        self._settled = not alone
        self._run(ending)
        if not alone:
            return self.settle()
        self.outbox.finish()
        return self._taken()

    def _is_draft(self, found: Calls) -> bool:
        # An unsound sketch is no call, and once something else has come nothing here is.
        return self._settled or any(call.fault for call in found.calls)

    def _meet(self, stop: Stop, token: Token, _: Ending, /) -> bool:
        self._pass(stop.at + len(token.text.encode()))
        return True
