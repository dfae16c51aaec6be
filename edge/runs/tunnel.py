"""Runs whose answers pass through as the bytes they are.

An attempt takes a slot, sends the client's own bytes, and hands on what comes back, read by read:
nothing is decoded, nothing waits. What is read on the side (usage, the stream's end) is the tap's
affair (``core.usage_tap``). All the rest is as in any run: admission, the attempt loop, deadlines,
one row per attempt, cancellation wherever the run is.

The commit point is the first byte to the client. Before it a failed attempt can be made again, so
an error answer is read first and passed on only when nothing else is tried; a success is passed on
with its first byte. After it nothing can be taken back: what breaks then ends in an error event
where one can stand, and else in the connection's being cut.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import trio

from edge.core.retry import RetryPolicy
from edge.core.usage_tap import NoTap, StreamTap, Tap, tap_for
from edge.errors import EdgeError, ProviderError, ProviderProtocolError, ProviderRefused
from edge.providers.openai import ERROR_BODY_WAIT_S, retry_after_s
from edge.providers.port import ByteStream, TunnelRequest
from edge.runs.answer import answer_headers
from edge.runs.apart import apart
from edge.runs.attempt import AttemptPlan, ProviderOptions
from edge.runs.books import AttemptRecord
from edge.runs.deadlines import AttemptDeadline
from edge.runs.dispatch import Lease
from edge.runs.registry import Run
from edge.runs.reply import Reply
from edge.runs.run import Desk, carry
from edge.wire.openai_chunks import chunk_error, decode_chunk
from edge.wire.sse import SseDecoder
from edge.wire.tunnelled import TunnelBody

MAX_ERROR_BYTES = 1024 * 1024
"""Bound of an error body; a longer one is not passed on."""

WIND_UP_S = 1.0
"""How long a stream may go on behind its ``[DONE]``."""

FOREVER = float("inf")

_FIRST_EVENT = re.compile(rb"data:.*?\n\r?\n", re.DOTALL)

_CREDENTIALS = frozenset({401, 403, 407})
"""Refusals that speak about our credentials at the provider, not about the client's."""


@dataclass(slots=True, kw_only=True)
class TunnelRun(Run):
    """A run whose request and answer pass through.

    Attributes:
        path: below the provider's base URL, with the query.
        headers: those of the client's that travel.
        is_completion: its streams have choices, may have usage, and end in ``[DONE]``.
    """

    path: str
    body: TunnelBody
    headers: list[tuple[bytes, bytes]]
    is_completion: bool = False


