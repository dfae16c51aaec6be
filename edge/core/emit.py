"""The one piece of code that writes answers: stream events to chunks, and whole answers to bodies.

Order within a stream: role, reasoning, content, one ``tool_calls`` chunk holding one whole entry
per call, the finish chunk, the usage chunk if the client asked for it, ``[DONE]``. ``id``,
``created`` and ``model`` never change within an answer; role, call id and name are sent once,
since the official SDK joins every repeated string (openai-python, ``lib/streaming/_deltas.py``).
Folding the chunks of an answer gives its non-streamed body.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from edge.core.collect import merge
from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.stream_events import (
    Extras,
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)
from edge.wire.sse import DONE, encode_event
from edge.wire.strict_json import encode


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk of an answer repeats; ``created`` is in seconds since 1970."""

    id: str
    created: int
    model: str


@dataclass(slots=True)
class _Choice:
    """What has been said of one choice, and the ready-made heads of its next chunks."""

    text_head: bytes
    reasoning_head: bytes
    calls: int = 0
    finished: bool = False


@dataclass(slots=True)
class _Pending:
    """Extras of a choice that wait for its next chunk."""

    delta: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)


class CallIds:
    """Gives every call of an answer an id of its own: the provider's, unless empty or taken."""

    def __init__(self, answer_id: str) -> None:
        self._stem = "call_" + answer_id.rsplit("_", 1)[-1].rsplit("-", 1)[-1]
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """An id that no other call of this answer has."""
        given, number = wanted, len(self._taken)
        while not given or given in self._taken:
            given = f"{self._stem}_{number}"
            number += 1
        self._taken.add(given)
        return given


class ChunkEmitter:
    """Writes one streamed answer: ``feed`` events in order, then ``finish``; both give bytes."""

    def __init__(self, identity: Identity, *, include_usage: bool = False) -> None:
        self._identity = identity
        self._include_usage = include_usage
        self._choices: dict[int, _Choice] = {}
        self._pending: dict[int, _Pending] = {}
        self._top: dict[str, Any] = {}
        self._ids = CallIds(identity.id)
        tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._delta_tail = b'},"finish_reason":null}]' + tail
        self._tail = b"]" + tail
        self._head = b""
        self._set_head()

    def feed(self, events: Iterable[StreamEvent]) -> bytes:
        """The chunks of these events, ready for the client; a choice opens with its role chunk."""
        out: list[bytes] = []
        calls: list[ToolCallDelta] = []
        for event in events:
            if calls and (type(event) is not ToolCallDelta or event.choice != calls[0].choice):
                self._emit_calls(calls, out)
                calls = []
            kind = type(event)
            if kind is TextDelta or kind is ReasoningDelta:
                self._emit_text(event, out)  # type: ignore[arg-type]
            elif kind is ToolCallDelta:
                calls.append(event)  # type: ignore[arg-type]
            elif kind is Finish:
                self._emit_finish(event, out)  # type: ignore[arg-type]
            elif kind is Extras:
                self._note_extras(event)  # type: ignore[arg-type]
        if calls:
            self._emit_calls(calls, out)
        return b"".join(out)

    def feed_texts(self, texts: list[str]) -> bytes:
        """The chunks of pieces of choice 0's text, one each; an empty one makes none."""
        choice = self._choices.get(0)
        if choice is None or self._pending:
            return self.feed([TextDelta(text) for text in texts if text])
        head, tail = choice.text_head, self._delta_tail
        return b"".join([head + _json_text(text) + tail for text in texts if text])

    def finish(self, usage: dict[str, Any] | None) -> bytes:
        """The usage chunk, if it was asked for and is known, and ``[DONE]``."""
        if not self._include_usage or usage is None:
            return DONE
        body = {**self._base(), "choices": [], "usage": usage}
        return encode_event(encode(body)) + DONE

    def _emit_text(self, event: TextDelta | ReasoningDelta, out: list[bytes]) -> None:
        choice = self._choices.get(event.choice) or self._open(event.choice, out)
        if event.choice in self._pending:
            name = "content" if type(event) is TextDelta else "reasoning_content"
            self._emit_entry(event.choice, {name: event.text}, out)
            return
        head = choice.text_head if type(event) is TextDelta else choice.reasoning_head
        out.append(head + _json_text(event.text) + self._delta_tail)

    def _emit_calls(self, calls: list[ToolCallDelta], out: list[bytes]) -> None:
        index = calls[0].choice
        choice = self._choices.get(index) or self._open(index, out)
        entries = []
        for call in calls:
            entry = call_entry(call, self._ids.take(call.id))
            entries.append({"index": choice.calls, **entry})
            choice.calls += 1
        self._emit_entry(index, {"tool_calls": entries}, out)

    def _emit_finish(self, event: Finish, out: list[bytes]) -> None:
        choice = self._choices.get(event.choice) or self._open(event.choice, out)
        if choice.finished:
            return
        if event.choice in self._pending:
            self._emit_entry(event.choice, {}, out)
        choice.finished = True
        reason = truthful_finish(event.reason, has_calls=choice.calls > 0)
        out.append(
            b'%s{"index":%d,"delta":{},"finish_reason":"%s"}%s'
            % (self._head, event.choice, reason.encode(), self._tail)
        )

    def _emit_entry(self, index: int, delta: dict[str, Any], out: list[bytes]) -> None:
        """One chunk with whatever extras of its choice have been waiting for it."""
        pending = self._pending.pop(index, None) or _Pending()
        entry = {"index": index, "delta": {**delta, **pending.delta}, "finish_reason": None}
        out.append(self._head + encode({**entry, **pending.beside}) + self._tail)

    def _note_extras(self, event: Extras) -> None:
        if event.top:
            self._top.update(event.top)
            self._set_head()
        if event.delta or event.beside:
            pending = self._pending.setdefault(event.choice, _Pending())
            merge(pending.delta, event.delta)
            merge(pending.beside, event.beside)

    def _open(self, index: int, out: list[bytes]) -> _Choice:
        choice = self._choices[index] = self._new_choice(index)
        out.append(
            b'%s{"index":%d,"delta":{"role":"assistant","content":""},"finish_reason":null}%s'
            % (self._head, index, self._tail)
        )
        return choice

    def _new_choice(self, index: int) -> _Choice:
        start = b'%s{"index":%d,"delta":{' % (self._head, index)
        return _Choice(start + b'"content":', start + b'"reasoning_content":')

    def _set_head(self) -> None:
        """Build the bytes that all chunks begin with; choices that are open get them anew."""
        self._head = b"data: " + encode(self._base())[:-1] + b',"choices":['
        for index, choice in self._choices.items():
            fresh = self._new_choice(index)
            choice.text_head, choice.reasoning_head = fresh.text_head, fresh.reasoning_head

    def _base(self) -> dict[str, Any]:
        identity = self._identity
        return {
            "id": identity.id,
            "object": "chat.completion.chunk",
            "created": identity.created,
            "model": identity.model,
            **self._top,
        }


