"""Vendor chunks in, stream events out: the one place that knows how servers' deltas differ.

Text and reasoning go through a :class:`TextReader` (which finds calls written as text), native
calls through :class:`NativeCalls`. Calls leave at the end of the answer, whole; text and
reasoning leave as they come, less what may still begin a marker.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from edge.core.contract import Contract
from edge.core.native_calls import NativeCalls
from edge.core.output_policy import OutputPolicy
from edge.core.stream_events import (
    Extras,
    Finish,
    FinishReason,
    StreamEvent,
    UsageReport,
)
from edge.core.toolcalls.reader import TextReader
from edge.errors import ProviderProtocolError
from edge.wire.openai_chunks import Chunk, whole_chunk

FINISH_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    # Other names that servers use for the same four.
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_length": "length",
}

MAX_CHOICES = 128
"""As many as a request may ask for; each costs memory before it has said a word."""

# A server that ends with one of these did not end the answer.
BROKEN_FINISHES = frozenset({"error", "abort", "aborted", "cancelled"})

# Fields of a chunk, a delta and a choice that travel without being understood.
TOP_EXTRAS = frozenset({"system_fingerprint", "service_tier"})
DELTA_EXTRAS = ("refusal", "annotations", "audio")
BESIDE_EXTRAS = ("logprobs",)

_KNOWN_DELTA = frozenset(
    {"role", "content", "reasoning_content", "reasoning", "tool_calls", "function_call"}
)


class Reader(Protocol):
    """What the normalizer needs of a reader of model text."""

    def feed(self, text: str) -> list[StreamEvent]:
        """Events of a piece of content."""
        ...

    def pass_on(self, text: str) -> str | None:
        """The text that may leave now of a piece in the middle of an answer; None: feed it."""
        ...

    def feed_reasoning(self, text: str) -> list[StreamEvent]:
        """Events of a piece of the provider's own reasoning field."""
        ...

    def finish(self, *, truncated: bool, native_calls: bool = False) -> list[StreamEvent]:
        """What was held back, read to its end."""
        ...


class _Choice:
    """One choice while it is being received."""

    __slots__ = ("calls", "finish", "reader", "seen_finish")

    def __init__(self, reader: Reader, calls: NativeCalls) -> None:
        self.reader = reader
        self.calls = calls
        self.finish: FinishReason | None = None
        self.seen_finish = False


