"""Reads one choice's text as it comes: answer, reasoning, and the calls that were written as text.

    feed(content)            → events that may leave now
    feed_reasoning(field)    → the same for the provider's own reasoning field
    finish(truncated=…)      → what was held back, read to its end

Text goes straight through as long as no character of it can begin a marker; that is the hot path.
Else it is taken into a buffer of bytes, in which three machines work, each looking at a byte once:

    scanner    where does a marker stand that counts (``scanner.py``)?
    block      what does the markup hold, and where does it end (one class per kind of form)?
    outbox     what is text, what is layout, what was a draft (``outbox.py``)?

A marker that turns out to start no call is text again, byte for byte. Every cut of the text gives
the same result. What is held is bounded by ``max_held_bytes``.
"""

import re
from dataclasses import replace

from edge.core.contract import Contract
from edge.core.reasoning import CLOSING_OF, CLOSING_WRAPPER
from edge.core.stream_events import ReasoningDelta, StreamEvent, TextDelta
from edge.core.toolcalls.field import ReasoningField
from edge.core.toolcalls.found import Calls, Ending, Setting
from edge.core.toolcalls.lexicon import Kind, Token
from edge.core.toolcalls.markup import Candidate, MarkupReader
from edge.core.toolcalls.messages import MessageReader
from edge.core.toolcalls.outbox import BLANK, Outbox
from edge.core.toolcalls.registry import GLIMMER, PARTS
from edge.core.toolcalls.scanner import Scanner, Sieve, Stop, ThinkingScanner
from edge.core.toolcalls.start import (
    ALL_PARTS,
    AllBlock,
    ArgumentsBlock,
    bare_name_at,
    demanded_tool,
)
from edge.core.toolcalls.vocabulary import vocabulary

_MAX_LEADING = 1024
_LEADING = re.compile(rb"(?:[ \t\r\n]|\xef\xbb\xbf|\xe2\x80\x8b|\xe2\x81\xa0)*")


