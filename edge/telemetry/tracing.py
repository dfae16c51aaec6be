"""OpenTelemetry: a span for each run and, below it, one for each attempt.

The run's span continues the trace of its client (``traceparent``), and each attempt's span is
what the provider is told to continue. Spans hold no text of models or clients, but for the
reason of a failure where content may be traced.

Exporting is the SDK's affair: a thread of its own behind a bounded queue, configured by the
standard ``OTEL_*`` variables. Attribute names are OpenTelemetry's conventions for generative AI;
ours begin with ``edge.``.

The SDK is an extra (``edge[otel]``), so this module is imported only where it is wanted.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunEvent, RunStarted

_W3C = TraceContextTextMapPropagator()
_SOUND = ("success", "cancelled", "drained")
"""Statuses that are no error: a client that leaves is none."""


@dataclass(slots=True, eq=False)
class _Spans:
    run: Span
    attempts: dict[int, Span] = field(default_factory=dict)


class RunTracer:
    """An observer that makes spans of run events.

    Args:
        tracer: the SDK's.
        headers_of: the trace context that a run's client sent, by run id.
        pass_on: sets the trace context that a run's provider is told.
        trace_content: whether reasons, which may quote a model, may be told.
    """

    def __init__(
        self,
        tracer: Tracer,
        *,
        headers_of: Callable[[str], Mapping[str, str]],
        pass_on: Callable[[str, dict[str, str]], None],
        trace_content: bool = False,
    ) -> None:
        self._tracer = tracer
        self._headers_of = headers_of
        self._pass_on = pass_on
        self._trace_content = trace_content
        self._live: dict[str, _Spans] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take one event."""
        match event:
            case RunStarted():
                self._run_started(event)
            case AttemptStarted():
                self._attempt_started(event)
            case AttemptEnded():
                self._attempt_ended(event)
            case RunEnded():
                self._run_ended(event)

    def _run_started(self, event: RunStarted) -> None:
        span = self._tracer.start_span(
            f"{event.operation} {event.model}",
            context=_W3C.extract(self._headers_of(event.run_id)),
            kind=SpanKind.SERVER,
            attributes={
                "gen_ai.operation.name": event.operation,
                "gen_ai.request.model": event.model,
                "edge.run.id": event.run_id,
                "edge.route": event.route,
                "edge.key": event.key,
                "edge.stream": event.streamed,
            },
        )
        self._live[event.run_id] = _Spans(span)

    def _attempt_started(self, event: AttemptStarted) -> None:
        spans = self._live.get(event.run_id)
        if spans is None:
            return
        context = set_span_in_context(spans.run)
        span = self._tracer.start_span(
            f"{event.operation} {event.model}",
            context=context,
            kind=SpanKind.CLIENT,
            attributes={
                "gen_ai.operation.name": event.operation,
                "gen_ai.request.model": event.model,
                "gen_ai.provider.name": event.provider,
                "edge.attempt": event.attempt,
                "edge.path": event.path,
                "edge.constrained": event.constrained,
            },
        )
        spans.attempts[event.attempt] = span
        headers: dict[str, str] = {}
        _W3C.inject(headers, set_span_in_context(span))
        self._pass_on(event.run_id, headers)

    def _attempt_ended(self, event: AttemptEnded) -> None:
        spans = self._live.get(event.run_id)
        span = spans.attempts.pop(event.attempt, None) if spans else None
        if span is None:
            return  # it never had a slot: the run's span tells
        span.set_attributes(
            {
                "edge.usage.reported": event.usage.reported,
                "edge.status": event.status,
                "edge.forms": event.forms,
                "edge.repairs": event.repairs,
            }
        )
        if event.usage.reported:
            span.set_attribute("gen_ai.usage.input_tokens", event.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", event.usage.output_tokens)
        if event.status == "success" or self._trace_content:
            # Those of a failed answer may be any words of the model.
            span.set_attribute("edge.tool_calls", event.calls)
        if event.first_token_s is not None:
            span.set_attribute("edge.first_token_s", event.first_token_s)
        self._conclude(span, event.status, event.category, event.reason)

    def _run_ended(self, event: RunEnded) -> None:
        spans = self._live.pop(event.run_id, None)
        if spans is None:
            return
        spans.run.set_attribute("edge.status", event.status)
        spans.run.set_attribute("edge.attempts", event.attempts)
        self._conclude(spans.run, event.status, event.error_type, "")

    def _conclude(self, span: Span, status: str, category: str, reason: str) -> None:
        if status not in _SOUND:
            span.set_attribute("error.type", category or status)
            told = reason if self._trace_content else None
            span.set_status(Status(StatusCode.ERROR, told))
        span.end()


def otlp_provider() -> TracerProvider:
    """A provider that exports over OTLP/HTTP as the ``OTEL_*`` variables say.

    Whoever built it must call ``shutdown``, which may wait for the last export.
    """
    named = "OTEL_SERVICE_NAME" in os.environ
    resource = Resource.create({} if named else {"service.name": "edge"})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