class Normalizer:
    """Turns one attempt's chunks into stream events: ``feed`` each chunk, then ``finish``.

    Attributes:
        usage: the newest token counts the provider told.
        held_chars: characters held as fragments of native calls.
        read_chars: characters of text and reasoning so far, held or not.

    Raises:
        ProviderProtocolError: out of ``feed``, where a chunk is no chunk at all; out of whatever
            is called next, once the server has said that it broke off.
    """

    def __init__(self, contract: Contract, policy: OutputPolicy, *, live: bool = True) -> None:
        """``live`` tells whether text is shown as it comes, or only whole."""
        self._contract = contract
        self._live = live
        self._policy = policy
        self._choices: dict[int, _Choice] = {}
        self._top_seen: set[str] = set()
        self._broken: ProviderProtocolError | None = None
        self.usage: dict[str, Any] | None = None
        self.held_chars = 0
        self.read_chars = 0

    @property
    def has_finish(self) -> bool:
        """Whether every choice seen so far has been given a finish reason."""
        return bool(self._choices) and all(c.seen_finish for c in self._choices.values())

    def pass_on(self, text: str) -> str | None:
        """The text that may leave now, for a chunk that is a piece of text in mid-answer.

        None where it is not as simple as that: then it is to be fed, as nothing has happened.
        """
        choice = self._choices.get(0)
        if choice is None or self._broken is not None:
            return None
        said = choice.reader.pass_on(text)
        if said is not None:
            self.read_chars += len(text)
        return said

    def feed(self, chunk: Chunk) -> list[StreamEvent]:
        """The events of one chunk."""
        if self._broken is not None:
            raise self._broken
        if isinstance(chunk, str):
            chunk = whole_chunk(chunk)
        if chunk.get("usage"):
            self._note_usage(chunk["usage"])
        choices = chunk.get("choices")
        if not choices:
            return []
        if type(choices) is not list:
            raise ProviderProtocolError("a chunk's choices are no list")
        events: list[StreamEvent] = []
        for entry in choices:
            if isinstance(entry, dict):
                self._feed_choice(entry, events)
        if not self._top_seen >= chunk.keys() & TOP_EXTRAS:
            self._note_top(chunk, events)
        return events

    def finish(self) -> list[StreamEvent]:
        """What was held back, the native calls, one Finish per choice, and the usage."""
        if self._broken is not None:
            raise self._broken
        events: list[StreamEvent] = []
        if not self._choices:
            self._choice(0)
        for index in sorted(self._choices):
            choice = self._choices[index]
            calls = choice.calls.finish()
            truncated = choice.finish == "length"
            events += choice.reader.finish(truncated=truncated, native_calls=bool(calls))
            events += calls
            events.append(Finish(choice.finish, index))
        if self.usage is not None:
            events.append(UsageReport(self.usage))
        self.held_chars = 0  # from here on they are counted where the calls are
        return events

    def _note_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self.usage = usage

    def _feed_choice(self, entry: Mapping[str, Any], events: list[StreamEvent]) -> None:
        index = entry.get("index")
        if type(index) is not int:
            index = 0
        choice = self._choice(index)
        delta = entry.get("delta")
        if delta is None:
            delta = entry.get("message")  # a whole answer in a chunk's place
        if delta and isinstance(delta, dict):
            self._feed_delta(choice, index, delta, events)
        reason = entry.get("finish_reason")
        if reason:
            self._finish_choice(choice, reason)
        if entry.get("logprobs"):
            beside = {name: entry[name] for name in BESIDE_EXTRAS if entry.get(name)}
            # Before the text they belong to, so that the emitter can put them in its chunk.
            events.insert(0, Extras(beside=beside, choice=index))

    def _feed_delta(
        self, choice: _Choice, index: int, delta: Mapping[str, Any], events: list[StreamEvent]
    ) -> None:
        content = delta.get("content")
        if len(delta) == 1 and type(content) is str and content:  # so are nearly all chunks
            self.read_chars += len(content)
            events += choice.reader.feed(content)
            return
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and isinstance(reasoning, str):
            self.read_chars += len(reasoning)
            events += choice.reader.feed_reasoning(reasoning)
        if content:
            text = content if isinstance(content, str) else _text_of_parts(content)
            self.read_chars += len(text)
            events += choice.reader.feed(text)
        calls = delta.get("tool_calls")
        legacy = delta.get("function_call")
        if calls or legacy:
            self._feed_calls(choice.calls, calls, legacy)
        if not delta.keys() <= _KNOWN_DELTA:
            extras = {name: delta[name] for name in DELTA_EXTRAS if delta.get(name)}
            if extras:
                events.append(Extras(delta=extras, choice=index))

    def _feed_calls(self, native: NativeCalls, calls: object, legacy: object) -> None:
        before = native.held_chars
        if calls:
            native.feed(calls)
        if legacy:
            native.feed_legacy(legacy)
        self.held_chars += native.held_chars - before

    def _finish_choice(self, choice: _Choice, reason: object) -> None:
        word = reason.lower() if isinstance(reason, str) else ""
        if word in BROKEN_FINISHES:
            self._broken = ProviderProtocolError(f"the provider ended its answer with {word!r}")
        # The first reason counts; a second one is a server that says the same thing twice.
        known = FINISH_REASONS.get(word)
        if known is not None and choice.finish is None:
            choice.finish = known
        choice.seen_finish = choice.seen_finish or known is not None

    def _note_top(self, chunk: Mapping[str, Any], events: list[StreamEvent]) -> None:
        """Report a top-level extra when it is first seen; they are constant within an answer."""
        new = {name: chunk[name] for name in TOP_EXTRAS if chunk.get(name)}
        new = {name: value for name, value in new.items() if name not in self._top_seen}
        self._top_seen |= new.keys()
        if new:
            events.insert(0, Extras(top=new))

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            if len(self._choices) >= MAX_CHOICES:
                raise ProviderProtocolError(f"the answer has more than {MAX_CHOICES} choices")
            policy = self._policy
            reader = TextReader(
                self._contract,
                recover=policy.recover,
                repair=policy.repair,
                forms=policy.forms,
                max_held_bytes=policy.max_held_bytes,
                choice=index,
                live=self._live,
            )
            choice = _Choice(reader, NativeCalls(self._contract.tools, index))
            self._choices[index] = choice
        return choice


def _text_of_parts(content: object) -> str:
    """Content as a list of parts, which a few servers send: their texts joined."""
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
