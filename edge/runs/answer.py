"""What a run says to its client: what may leave now, what is held, and how it ends.

A streamed answer decides, per stream event, between now and later. With ``buffer = "full"`` all
is held until the verdict; with ``tool_calls`` text and reasoning leave as they come and calls are
held; with ``off`` nothing waits for a verdict. Once text of one attempt has been shown, a later
attempt cannot take it back: its calls are delivered and its text is dropped, and if it answers
without calls, its text is set after what was shown, apart by a blank line.

The head is sent with the first bytes or the first heartbeat, so that what fails early has a real
HTTP status.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import trio

from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.emit import ChunkEmitter, completion_body, events_of
from edge.core.run_events import PieceEmitted
from edge.core.stream_events import (
    Extras,
    Finish,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
)
from edge.runs.books import AttemptRecord
from edge.runs.observers import Observers
from edge.runs.registry import ChatRun, Run
from edge.runs.reply import ClientGone, Reply
from edge.wire.sse import HEARTBEAT
from edge.wire.strict_json import encode

LIVE: frozenset[type[StreamEvent]] = frozenset({TextDelta, ReasoningDelta, Extras})
LIVE_UNJUDGED = LIVE | {ToolCallDelta}

STREAM_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # asks nginx not to buffer
)


class Answer(Protocol):
    """The answer of a run, over all its attempts."""

    def begin(self, record: AttemptRecord, *, hold_text: bool) -> None:
        """A new attempt; ``hold_text`` where its text must not be shown before the verdict."""
        ...

    @property
    def is_live(self) -> bool:
        """Whether the present attempt's text is shown as it comes."""
        ...

    @property
    def committed(self) -> bool:
        """Whether something of the present attempt has left for the client."""
        ...

    @property
    def shown_chars(self) -> int:
        """Characters of the present attempt that have left and are not held."""
        ...

    def offer(self, events: Sequence[StreamEvent], *, last: bool = False) -> bool:
        """Events as they come; what may leave now leaves now, and the ``last`` with what follows.

        Returns whether more may be offered at once; if not, :meth:`settle` comes first.
        """
        ...

    def offer_texts(self, texts: list[str], now: float) -> bool:
        """:meth:`offer` for pieces of choice 0's text, at the time ``now``; nearly all is that.

        A piece may be empty.
        """
        ...

    async def settle(self) -> None:
        """Wait until the client has been given what may leave; returns at once if it has."""
        ...

    async def deliver(self, output: CollectedOutput) -> None:
        """What waits, the rest of a sound answer, and its end."""
        ...


class _Trace:
    """Tells the observers of every piece that leaves, where the run is traced."""

    def __init__(self, run: Run, observers: Observers) -> None:
        self._run_id = run.id
        self._observers = observers
        self._seq = 0
        self.on = run.policy.trace

    def tell(self, events: Sequence[StreamEvent]) -> None:
        """One event for each piece; the calls of an answer are one piece."""
        calls = [event for event in events if isinstance(event, ToolCallDelta)]
        for event in events:
            match event:
                case TextDelta():
                    self._piece("content", event.text)
                case ReasoningDelta():
                    self._piece("reasoning", event.text)
                case ToolCallDelta() if event is calls[0]:
                    self._piece(
                        "tool_calls",
                        "".join(call.arguments for call in calls),
                        names=tuple(call.name for call in calls),
                        repairs=tuple(each for call in calls for each in call.repairs),
                    )
                case Finish():
                    self._piece("finish", "")

    def _piece(
        self,
        kind: str,
        text: str,
        *,
        names: tuple[str, ...] = (),
        repairs: tuple[str, ...] = (),
    ) -> None:
        self._seq += 1
        self._observers.tell(
            PieceEmitted(
                run_id=self._run_id,
                seq=self._seq,
                kind=kind,
                chars=len(text),
                names=names,
                repairs=repairs,
                text=text,
            )
        )