def _json_text(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:  # a lone surrogate, which UTF-8 has no bytes for
        return encode(text)


def truthful_finish(reason: FinishReason | None, *, has_calls: bool) -> FinishReason:
    """The finish reason that is true of what the client gets.

    ``tool_calls`` exactly when calls are delivered; ``length`` and ``content_filter`` as the
    provider said (the SDK's parse helpers raise on these two); anything else is ``stop``.
    """
    if has_calls:
        return "tool_calls"
    if reason in ("length", "content_filter"):
        return reason
    return "stop"


def call_entry(call: ToolCallDelta, call_id: str) -> dict[str, Any]:
    """One whole call as clients read it; arguments are one JSON object as a string."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def events_of(output: CollectedOutput) -> list[StreamEvent]:
    """A whole answer as the events that stream it in the emitter's order."""
    events: list[StreamEvent] = []
    if output.top_extras:
        events.append(Extras(top=output.top_extras))
    for choice in output.choices:
        index = choice.index
        if choice.reasoning:
            events.append(ReasoningDelta(choice.reasoning, index))
        if choice.delta_extras or choice.beside_extras:
            events.append(Extras({}, choice.delta_extras, choice.beside_extras, index))
        if choice.content:
            events.append(TextDelta(choice.content, index))
        events.extend(choice.calls)
        events.append(Finish(choice.finish, index))
    if output.usage is not None:
        events.append(UsageReport(output.usage))
    return events


def completion_body(output: CollectedOutput, identity: Identity) -> dict[str, Any]:
    """The non-streamed ``chat.completion`` of an answer."""
    ids = CallIds(identity.id)
    body: dict[str, Any] = {
        "id": identity.id,
        "object": "chat.completion",
        "created": identity.created,
        "model": identity.model,
        **output.top_extras,
        "choices": [_choice_body(choice, ids) for choice in output.choices],
    }
    if output.usage is not None:
        body["usage"] = output.usage
    return body


def _choice_body(choice: CollectedChoice, ids: CallIds) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": choice.content}
    if choice.reasoning:
        message["reasoning_content"] = choice.reasoning
    if choice.calls:
        message["content"] = choice.content or None
        message["tool_calls"] = [call_entry(call, ids.take(call.id)) for call in choice.calls]
    message.update(choice.delta_extras)
    reason = truthful_finish(choice.finish, has_calls=bool(choice.calls))
    return {
        "index": choice.index,
        "message": message,
        "finish_reason": reason,
        **choice.beside_extras,
    }
