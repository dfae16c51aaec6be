"""The engine under both readers: a buffer of bytes, a scanner, and the block being read.

A marker may start several forms (``<tool_call>`` wraps JSON, tags or pairs); they are tried in
order on the same bytes, and where none fits the marker is text again. What has been passed is
never looked at twice, but for text that a rejected block had run over; that has a bound too.
"""

from collections.abc import Iterator, Mapping

from edge.core.contract import Tool
from edge.core.stream_events import StreamEvent, ToolCallDelta
from edge.core.toolcalls.broken import BrokenBlock
from edge.core.toolcalls.found import (
    Block,
    Calls,
    Ending,
    FoundCall,
    NotACall,
    Setting,
    decode,
    unfinished,
)
from edge.core.toolcalls.lexicon import Kind, Token
from edge.core.toolcalls.outbox import Outbox
from edge.core.toolcalls.scanner import Scanner, Stop
from edge.core.toolcalls.vocabulary import Vocabulary

Candidate = tuple[str, Block]

_MAX_BLANK = 1024
_LEAST_MARKER = 6
_LOOK_BUDGET = 2 * 1024 * 1024
"""Bytes that rejected markers may have looked at in vain; then no call is looked for any more.

A marker may have to look to the end of the answer before it is known to be text. A few do no harm;
thousands of them would make the time quadratic.
"""