class StreamedAnswer:
    """Chunks over SSE.

    Attributes:
        last_write: when bytes were last given to the client, in trio's clock.
    """

    def __init__(self, run: ChatRun, reply: Reply, observers: Observers) -> None:
        self._trace = _Trace(run, observers)
        policy = run.policy
        self._run = run
        self._reply = reply
        self._emitter = ChunkEmitter(run.identity, include_usage=run.request.include_usage)
        self._live_kinds = LIVE if policy.validate == "enforce" else LIVE_UNJUDGED
        self._never_live = policy.buffer == "full" and policy.validate != "observe"
        self._record: AttemptRecord | None = None
        self._allowed: frozenset[type[StreamEvent]] = frozenset()
        self._shown_before: set[type[StreamEvent]] = set()
        self._shown_now: set[type[StreamEvent]] = set()
        self._writing = 0
        self._waiting = b""
        self._is_behind = False
        self._text_flows = False  # text has been shown, and more of it may follow as it comes
        self.last_write = trio.current_time()
        self.shown_chars = 0

    @property
    def is_live(self) -> bool:
        """See :class:`Answer`."""
        return TextDelta in self._allowed

    @property
    def committed(self) -> bool:
        """See :class:`Answer`."""
        return bool(self._shown_now)

    def begin(self, record: AttemptRecord, *, hold_text: bool) -> None:
        """See :class:`Answer`."""
        self._record = record
        self._shown_before |= self._shown_now
        self._shown_now = set()
        self._text_flows = False
        self._allowed = self._kinds_that_may_leave(hold_text=hold_text)
        self.shown_chars = 0

    def offer(self, events: Sequence[StreamEvent], *, last: bool = False) -> bool:
        """See :class:`Answer`."""
        allowed = self._allowed
        live = [event for event in events if type(event) in allowed]
        if self._trace.on:
            self._trace_held(events)
        data = self._emitter.feed(live) if live else b""
        if not data:
            return True
        self._note_shown(live)
        is_sent = False
        self._waiting += data
        if self._reply.started and not last:
            data, self._waiting = self._waiting, b""
            is_sent = self._reply.write_now(data)
            self._left(data, trio.current_time())
        self._is_behind = not is_sent
        if self._trace.on:
            self._trace.tell(live)
        else:
            self._text_flows = self._reply.started and TextDelta in self._shown_now
        return is_sent

    def offer_texts(self, texts: list[str], now: float) -> bool:
        """See :class:`Answer`."""
        if not self._text_flows:
            return self.offer([TextDelta(text) for text in texts if text])
        data = self._emitter.feed_texts(texts)
        if not data:
            return True
        for text in texts:
            self.shown_chars += len(text)
        is_sent = self._reply.write_now(data)
        self._left(data, now)
        self._is_behind = not is_sent
        return is_sent

    async def settle(self) -> None:
        """See :class:`Answer`."""
        if self._is_behind:
            self._is_behind = False
            data, self._waiting = self._waiting, b""
            await self._write(data)

    async def deliver(self, output: CollectedOutput) -> None:
        """See :class:`Answer`."""
        rest = replace(output, choices=tuple(self._rest(choice) for choice in output.choices))
        events = events_of(rest)
        data = self._emitter.feed(events) + self._emitter.finish(output.usage)
        data, self._waiting = self._waiting + data, b""
        await self._write(data, last=True)
        if self._trace.on:
            self._trace.tell(events)

    async def beat(self) -> None:
        """Send a comment; see :class:`~edge.runs.heartbeats.Heart`."""
        if self._writing:
            return  # it is we who wait for the client
        try:
            await self._write(HEARTBEAT, commits=False)
        except ClientGone:
            self._run.client_left()

    def _kinds_that_may_leave(self, *, hold_text: bool) -> frozenset[type[StreamEvent]]:
        """Kinds of events that need not wait for the verdict in the present attempt."""
        if self._never_live:
            return frozenset()
        # Calls and what goes with text wait where the text waits.
        kinds = frozenset({ReasoningDelta}) if hold_text else self._live_kinds
        return kinds - self._shown_before

    def _note_shown(self, events: Sequence[StreamEvent]) -> None:
        for event in events:
            kind = type(event)
            self._shown_now.add(kind)
            if kind is TextDelta or kind is ReasoningDelta:
                self.shown_chars += len(event.text)  # type: ignore[union-attr]

    def _rest(self, choice: CollectedChoice) -> CollectedChoice:
        """What of this choice has not been shown."""
        changes: dict[str, object] = {}
        if TextDelta in self._shown_now:
            changes["content"] = ""
        elif TextDelta in self._shown_before:
            apart = f"\n\n{choice.content}" if choice.content else ""
            changes["content"] = "" if choice.calls else apart
        if ReasoningDelta in self._shown_now or ReasoningDelta in self._shown_before:
            changes["reasoning"] = ""
        if ToolCallDelta in self._shown_now:
            changes["calls"] = ()
        if Extras in self._shown_now or Extras in self._shown_before:
            changes |= {"delta_extras": {}, "beside_extras": {}}
        return replace(choice, **changes) if changes else choice  # type: ignore[arg-type]

    async def _write(self, data: bytes, *, last: bool = False, commits: bool = True) -> None:
        # A heartbeat may come while the run's own write waits for the client, or the other way
        # round: the reply sends whole frames, in the order of the calls.
        self._writing += 1
        try:
            if not self._reply.started:
                headers = [*STREAM_HEADERS, *answer_headers(self._run, self._record)]
                await self._reply.start(200, headers)
            if last:
                await self._reply.finish(data)
                # From here on the run has ended well, whatever cancels its winding up.
                self._run.delivered = True
            else:
                await self._reply.write(data)
        finally:
            self._writing -= 1
        now = self.last_write = trio.current_time()
        if commits:
            self._left(data, now)

    def _left(self, data: bytes, now: float) -> None:
        """These bytes of the answer are on their way to the client."""
        self.last_write = now
        record = self._record
        if data and record is not None:
            record.released()
            record.bytes_out += len(data)
            if self._run.mirror is not None:
                self._run.mirror.emitted(data, now)

    def _trace_held(self, events: Sequence[StreamEvent]) -> None:
        """Tell those who follow a traced run what waits for the verdict."""
        if self._run.mirror is not None:
            self._run.mirror.held([each for each in events if type(each) not in self._allowed])


