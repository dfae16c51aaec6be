"""What a tagged form looks like, and where a value in it ends.

None of the tagged forms escapes anything, so a value may hold its own closing tag, or a whole
example of a call. A close therefore counts only if structure follows it: the next parameter, or the
end of the call and then the end of the block, the next call, or the end of the text. Where several
fit, the last one before the next structural opening is the one; so the end of a call's last value
is certain only when something else opens, or at the end of the answer.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from edge.core.toolcalls.shapes import SPACE, Data, Part, Shape, either, maybe

Layout: TypeAlias = Literal["line", "inline", "trim"]
NEVER = re.compile(b"(?!)")


@dataclass(frozen=True, slots=True, eq=False)
class TaggedForm:
    """One tagged form.

    Attributes:
        call: opens a call; holds a group ``name``.
        parameter: opens a value; holds a group ``key`` and perhaps ``string`` (true or false).
        parameter_start: the literal that ``parameter`` starts with.
        value_close: closes a value; ``{key}`` in it stands for the parameter's name.
        call_close: closes a call, ``{name}`` being the tool's; empty where the closer does that.
        after_call: what may stand behind ``call_close`` and means nothing.
        wrappers: markers around one or more calls, which ``closers`` end.
        starts: literals that a call starts with where the wrapper is missing.
        layout: ``line``: one line break each side of a value is layout; ``trim``: all white space
            around it; ``inline``: nothing.
        bare_json: whether a JSON object of the arguments may stand in place of parameters.
        unwraps: whether a lone parameter ``arguments`` may hold all of them.
    """

    name: str
    call: Part
    parameter: Part
    parameter_start: str
    value_close: str
    call_close: str = ""
    after_call: tuple[Part | str, ...] = ()
    wrappers: tuple[str, ...] = ()
    closers: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    layout: Layout = "inline"
    bare_json: bool = False
    unwraps: bool = False

    @property
    def openers(self) -> tuple[str, ...]:
        """Markers that may start a block."""
        return (*self.wrappers, *self.starts)


@dataclass(frozen=True, slots=True)
class Follow:
    """What stands behind a place: the structure it fits in, if any, and where that ends.

    ``next`` means that another parameter or call opens, ``over`` that call and block are over.
    """

    kind: Literal["next", "over", "none"]
    end: int


NOTHING = Follow("none", 0)


class Grammar:
    """A form with the names of one call filled in.

    Attributes:
        call_end: the call's close and what belongs to it, None where the closer closes the call.
        closer: the block's end, None where the block has no wrapper.
        landmark: finds the beginning of any structure inside a call.
    """

    def __init__(self, form: TaggedForm, name: str, *, is_wrapped: bool) -> None:
        self.form = form
        self.is_wrapped = is_wrapped
        close = form.call_close.replace("{name}", name)
        self.call_end = (
            Shape(SPACE, close, *(maybe(SPACE, part) for part in form.after_call))
            if close
            else None
        )
        self.closer = Shape(SPACE, either(*form.closers)) if form.closers else None
        self.call = Shape(SPACE, form.call)
        self.parameter = Shape(SPACE, form.parameter)
        self.opening = _any_of(form.openers)
        self._open_next = Shape(SPACE, either(*form.openers)) if not close else None
        self.landmark = _any_of((form.parameter_start, close, *form.closers))

    def end_of_call(self, data: Data, at: int) -> int | None:
        """Where the call ends if its close stands at ``at`` (a closer is left to the block)."""
        if self.call_end is not None:
            match = self.call_end.match(data, at)
            if match is not None:
                return match.end()
        if self.closer is not None and self.closer.match(data, at):
            return at
        if self.call_end is None and _opens(self.opening, data, at):
            return at
        return None

    def may_grow(self, data: Data, at: int) -> bool:
        """Whether more text could complete some structure at ``at``."""
        shapes = (self.parameter, self.call_end, self.closer, self._open_next)
        return any(shape is not None and shape.is_open(data, at) for shape in shapes)

    def follow(self, data: Data, at: int, *, final: bool) -> Follow | None:
        """What stands behind a value's close at ``at``; None if that cannot be told yet."""
        if self.parameter.match(data, at):
            return Follow("next", at)
        if not final and self.may_grow(data, at):
            return None
        end = self.end_of_call(data, at)
        if end is None:
            return Follow("over", at) if final and _is_blank(data, at) else NOTHING
        return self._behind_call(data, end, final=final)

    def _behind_call(self, data: Data, at: int, *, final: bool) -> Follow | None:
        if self.closer is not None:
            match = self.closer.match(data, at)
            if match is not None:
                return Follow("over", match.end())
        if self.call.match(data, at) or _opens(self.opening, data, at):
            return Follow("next", at)
        if not final:
            open_shapes = (self.closer, self.call)
            if any(shape is not None and shape.is_open(data, at) for shape in open_shapes):
                return None
        if not self.is_wrapped or (final and _is_blank(data, at)):
            return Follow("over", at)
        return NOTHING