class Tunnel:
    """Carries tunnelled runs; what all of them share."""

    def __init__(self, desk: Desk, options: Mapping[str, ProviderOptions]) -> None:
        self._desk = desk
        self._draining = {name for name, its in options.items() if its.drain is not None}
        self._ask_usage = {name: its.ask_usage for name, its in options.items()}
        self._timeouts = {name: its.timeouts for name, its in options.items()}
        # An answer that is not streamed has no first token: it comes when it is done.
        self._patient = {
            name: replace(its.timeouts, first_token_s=FOREVER) for name, its in options.items()
        }

    def drains(self, provider: str) -> bool:
        """Whether this provider's answers are to be read on after a give-up: a tunnel does not."""
        return provider in self._draining

    async def carry(self, run: TunnelRun, passage: "Passage") -> None:
        """Carry a run to its end; its answer has been passed on when this returns.

        Raises:
            EdgeError: what the client must be told, in the provider's words if they are whole.
            ClientGone: the client has left, or stopped reading.
        """

        async def attempt(plan: AttemptPlan) -> tuple[AttemptRecord, None]:
            return await self._attempt(run, plan, passage), None

        retries = RetryPolicy(
            max_attempts=run.policy.max_attempts,
            feedback=False,
            constrain_last_attempt=False,
            targets=self._desk.dispatcher.targets(run.route, need_tunnel=True),
        )
        await carry(run, self._desk, retries, attempt)

    async def _attempt(
        self, run: TunnelRun, plan: AttemptPlan, passage: "Passage"
    ) -> AttemptRecord:
        desk = self._desk
        with AttemptRecord(run, desk.observers, number=plan.number) as record:
            run.phase = "queued"
            lease = await desk.dispatcher.lease(
                run.route, avoid=plan.how.avoid, need_normalized=False, need_tunnel=True
            )
            try:
                await self._pass_through(run, lease, record, passage)
                record.end("success")
            except EdgeError as error:
                if not run.delivered:
                    record.fail(error, committed=passage.committed)
            finally:
                lease.release(record.outcome)
        return record

    async def _pass_through(
        self, run: TunnelRun, lease: Lease, record: AttemptRecord, passage: "Passage"
    ) -> None:
        name = lease.provider_name
        model = lease.model or run.model
        asks = run.is_completion and run.stream and not run.body.include_usage
        asks = asks and self._ask_usage[name]
        record.started(lease, model, "tunnel")
        body = await apart(
            len(run.body.data), partial(run.body.for_provider, model, ask_usage=asks)
        )
        request = TunnelRequest(
            path=run.path,
            body=body,
            headers=[*run.headers, *_trace_fields(run)],
            model=model,
            attempt=record.number,
            run_id=run.id,
        )
        run.phase = "connecting"
        timeouts = (self._timeouts if run.stream else self._patient)[name]
        with AttemptDeadline(timeouts, provider=name) as deadline:
            async with lease.provider.open_tunnel(request) as stream:
                run.phase = "waiting"
                if stream.status >= 300 or (run.is_completion and stream.status != 200):
                    raise await _refusal(stream, name)
                await passage.take(stream, record, deadline, cut=asks)


