"""What leaves the reader, in order: decides what is text, what is layout and what was a draft.

Three things cannot be told at once and are settled here:

- White space before a call, and between reasoning and answer, is layout; anywhere else it is text.
  So white space waits for what follows it. Text on both sides of a call stays apart.
- A call inside reasoning is a draft if the block is closed and something follows; if nothing
  does, the model just forgot to close it and the call counts. The same holds where the block's
  opening tag was part of the prompt, so that all looked like text until the closing tag came.
  From the first such call on everything is withheld until that is known.
- Text before a closing tag that was never opened is reasoning. Where text leaves as it comes
  (``live``) it has been shown already; else everything is withheld until the answer's end.
"""

from dataclasses import dataclass, replace

from edge.core.stream_events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta

BLANK = " \t\r\n"
INVISIBLE = "\ufeff\u200b\u2060"
_MAX_GAP = 1024


@dataclass(frozen=True, slots=True)
class _Withheld:
    """A piece that waits: text, reasoning, or a call with the markup it was read from."""

    raw: str
    call: ToolCallDelta | None = None


class Outbox:
    """Collects the events of one choice.

    Attributes:
        events: what may leave now; the reader takes it away.
        gap: white space that waits for what follows.
        has_spoken: whether answer text or a call has left.
    """

    def __init__(self, choice: int, *, live: bool, max_held: int) -> None:
        self.events: list[StreamEvent] = []
        self.gap = ""
        self.has_spoken = False
        self._choice = choice
        self._may_close = True
        self._max_held = max_held
        self._shown = False
        self._thought = False
        self._apart = False
        self._before = ""
        self._thinking_gap = ""
        self._thinking = False
        self._closed = False
        self._held_chars = 0
        self._doubt: int | None = None
        self._withheld: list[_Withheld] | None = None if live else []

    @property
    def is_settled(self) -> bool:
        """Whether more text changes nothing but the text: it is in the middle of its kind."""
        if self._withheld is not None:
            return not self._closed
        return self._thought if self._thinking else self._shown and not self._apart

    @property
    def is_clear(self) -> bool:
        """Whether text goes straight out: nothing waits before it."""
        return self._withheld is None and not (self._thinking_gap if self._thinking else self.gap)

    @property
    def is_mid_answer(self) -> bool:
        """Whether answer text has been shown, and nothing but white space waits before more."""
        return self._shown and not self._thinking and not self._apart and self._withheld is None

    def go_on(self, text: str) -> str:
        """What :meth:`text` would tell in mid-answer; the way of nearly every piece."""
        text = self.gap + text
        body = text.rstrip(BLANK)
        gap = text[len(body) :]
        surplus = len(gap) - _MAX_GAP
        if surplus > 0:  # so much white space is no layout
            body, gap = body + gap[:surplus], gap[surplus:]
        self.gap = gap
        return body

    @property
    def is_withholding(self) -> bool:
        """Whether a call waits for the end of the reasoning it may be part of."""
        return bool(self._withheld)

    def settle(self) -> None:
        """Something follows that is not told here: what waits was part of the reasoning."""
        if self._closed:
            self._settle_drafts()

    def text(self, text: str) -> None:
        """A piece of the answer, or of open reasoning."""
        if not text:
            return
        if self._closed:
            if not text.strip(BLANK):
                self.gap = (self.gap + text)[-_MAX_GAP:]
                return
            self._settle_drafts()
        if self._withheld is not None:
            self._withhold(_Withheld(text))
        elif self._thinking:
            self._think(text)
        else:
            self._say(text)

    def call(self, call: ToolCallDelta, raw: str) -> None:
        """A call, and the markup it was read from."""
        if self._closed:
            self._settle_drafts()
        if self._withheld is None and self._may_close:
            self._withheld = []
            if self._shown and self.gap:
                self._withhold(_Withheld(self.gap))
                self.gap = ""
        if self._withheld is not None:
            self._withhold(_Withheld(raw, call))
        else:
            self._call(call)

    def open_thinking(self) -> None:
        """A reasoning block begins: what follows is reasoning until it is closed."""
        self.settle()
        self._withheld = None  # nothing but white space can be waiting here
        self._thinking = self._may_close = True
        self._thinking_gap = "\n" if self._thought else ""
        self.gap = ""

    def stop_waiting(self) -> None:
        """From here on the answer itself says what is reasoning: nothing is withheld any more."""
        self._may_close = False
        if self._closed:
            self._settle_drafts()
        pieces, self._withheld = self._withheld, None
        for piece in pieces or ():
            if piece.call is not None:
                self._call(piece.call)
            else:
                self._say(piece.raw)

    def turn_to(self, *, reasoning: bool) -> None:
        """A message of its own begins: text before it stays apart from it."""
        if self._thinking and self._thought:
            self._thinking_gap = "\n"
        self._break()
        self._thinking = reasoning

    def doubt_close(self, tag: str) -> None:
        """A tag that closes an inner block; if no other one follows, it closed all reasoning."""
        if self._withheld is None:
            self._withheld = []
        if self._doubt is None:
            self._doubt = len(self._withheld)
        self._withhold(_Withheld(tag))

    def close_thinking(self) -> None:
        """A reasoning block ends, opened or not."""
        if self._thinking and self._withheld is None:
            self._thinking, self._may_close, self._thinking_gap = False, False, ""
            self._break()
            return
        waiting = self._withheld or []
        if any(piece.call for piece in waiting):
            self._closed = True
            return
        self._withheld = waiting
        self._settle_drafts()

    def finish(self) -> None:
        """The answer is over: what waits is what it seems to be."""
        pieces, self._withheld = self._withheld, None
        thinking, self._thinking = self._thinking, False
        if self._doubt is not None and pieces:
            self._think("".join(piece.raw for piece in pieces[: self._doubt]))
            self._break()
            pieces = pieces[self._doubt + 1 :]
        for piece in pieces or ():
            if piece.call is not None:
                self._call(piece.call)
            elif self._closed and not (self._shown and not thinking):
                self._think(piece.raw)
            else:
                self._say(piece.raw)
        if self.gap and not self._apart:
            self._emit_text(self.gap)
        self.gap = ""

    def _withhold(self, piece: _Withheld) -> None:
        assert self._withheld is not None  # noqa: S101 - callers have looked
        self._withheld.append(piece)
        self._held_chars += len(piece.raw)
        if self._held_chars > self._max_held:
            # Too much to wait for a closing tag that may never come.
            self._may_close, self._doubt = False, None
            pieces, self._withheld, self._thinking = self._withheld, None, False
            for held in pieces:
                if held.call is not None:
                    self._call(held.call)
                else:
                    self._say(held.raw)

    def _settle_drafts(self) -> None:
        """Reasoning is closed and something follows: all that waits was part of it."""
        pieces, self._withheld = self._withheld or [], None
        gap, self.gap = (self.gap, "") if self._closed else ("", self.gap)
        shown = self._shown and not self._thinking
        self._thinking = self._closed = self._may_close = False
        self._doubt = None
        raw = "".join(piece.raw for piece in pieces)
        if shown:
            self._say(raw)
        else:
            self._think((self.gap if pieces else "") + raw)
            self.gap = ""
        self._thinking_gap = ""
        self._break()
        self.gap = gap

    def _break(self) -> None:
        """A call or a block stands here: text on both sides stays apart."""
        if not self._apart:
            self._before = self.gap
        self.gap = ""
        self._apart = True

    def _call(self, call: ToolCallDelta) -> None:
        if not self._shown and any(char in INVISIBLE for char in self.gap):
            call = replace(call, repairs=("byte_order_mark", *call.repairs))
        self._break()
        self.events.append(call)
        self.has_spoken = True

    def _say(self, text: str) -> None:
        """Answer text: white space at its end waits."""
        text = self.gap + text
        body = text.rstrip(BLANK)
        if not self._shown and not self._apart and not body.strip(BLANK + INVISIBLE):
            body = ""  # byte-order marks and their like, before anything else
        self.gap = text[len(body) :]
        if not body:
            self._trim_gap()
            return
        if self._apart:
            body = self._set_apart(body)
        self._emit_text(body)
        self._shown = self.has_spoken = True
        self._trim_gap()

    def _set_apart(self, body: str) -> str:
        self._apart = False
        bare = body.lstrip(BLANK)
        if not self._shown:
            return bare
        if len(bare) < len(body):
            return body
        return (self._before or "\n") + bare

    def _trim_gap(self) -> None:
        """A gap has a bound; what is longer is no layout."""
        surplus = len(self.gap) - _MAX_GAP
        if surplus > 0 and not self._apart:
            self._emit_text(self.gap[:surplus])
        if surplus > 0:
            self.gap = self.gap[surplus:]

    def _think(self, text: str) -> None:
        """Reasoning: white space around it is layout."""
        text = self._thinking_gap + text
        if not self._thought:
            text = text.lstrip(BLANK)
        body = text.rstrip(BLANK)
        if body and len(text) - len(body) > _MAX_GAP:
            body = text[:-_MAX_GAP]
        self._thinking_gap = text[len(body) :]
        if body:
            self._thought = True
            self.events.append(ReasoningDelta(body, self._choice))

    def _emit_text(self, text: str) -> None:
        self.events.append(TextDelta(text, self._choice))
