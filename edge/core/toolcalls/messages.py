"""Answers made of messages, each with a header that says what it is: gpt-oss harmony, Glimmer.

    [<|start|>ROLE] [ to=RECIPIENT] [<|channel|>CHANNEL …] [<|constrain|>…] <|message|> BODY  end

The header decides: a recipient that is a tool makes the body a call, ``analysis`` (or ``to=self``)
makes it reasoning, everything else is the answer's text. Messages of another role than the
assistant's are made up by the model and dropped. Markers inside a call's JSON strings do not count;
a terminator may be missing at a normal end, and the first start marker is part of the prompt.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from edge.core.contract import Tool
from edge.core.repair import parse_json
from edge.core.stream_events import ToolCallDelta
from edge.core.toolcalls.brackets import BracketScanner
from edge.core.toolcalls.call_objects import with_arguments
from edge.core.toolcalls.found import (
    Block,
    Calls,
    Ending,
    FoundCall,
    Setting,
    decode,
    malformed,
    unfinished,
)
from edge.core.toolcalls.outbox import Outbox
from edge.core.toolcalls.shapes import NAME, SPACE, Data, Shape, either, maybe, sequence
from edge.core.toolcalls.tagged_forms import Tagged

Kind: TypeAlias = Literal["text", "reasoning", "call", "dropped"]

START_MARKERS = ("<|start|>", "<|channel|>")
_ROLES = ("assistant", "functions", "tool", "user", "system", "developer")
_HEADER = Shape(
    either(
        sequence("<|start|>", SPACE, either(*_ROLES)),
        sequence("<|channel|>", SPACE, either("analysis", "commentary", "final")),
    )
)
_BARE_HEADER = Shape(
    maybe(SPACE, "to=", NAME, SPACE), either("<|message|>", "<|channel|>", "<|constrain|>")
)
_MESSAGE = b"<|message|>"
_EDGE = re.compile(rb"<\|(?:start|channel|end|call|return|eom|eot|message)\|>")
_OPENING_EDGES = (b"<|start|>", b"<|channel|>")
_LONGEST_EDGE = len(b"<|channel|>")
_TO = re.compile(rb"to=([^\s<>|]+)")
_CHANNEL = re.compile(rb"<\|channel\|>\s*(analysis|commentary|final)")
_ROLE = re.compile(rb"<\|start\|>\s*([^\s<]+)")
_NOT_TOOLS = frozenset({"user", "assistant", "all", "self"})
_MAX_HEADER = 2048


class MessageReader:
    """Takes over once a header has been seen; ``advance`` consumes what it understands."""

    def __init__(
        self,
        outbox: Outbox,
        tools: Mapping[str, Tool],
        *,
        repair: bool,
        choice: int,
        inner: Tagged | None = None,
    ) -> None:
        self._outbox = outbox
        self._tools = tools
        self._repair = repair
        self._choice = choice
        self._inner = inner
        self._kind: Kind | None = None
        self._is_fresh = True
        self._name = ""
        self._scanner: BracketScanner | None = None
        self._json_end = -1
        self._block: Block | None = None
        outbox.stop_waiting()

    @staticmethod
    def starts(data: Data, at: int, *, final: bool) -> bool | None:
        """Whether a header starts at ``at``; None if that cannot be told yet."""
        if _HEADER.match(data, at):
            return True
        return None if not final and _HEADER.is_open(data, at) else False

    @staticmethod
    def starts_bare(data: Data, at: int, *, final: bool) -> bool | None:
        """Whether an answer starts with a header whose beginning was part of the prompt."""
        if _BARE_HEADER.match(data, at):
            return True
        return None if not final and _BARE_HEADER.is_open(data, at) else False

    @property
    def is_inside_call(self) -> bool:
        """Whether offsets into the text are being remembered."""
        return self._kind == "call"

    def advance(self, data: Data, at: int, ending: Ending) -> int:
        """Read on from ``at``; how far it came (the rest is to be shown again with more)."""
        while at < len(data) or (ending.is_final and self._kind == "call"):
            before = (at, self._kind)
            at = (
                self._header(data, at, ending)
                if self._kind is None
                else self._body(data, at, ending)
            )
            if (at, self._kind) == before:
                break
        return at

    def _header(self, data: Data, at: int, ending: Ending) -> int:
        """Wait for ``<|message|>``, then see what the header says."""
        while at < len(data) and data[at] in b" \t\r\n":
            at += 1
        edge = _EDGE.match(data, at)
        is_bare = self.starts_bare(data, at, final=ending.is_final)
        if edge is None and is_bare is False and not _may_be_edge(data, at, ending):
            self._open("text")  # text where a header is due: the markers were lost
            return at
        end = data.find(_MESSAGE, at)
        if end < 0:
            if len(data) - at > _MAX_HEADER:
                self._open("text")
            elif ending.is_final:
                self._cut_header(bytes(data[at:]), ending)
                return len(data)
            elif edge is not None and edge.group() not in _OPENING_EDGES:
                return edge.end()  # a terminator more than there are messages
            return at
        header = bytes(data[at:end])
        self._open(self._kind_of(header))
        return end + len(_MESSAGE)

    def _kind_of(self, header: bytes) -> Kind:
        """What the message is."""
        recipient, role = _TO.search(header), _ROLE.search(header)
        channels = _CHANNEL.findall(header)
        to = decode(recipient.group(1)) if recipient else ""
        if role is not None and not role.group(1).startswith(b"assistant"):
            return "dropped"
        if to == "self" or (not to and channels and channels[-1] == b"analysis"):
            return "reasoning"
        if not to or to in _NOT_TOOLS:
            return "reasoning" if channels and channels[-1] == b"analysis" else "text"
        self._name = self._tool_named(to)
        return "call"

    def _tool_named(self, recipient: str) -> str:
        """The offered tool; some prompts change names to identifiers, so map them back."""
        name = recipient.removeprefix("functions.")
        for known in (recipient, name, recipient.rpartition(".")[2]):
            if known in self._tools:
                return known
        same = [tool for tool in self._tools if re.sub(r"\W", "_", tool) == name]
        return same[0] if len(same) == 1 else name

    def _open(self, kind: Kind) -> None:
        self._kind = kind
        self._is_fresh = True
        self._scanner = self._block = None
        self._json_end = -1
        self._outbox.turn_to(reasoning=kind == "reasoning")

    def _body(self, data: Data, at: int, ending: Ending) -> int:
        if self._kind == "call":
            return self._call(data, at, ending)
        if self._inner is not None and self._kind == "text" and self._is_fresh:
            opener = self._inner.openers[0].encode()
            head = bytes(data[at : at + len(opener)])
            if head == opener:
                self._kind = "call"
                return at
            if opener.startswith(head) and not ending.is_final:
                return at
        self._is_fresh = False
        return self._running_text(data, at, ending)

    def _running_text(self, data: Data, at: int, ending: Ending) -> int:
        """Text or reasoning: it leaves as it comes, but for what may be a marker."""
        edge = _EDGE.search(data, at)
        if edge is not None:
            self._say(decode(data, at, edge.start()))
            self._kind = None
            return edge.start() if edge.group() in _OPENING_EDGES else edge.end()
        end = len(data) if ending.is_final else _safe_end(data, at)
        self._say(decode(data, at, end))
        return end

    def _say(self, text: str) -> None:
        if self._kind != "dropped":
            self._outbox.text(text)

    def _call(self, data: Data, at: int, ending: Ending) -> int:
        """The body of a call: a JSON object, or calls in tags."""
        start = at
        while start < len(data) and data[start] in b" \t\r\n":
            start += 1
        if self._inner is not None and data.startswith(b"<atem:", start):
            return self._tagged(data, start, ending)
        if data[start : start + 1] != b"{":
            return self._no_object(data, at, start, ending)
        if self._scanner is None:
            self._scanner = BracketScanner(start)
        if self._json_end < 0 and not self._scanner.advance(data, final=ending.is_final):
            if not ending.is_final:
                return at
            return self._ends_inside(data, start, self._scanner, ending)
        self._json_end = self._scanner.at
        text = decode(data, start, self._json_end)
        edge = self._edge_behind(data, self._json_end, ending)
        if edge is None:
            return at
        if edge < 0 and ending is Ending.CUT:
            self._emit(unfinished(self._name, text, ending, "before its closing marker"), text)
        else:
            parsed = parse_json(text, repair=self._repair)
            if parsed.fault:
                self._emit(malformed(self._name, text, parsed.fault), text)
            else:
                self._emit(with_arguments(self._name, parsed.value, parsed.repairs), text)
        self._kind = None
        return self._json_end if edge < 0 else edge

    def _edge_behind(self, data: Data, at: int, ending: Ending) -> int | None:
        """Where the message ends behind its JSON; None: wait; -1: the text ends, or other text."""
        while at < len(data) and data[at] in b" \t\r\n":
            at += 1
        edge = _EDGE.match(data, at)
        if edge is not None:
            return edge.start() if edge.group() in _OPENING_EDGES else edge.end()
        return None if _may_be_edge(data, at, ending) else -1

    def _no_object(self, data: Data, at: int, start: int, ending: Ending) -> int:
        """A call without a JSON object: no arguments, or something else."""
        edge = _EDGE.search(data, start)
        if edge is None and not ending.is_final:
            return at
        end = edge.start() if edge is not None else len(data)
        text = decode(data, start, end).strip()
        if text:
            why = "its arguments are no JSON object"
            self._emit(malformed(self._name, text, why), text)
        elif edge is None and ending is Ending.CUT:
            self._emit(unfinished(self._name, "", ending, "before its arguments"), "")
        else:
            self._emit(with_arguments(self._name, None), "")
        self._kind = None
        is_opening = edge is None or edge.group() in _OPENING_EDGES
        return end if is_opening or edge is None else edge.end()

    def _ends_inside(self, data: Data, start: int, scanner: BracketScanner, ending: Ending) -> int:
        text = decode(data, start)
        parsed = parse_json(text, repair=self._repair)
        if ending is Ending.CUT or parsed.is_unfinished:
            where = "inside a string" if scanner.in_string else "inside its JSON"
            self._emit(unfinished(self._name, text, ending, where), text)
        else:
            self._emit(malformed(self._name, text, parsed.fault), text)
        self._kind = None
        return len(data)

    def _tagged(self, data: Data, start: int, ending: Ending) -> int:
        assert self._inner is not None  # noqa: S101 - the caller has looked
        if self._block is None:
            opener = self._inner.openers[0]
            self._block = self._inner.block(start, opener, Setting(self._tools, self._repair))
        outcome = self._block.advance(data, ending)
        if outcome is None:
            return start
        self._block, self._kind, self._is_fresh = None, "text", False
        if not isinstance(outcome, Calls):
            self._outbox.text(decode(data, start, outcome.end))
            return outcome.end
        for call in outcome.calls:
            self._emit(call, decode(data, start, outcome.end))
        return outcome.end

    def _cut_header(self, header: bytes, ending: Ending) -> None:
        """The answer is over inside a header: a call only if it names its tool."""
        recipient = _TO.search(header)
        if recipient is not None and b"assistant" not in recipient.group(1):
            name = self._tool_named(decode(recipient.group(1)))
            self._emit(unfinished(name, "", ending, "before its arguments"), "")

    def _emit(self, call: FoundCall, raw: str) -> None:
        event = ToolCallDelta(call.name, call.arguments, origin="harmony", choice=self._choice)
        self._outbox.call(replace(event, repairs=call.repairs, fault=call.fault), raw)


def _safe_end(data: Data, at: int) -> int:
    """Up to where no marker can have begun."""
    tail = data.rfind(b"<", max(at, len(data) - _LONGEST_EDGE + 1))
    if tail >= 0 and b"<|".startswith(bytes(data[tail : tail + 2])):
        return tail
    return len(data)


def _may_be_edge(data: Data, at: int, ending: Ending) -> bool:
    rest = bytes(data[at : at + _LONGEST_EDGE])
    if ending.is_final:
        return False
    return not rest or (len(rest) < _LONGEST_EDGE and b"<|".startswith(rest[:2]))