class Passage:
    """The client's side of a tunnelled answer, over all attempts at it."""

    __slots__ = ("_headers", "_record", "_reply", "_run", "_stream", "_tap")

    _stream: ByteStream
    _record: AttemptRecord

    def __init__(self, run: TunnelRun, reply: Reply) -> None:
        self._run = run
        self._reply = reply
        self._headers: list[tuple[bytes, bytes]] = []
        self._tap: Tap = NoTap()

    @property
    def committed(self) -> bool:
        """Whether the client has been given something."""
        return self._reply.started

    @property
    def may_tell(self) -> bool:
        """Whether an error event may follow what the client has been given."""
        return self._tap.at_boundary

    async def take(
        self, stream: ByteStream, record: AttemptRecord, deadline: AttemptDeadline, *, cut: bool
    ) -> None:
        """Hand an answer on to its end.

        Args:
            stream: the answer, not an error.
            record: gets its sizes and its usage.
            deadline: told of every read.
            cut: whether usage was asked for that the client does not want.

        Raises:
            ProviderError: it broke off, or began with an error.
            ClientGone: while writing.
        """
        self._stream, self._record, self._headers = stream, record, stream.headers
        fields = dict(self._headers)
        media = fields.get(b"content-type", b"")
        self._tap = tap_for(media, encoded=b"content-encoding" in fields, cut=cut)
        try:
            await self._hand_on(deadline)
        finally:
            record.usage = self._tap.usage

    async def _hand_on(self, deadline: AttemptDeadline) -> None:
        stream, tap, passed = self._stream, self._tap, b""
        data = await stream.receive()
        if data:
            self._check_beginning(data)
            self._record.chunk_came()

        def take(data: bytes) -> bool:
            nonlocal passed
            deadline.progress()
            passed = tap.feed(data)
            if stream.ended or tap.done or not self._reply.started:
                return False
            is_sent = self._reply.write_now(passed)
            self._left(passed)
            passed = b""
            return is_sent

        while data:
            if take(data):
                await stream.receive_each(take)
            if stream.ended or tap.done:
                break
            if passed or self._reply.started:
                await self._write(passed)
                passed = b""
            data = await stream.receive()
        if stream.ended:
            rest = tap.finish()  # an event that has no end: what it holds is only told as an end
            await self._check_end(passed)
            passed += rest
        else:
            await self._write(passed)
            passed = await self._wind_up()
        await self._finish(passed)

    async def _write(self, data: bytes) -> None:
        if not self._reply.started:
            await self._begin()
        await self._reply.write(data)
        self._left(data)

    def _left(self, data: bytes) -> None:
        """These bytes are on their way to the client."""
        if data:
            self._record.bytes_out += len(data)
            self._mirror(data)

    async def _finish(self, data: bytes) -> None:
        if not self._reply.started:
            await self._begin()
        self._record.bytes_out += len(data)
        await self._reply.finish(data)
        self._run.delivered = True
        self._mirror(data, last=True)

    def _mirror(self, data: bytes, *, last: bool = False) -> None:
        """Leave a stream's bytes for those who follow the run; other bodies are not told."""
        mirror = self._run.mirror
        if mirror is not None and isinstance(self._tap, StreamTap):
            mirror.passed(data, last=last)

    async def _begin(self) -> None:
        """Send the head: from here on nothing can be taken back."""
        self._run.phase = "streaming"
        self._record.released()
        fields = [*self._headers, *answer_headers(self._run, self._record)]
        length: int | None = None
        given = dict(self._headers)
        if not isinstance(self._tap, StreamTap):
            told = given.get(b"content-length", b"")
            length = int(told) if told.isdigit() else None
        elif b"x-accel-buffering" not in given:
            fields.append((b"x-accel-buffering", b"no"))  # asks nginx not to buffer
        await self._reply.start(self._stream.status, fields, content_length=length)

    async def _wind_up(self) -> bytes:
        """The client has all it wanted; what still comes is passed on, for a moment."""
        self._run.delivered = True
        self._record.end("success")
        with trio.move_on_after(WIND_UP_S), suppress(ProviderError):
            while data := await self._stream.receive():
                await self._write(self._tap.feed(data))
        return self._tap.finish()

    def _check_beginning(self, data: bytes) -> None:
        """A stream that begins with an error is an attempt that failed, and can be made again."""
        if not isinstance(self._tap, StreamTap) or not self._run.is_completion:
            return
        first = _FIRST_EVENT.search(data)
        if first is None or b'"choices"' in first.group():
            return
        with suppress(ProviderProtocolError):
            payloads = SseDecoder().feed(first.group())
            error = chunk_error(decode_chunk(payloads[0])) if payloads else None
            if error is not None:
                error.provider = self._record.provider
                raise error

    async def _check_end(self, passed: bytes) -> None:
        """An answer may end soundly as bytes and yet be half an answer; then it is no success."""
        if not self._run.is_completion or self._tap.complete:
            return
        if passed and self._reply.started:
            await self._write(passed)
        raise ProviderProtocolError(
            "the provider's stream ended without a finish reason and without [DONE]",
            provider=self._record.provider,
        )


def _trace_fields(run: TunnelRun) -> list[tuple[bytes, bytes]]:
    """The trace context that the provider is to continue: a tracer has set its own by now."""
    fields = run.trace_headers.items()
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in fields]


async def _refusal(stream: ByteStream, provider: str) -> ProviderError:
    """The error that an answer's status means, with its body if that is whole."""
    status = stream.status
    if not 400 <= status < 600:  # redirects are not followed, and no completion is a 204
        return ProviderProtocolError(
            f"provider {provider!r} answered {status}, which is no answer to this request",
            provider=provider,
        )
    headers = stream.headers
    fields = dict(headers)
    body = await _error_body(stream)
    return ProviderRefused(
        f"provider {provider!r} answered {status}",
        provider=provider,
        upstream_status=status,
        upstream_body=body or b"",
        upstream_type=fields.get(b"content-type", b"").decode("latin-1"),
        upstream_headers=None if body is None or status in _CREDENTIALS else headers,
        retry_after_s=retry_after_s(fields.get(b"retry-after")),
    )


async def _error_body(stream: ByteStream) -> bytes | None:
    """The whole of an error's body; None where it is too long, too slow or breaks off."""
    body = bytearray()
    with trio.move_on_after(ERROR_BODY_WAIT_S), suppress(ProviderError):
        while data := await stream.receive():
            body += data
            if len(body) > MAX_ERROR_BYTES:
                return None
        return bytes(body)
    return None