class TextReader(MarkupReader):
    """One choice of one attempt.

    Args:
        contract: the offered tools decide what is looked for; with none (and no
            ``xml_completion_tool``) only reasoning is.
        recover: read calls out of text at all.
        repair: apply lossless repairs to them.
        forms: names of the forms looked for; empty means all.
        max_held_bytes: bound of what is held back at one time.
        choice: index of the choice, for the events.
        live: whether text is wanted as it comes. Without it text is kept back until it is certain
            that no closing tag makes it reasoning, which may be the end of the answer.
    """

    def __init__(
        self,
        contract: Contract,
        *,
        recover: bool = True,
        repair: bool = True,
        forms: tuple[str, ...] = (),
        max_held_bytes: int = 8388608,
        choice: int = 0,
        live: bool = True,
    ) -> None:
        looks = recover and bool(contract.tools or contract.xml_completion_tool)
        words = vocabulary(forms, looks)
        tags = contract.tools if words.tag is not None else ()
        super().__init__(
            Scanner(words.answer, tags, words.tag),
            words,
            Outbox(choice, live=live, max_held=max_held_bytes),
            contract.tools,
            repair=repair,
            choice=choice,
            max_held=max_held_bytes,
        )
        self._field = ReasoningField(
            words, contract.tools, repair=repair, choice=choice, max_held=max_held_bytes
        )
        self._answer = self._scanner
        self._thinking = ThinkingScanner(words.thinking)
        self._demanded = demanded_tool(contract) if looks else ""
        self._started = False
        self._closing = ""
        self._depth = 0
        self._opened_in_text = 0
        self._has_thought = False
        self._wrapper = ""
        self._messages: MessageReader | None = None
        self._sieve: Sieve | None = None
        self._flows: bool | None = None  # whether it is in mid-answer; None: to be found out
        self._passed_on = ""  # the last piece that passed on, of which the scanner is to be told

    def feed(self, text: str) -> list[StreamEvent]:
        """The events of a piece of content; often one, at times none."""
        self._end_flow()
        sieve = self._sieve
        if sieve is not None and text and sieve(text) is None:
            return self._straight(text)
        if not text or self._gave_up:
            return []
        self._data += text.encode("utf-8", "surrogatepass")
        self._run(Ending.OPEN)
        return self._taken()

    def pass_on(self, text: str) -> str | None:
        """:meth:`feed` for the middle of an answer, without events: the text that may leave now.

        None where it is not as simple as that; then nothing has happened, and it is to be fed.
        """
        if self._flows is None:
            self._flows = self._is_mid_answer and not self._closing
        sieve = self._sieve
        if sieve is None or not self._flows or sieve(text) is not None:
            return None
        if text[-1] not in BLANK and not self.outbox.gap:
            self._passed_on = text  # of all that passes the scanner only needs the last piece
            return text
        self._passed_on = ""
        self._scanner.passed_plain(text)
        self._sieve = self._scanner.sieve()
        return self.outbox.go_on(text)

    def feed_reasoning(self, text: str) -> list[StreamEvent]:
        """The events of a piece of the provider's reasoning field."""
        self._end_flow()
        return self._field.feed(text) if text else []

    def finish(self, *, truncated: bool, native_calls: bool = False) -> list[StreamEvent]:
        """What was held back, read to its end.

        Args:
            truncated: the provider said that the length limit cut the answer.
            native_calls: whether the answer also holds native calls; what looks like a call in
                reasoning is a draft then.
        """
        self._end_flow()
        ending = Ending.CUT if truncated else Ending.STOP
        self._run(ending)
        self.outbox.finish()
        events = self._taken()
        alone = not (native_calls or self.outbox.has_spoken)
        return self._field.finish(ending, alone=alone) + events

    @property
    def _is_mid_answer(self) -> bool:
        """Whether more text has only the white space before it to wait for."""
        return self.outbox.is_mid_answer and not self._field.is_waiting

    def _end_flow(self) -> None:
        """Something else than :meth:`pass_on` comes, which may change all that it looks at."""
        self._flows = None
        if self._passed_on:
            self._scanner.passed_plain(self._passed_on)
            self._passed_on = ""

    def _straight(self, text: str) -> list[StreamEvent]:
        """The hot path: text in which no marker can begin."""
        self._scanner.passed_plain(text)
        outbox = self.outbox
        if text[-1] in BLANK or not outbox.is_clear:
            self._sieve = self._scanner.sieve()
            if self._is_mid_answer:
                text = outbox.go_on(text)
                return [TextDelta(text, self._choice)] if text else []
            outbox.text(text)
            return self._taken()
        if self._closing:
            return [ReasoningDelta(text, self._choice)]
        return [TextDelta(text, self._choice)]

    def _taken(self) -> list[StreamEvent]:
        events = super()._taken()
        if events and self._field.is_waiting and self.outbox.has_spoken:
            return self._field.settle() + events
        return events

    def _run(self, ending: Ending) -> None:
        super()._run(ending)
        is_settled = self._started and not (self._data or self._after_call)
        if is_settled and self._messages is None and self.outbox.is_settled:
            self._sieve = self._scanner.sieve()
        else:
            self._sieve = None

    def _remembers_offsets(self) -> bool:
        inside_call = self._messages is not None and self._messages.is_inside_call
        return inside_call or super()._remembers_offsets()

    def _step(self, ending: Ending) -> bool:
        if self._messages is not None and self._at < len(self._data):
            self._at = self._messages.advance(self._data, self._at, ending)
            return False
        if not self._started and self._at < len(self._data):
            return self._start(ending)
        return super()._step(ending)

    def _start(self, ending: Ending) -> bool:
        """The first thing of the answer: reasoning, a call without a marker, or just the answer."""
        data, opening = self._data, self._words.opening
        leading = _LEADING.match(data, self._at)
        bare = leading.end() if leading else self._at
        if bare - self._at >= _MAX_LEADING:  # so much white space is no layout
            self._started = True
            return True
        may_grow = bare == len(data) or opening.may_grow(data, bare)
        if may_grow and not ending.is_final:
            return False
        token = opening.at(data, bare)
        if token is not None:
            self._started = True
            self._at = bare
            self._think(token)
            return True
        is_message = MessageReader.starts_bare(data, bare, final=ending.is_final)
        blocks = self._unmarked(bare, ending)
        if blocks is None or is_message is None:
            return False
        self._started = True
        if is_message:
            self._at = bare
            self._read_messages()
            return True
        if blocks:
            self._pass(bare)
            self._begin(blocks)
        return True

    def _think(self, token: Token) -> None:
        self.outbox.open_thinking()
        self._closing, self._depth = CLOSING_OF[token.text], 1
        self._scanner = self._thinking
        self._drop(token)

    def _unmarked(self, at: int, ending: Ending) -> list[Candidate] | None:
        """Calls that only count here; None if that cannot be told yet."""
        setting = Setting(self._tools, self._repair)
        if self._words.has_parts:
            named = bare_name_at(self._data, at, setting, final=ending.is_final)
            if named is None:
                return None
            if named:
                return [(PARTS.name, PARTS.block(at, "", setting))]
            if not ending.is_final and ALL_PARTS.startswith(self._data[at : at + 4]):
                return None
            if self._data.startswith(ALL_PARTS, at):
                return [(PARTS.name, AllBlock(at))]
        if not self._demanded or not self._data.startswith((b"{", b"`"), at):
            return []
        if not ending.is_final and b"```".startswith(self._data[at : at + 3]):
            return None
        token = self._words.answer.at(self._data, at)
        forms = token.forms if token is not None else ()
        opener = token.text if token is not None else ""
        blocks: list[Candidate] = [(form.name, form.block(at, opener, setting)) for form in forms]
        return [*blocks, ("arguments", ArgumentsBlock(at, self._demanded, setting))]

    def _meet(self, stop: Stop, token: Token, ending: Ending, /) -> bool:
        if token.kind is Kind.MESSAGES:
            return self._meet_message(token, ending)
        if token.kind is Kind.THINK_CLOSE:
            self._meet_close(token)
        elif token.kind is Kind.THINK_OPEN:
            self._meet_open(token)
        elif token.kind is Kind.END:
            return self._meet_end(token, ending)
        elif token.kind is Kind.WRAPPER and self._wraps(token.text):
            self._drop(token)
        elif token.kind is Kind.SILENT or token.text.encode() in self._owed:
            self._owed.discard(token.text.encode())
            self._drop(token)
        else:
            self._pass(stop.at + len(token.text.encode()))
        return True

    def _meet_end(self, token: Token, ending: Ending) -> bool:
        """An end-of-turn token: no text if it is the last thing, or others like it follow."""
        at = end = self._at + len(token.text.encode())
        while at < len(self._data) and self._data[at] in b" \t\r\n":
            at += 1
        following = self._words.answer.at(self._data, at)
        is_last = at == len(self._data) and at - end <= _MAX_LEADING
        if not ending.is_final and (is_last or self._words.answer.may_grow(self._data, at)):
            return False
        if is_last or (following is not None and following.kind is Kind.END):
            self._drop(token)
        else:
            self._pass(end)
        return True

    def _wraps(self, tag: str) -> bool:
        """Whether a tag stands around the answer: it opens right behind reasoning, or closes."""
        if tag == self._wrapper:
            self._wrapper = ""
            return True
        closing = CLOSING_WRAPPER.get(tag)
        if closing is None or not self._has_thought or self.outbox.has_spoken:
            return False
        self._wrapper = closing
        return True

    def _meet_open(self, token: Token) -> None:
        """An opening tag that is not the first thing of the answer."""
        if self._closing:
            self._depth += CLOSING_OF[token.text] == self._closing
        else:
            self._opened_in_text += 1
        self._pass(self._at + len(token.text.encode()))

    def _meet_close(self, token: Token) -> None:
        end = self._at + len(token.text.encode())
        if self._closing and token.text != self._closing:
            self._pass(end)
        elif self._closing and self._depth > 1:
            self._depth -= 1
            self._drop(token)
            self.outbox.doubt_close(token.text)
        elif not self._closing and self._opened_in_text:
            self._opened_in_text -= 1
            self._pass(end)
        else:
            self._closing, self._depth, self._has_thought = "", 0, True
            self._scanner = self._answer
            self._drop(token)
            self.outbox.close_thinking()
            # What follows is the first thing of the answer proper.
            self._started = self.outbox.has_spoken

    def _meet_message(self, token: Token, ending: Ending) -> bool:
        """A channel marker: if a header follows, the rest of the answer is made of messages."""
        is_header = MessageReader.starts(self._data, self._at, final=ending.is_final)
        if is_header is None:
            return False
        if is_header:
            self._read_messages()
        else:
            self._pass(self._at + len(token.text.encode()))
        return True

    def _read_messages(self) -> None:
        """The rest of the answer is made of messages."""
        self._messages = MessageReader(
            self.outbox,
            self._tools,
            repair=self._repair,
            choice=self._choice,
            inner=GLIMMER if self._words.looks else None,
        )

    def _candidates(self, token: Token, setting: Setting) -> list[Candidate]:
        if self._closing:  # a broken call in reasoning is no call
            setting = replace(setting, on_own_line=False)
        return super()._candidates(token, setting)

    def _is_draft(self, found: Calls) -> bool:
        # In open reasoning an unsound call with the closing tag inside is only a sketch.
        if not self._closing or not any(call.fault for call in found.calls):
            return False
        return self._data.find(self._closing.encode(), self._at, found.end) >= 0