@lru_cache(maxsize=512)
def grammar(form: TaggedForm, name: str, is_wrapped: bool) -> Grammar:
    """The grammar of a call of ``name``, compiled once."""
    return Grammar(form, name, is_wrapped=is_wrapped)


@dataclass(slots=True)
class _Candidate:
    """A close that fits: the value ends at ``at``, and the structure behind it at ``end``."""

    at: int
    behind: int
    end: int
    is_weak: bool


class ValueScanner:
    """Finds the end of the value that starts at ``start``.

    Attributes:
        at: where the value ends, once ``advance`` has said True.
        behind: where to go on (behind the closing tag, if there is one).
    """

    def __init__(self, rules: Grammar, key: str, start: int, close: str = "") -> None:
        self._rules = rules
        close = close or rules.form.value_close.replace("{key}", key)
        self._close = close.encode()
        weak = rules.form.call_close if "{name}" not in rules.form.call_close else ""
        self._edge = _any_of((close, weak, *rules.form.openers))
        self._longest = max(len(text.encode()) for text in (close, weak, *rules.form.openers))
        self._scan = start
        self._best: _Candidate | None = None
        self.at = start
        self.behind = start

    @property
    def reach(self) -> int:
        """How far it has looked."""
        return self._scan

    def advance(self, data: Data, *, final: bool) -> bool:
        """Look on; True once the end is certain. At the end of the answer False means: no end."""
        while True:
            edge = self._edge.search(data, self._scan)
            if edge is None:
                self._scan = max(self._scan, len(data) - self._longest + 1)
                return final and self._settle()
            if edge.group() == self._close:
                if not self._closes(data, edge, is_weak=False, final=final):
                    return self._best is not None and self._best.end < 0 and self._settle()
            elif self._best is not None and edge.start() >= self._best.end:
                if self._opens_block(edge):
                    return self._settle()
                self._scan = edge.end()
            elif edge.group() == self._rules.form.call_close.encode():
                if not self._closes(data, edge, is_weak=True, final=final):
                    return False
            else:
                self._scan = edge.start() + 1

    def _opens_block(self, edge: re.Match[bytes]) -> bool:
        return edge.group().decode() in self._rules.form.openers

    def _closes(self, data: Data, edge: re.Match[bytes], *, is_weak: bool, final: bool) -> bool:
        """Weigh a close; False to stop here (more text is needed, or the end is certain)."""
        behind = edge.start() if is_weak else edge.end()
        follow = self._rules.follow(data, behind, final=final)
        if follow is None:
            self._scan = edge.start()
            return False
        if follow.kind != "none" and not (is_weak and self._best and not self._best.is_weak):
            self._best = _Candidate(edge.start(), behind, follow.end, is_weak)
            if follow.kind == "next" and not is_weak:
                self._best.end = -1  # certain: the next thing opens right here
                return False
        self._scan = edge.end()
        return True

    def _settle(self) -> bool:
        if self._best is None:
            return False
        self.at, self.behind = self._best.at, self._best.behind
        return True


def _any_of(texts: tuple[str, ...]) -> re.Pattern[bytes]:
    ordered = sorted({text for text in texts if text}, key=len, reverse=True)
    return re.compile(b"|".join(re.escape(text.encode()) for text in ordered)) if ordered else NEVER


def _opens(opening: re.Pattern[bytes], data: Data, at: int) -> bool:
    while at < len(data) and data[at] in b" \t\r\n":
        at += 1
    return opening.match(data, at) is not None


def _is_blank(data: Data, at: int) -> bool:
    return not bytes(data[at:]).strip()