class MarkupReader:
    """Finds and reads call markup; subclasses say what other markers mean.

    Attributes:
        outbox: where text, reasoning and calls go.
    """

    def __init__(
        self,
        scanner: Scanner,
        words: Vocabulary,
        outbox: Outbox,
        tools: Mapping[str, Tool],
        *,
        repair: bool,
        choice: int,
        max_held: int,
    ) -> None:
        self.outbox = outbox
        self._scanner = scanner
        self._words = words
        self._tools = tools
        self._repair = repair
        self._choice = choice
        self._max_held = max_held
        self._data = bytearray()
        self._at = 0
        self._block: Block | None = None
        self._form = ""
        self._others: Iterator[Candidate] = iter(())
        self._text_end = 0
        self._owed: set[bytes] = set()
        self._after_call = False
        self._has_calls = False
        self._looked_at = 0
        self._gave_up = False

    def _run(self, ending: Ending) -> None:
        """Work through the buffer as far as it can be understood."""
        while self._step(ending):
            pass
        if self._at and not self._remembers_offsets():
            del self._data[: self._at]
            self._at = 0

    def _remembers_offsets(self) -> bool:
        """Whether something is being read that knows its place in the buffer."""
        return self._block is not None

    def _taken(self) -> list[StreamEvent]:
        events, self.outbox.events = self.outbox.events, []
        return events

    def _step(self, ending: Ending) -> bool:
        """One step; False when more text is needed or all has been read."""
        if self._block is not None:
            return self._advance(self._block, ending)
        if self._gave_up or self._at >= len(self._data):
            return False
        if self._after_call:
            return self._skip_strays(ending)
        return self._scan(ending)

    def _scan(self, ending: Ending) -> bool:
        """Pass over text to the next marker, and see what it means."""
        if ending is Ending.CUT and self._cut_marker():
            return False
        stop = self._scanner.next(self._data, self._at, final=ending.is_final)
        self._pass(stop.at)
        if stop.token is None:
            return False
        if stop.token.kind is Kind.CALL:
            setting = Setting(self._tools, self._repair, stop.on_own_line, self._has_calls)
            self._begin(self._candidates(stop.token, setting))
            return True
        return self._meet(stop, stop.token, ending)

    def _cut_marker(self) -> bool:
        """Whether the length limit cut the answer inside the marker of a call: a call was cut."""
        stop = self._scanner.next(self._data, self._at, final=False)
        rest = len(self._data) - stop.at
        if stop.token is not None or rest < _LEAST_MARKER:
            return False
        token = self._words.field.growing(self._data, stop.at)
        if token is None:
            return False
        self._pass(stop.at)
        self._form = token.forms[0].name
        cut = unfinished("", decode(self._data, stop.at), Ending.CUT, "inside its marker")
        self._at = len(self._data)
        self.outbox.call(self._event(cut), cut.arguments)
        return True

    def _meet(self, stop: Stop, token: Token, ending: Ending, /) -> bool:
        """A marker that starts no call; False to wait for more text."""
        raise NotImplementedError

    def _pass(self, end: int) -> None:
        """Everything up to ``end`` is text."""
        if end > self._at:
            self._scanner.passed(self._data, self._at, end)
            self.outbox.text(decode(self._data, self._at, end))
            self._at = end

    def _drop(self, token: Token) -> None:
        """The marker at the current place is no text."""
        self._at += len(token.text.encode())
        self._scanner.new_line()

    def _candidates(self, token: Token, setting: Setting) -> list[Candidate]:
        """The blocks that may stand behind a marker, in the order they are tried."""
        found: list[Candidate] = [
            (form.name, form.block(self._at, token.text, setting)) for form in token.forms
        ]
        if token.closes and setting.on_own_line:
            found.append(
                (token.forms[0].name, BrokenBlock(self._at, token.text, token.closes, setting))
            )
        return found

    def _begin(self, blocks: list[Candidate]) -> None:
        self._others = iter(blocks)
        self._text_end = self._at + 1
        self._try_next()

    def _try_next(self) -> bool:
        """Go on with the next candidate; False if there is none."""
        self._form, self._block = next(self._others, ("", None))
        return self._block is not None

    def _advance(self, block: Block, ending: Ending) -> bool:
        """Let the block read on; False if it needs more."""
        outcome = block.advance(self._data, ending)
        if outcome is None:
            if len(self._data) - self._at > self._max_held:
                self._too_large()
            return False
        if isinstance(outcome, Calls) and not self._is_draft(outcome):
            self._take(outcome)
        else:
            self._looked_at += max(0, block.reach - self._at)
            if isinstance(outcome, NotACall):
                self._text_end = max(self._text_end, outcome.end)
            if not self._try_next():
                self._no_call()
        return True

    def _take(self, outcome: Calls) -> None:
        self._block = None
        raw = decode(self._data, self._at, outcome.end)
        for call in outcome.calls:
            self.outbox.call(self._event(call), raw)
            raw = ""  # the markup of several calls is kept once
        self._at = outcome.end
        if outcome.owed:
            self._owed.add(outcome.owed)
        self._after_call = True
        self._has_calls = self._has_calls or bool(outcome.calls)
        self._scanner.new_line()

    def _is_draft(self, _: Calls) -> bool:
        """Whether what was found is to be taken as text."""
        return False

    def _no_call(self) -> None:
        """No form fits: the marker is text after all."""
        end = min(self._text_end, len(self._data))
        if end <= self._at + 1:
            end = self._scanner.open_fence(self._data, self._at)
        if self._looked_at > _LOOK_BUDGET:
            end = len(self._data)
        self._pass(end)

    def _skip_strays(self, ending: Ending) -> bool:
        """Behind a call: closers and end-of-turn tokens that belong to nothing are no text."""
        at = self._at
        while at < len(self._data) and self._data[at] in b" \t\r\n":
            at += 1
        if at - self._at > _MAX_BLANK:
            self._after_call = False
            return True
        token = self._words.strays.at(self._data, at)
        growing = at == len(self._data) or self._words.strays.may_grow(self._data, at)
        if growing and not ending.is_final:
            return False
        if token is None:
            self._after_call = False
        else:
            self._at = at + len(token.text.encode())
        return True

    def _event(self, call: FoundCall) -> ToolCallDelta:
        return ToolCallDelta(
            name=call.name,
            arguments=call.arguments,
            origin=self._form,
            repairs=call.repairs,
            fault=call.fault,
            choice=self._choice,
        )

    def _too_large(self) -> None:
        """More than may be held: the call cannot be read, and nothing behind it is looked at."""
        fault = f"a call is too large: more than {self._max_held} bytes of it had to be held"
        self.outbox.call(self._event(FoundCall("", "", (), fault)), "")
        self._block = None
        self._gave_up = True
        self._data.clear()
        self._at = 0