class WholeAnswer:
    """One JSON body, once the verdict is Valid."""

    is_live = False
    committed = False
    shown_chars = 0

    def __init__(self, run: ChatRun, reply: Reply, observers: Observers) -> None:
        self._trace = _Trace(run, observers)
        self._run = run
        self._reply = reply
        self._record: AttemptRecord | None = None

    def begin(self, record: AttemptRecord, *, hold_text: bool) -> None:  # noqa: ARG002 - it holds all
        """See :class:`Answer`."""
        self._record = record

    def offer(self, events: Sequence[StreamEvent], *, last: bool = False) -> bool:  # noqa: ARG002
        """Everything waits."""
        if self._trace.on and self._run.mirror is not None:
            self._run.mirror.held(events)
        return True

    def offer_texts(self, texts: list[str], now: float) -> bool:  # noqa: ARG002 - it holds all
        """Everything waits."""
        return self.offer([TextDelta(text) for text in texts if text]) if self._trace.on else True

    async def settle(self) -> None:
        """Nothing is under way before the end."""

    async def deliver(self, output: CollectedOutput) -> None:
        """See :class:`Answer`."""
        body = encode(completion_body(output, self._run.identity))
        headers = [(b"content-type", b"application/json")]
        headers += answer_headers(self._run, self._record)
        await self._reply.start(200, headers, content_length=len(body))
        await self._reply.finish(body)
        self._run.delivered = True
        if self._record is not None:
            self._record.released()
            self._record.bytes_out += len(body)
        if self._run.mirror is not None:
            self._run.mirror.answered(body)
        if self._trace.on:
            self._trace.tell(events_of(output))


def answer_headers(run: Run, record: AttemptRecord | None) -> list[tuple[bytes, bytes]]:
    """The headers every answer carries, and those that are known once an attempt runs."""
    headers = [
        (b"x-request-id", run.request_id.encode("latin-1", "replace")),
        (b"x-edge-run-id", run.id.encode()),
    ]
    if record is not None and record.provider:
        headers.append((b"x-edge-attempts", str(record.number).encode()))
        headers.append((b"x-edge-provider", record.provider.encode("ascii", "replace")))
    return headers


def open_answer(run: ChatRun, reply: Reply, observers: Observers) -> StreamedAnswer | WholeAnswer:
    """The kind of answer the client asked for."""
    kind = StreamedAnswer if run.stream else WholeAnswer
    return kind(run, reply, observers)
