"""Spans of runs and attempts: their names, attributes, parents, and what they never hold."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from edge.core.run_events import (
    AttemptEnd,
    AttemptEnded,
    AttemptStarted,
    RunEnded,
    RunStarted,
    Usage,
)
from edge.settings import Settings, SettingsError, cross_checks
from edge.telemetry import tracing
from edge.telemetry.tracing import RunTracer
from tests.fakes.gateway import ask_once, chat, gateway, upstream_config
from tests.fakes.openai_scripts import answers, refuses, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.tunnelled import post, scene

PARENT = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
STARTED = RunStarted(
    run_id="run_1", request_id="r", key="k", route="*", model="coder", streamed=True, at=0, time=0
)
ATTEMPT = AttemptStarted(
    run_id="run_1", attempt=1, provider="gpu1", model="qwen", path="normalized", at=0
)


def ended(status: AttemptEnd, **fields: Any) -> list[AttemptEnded | RunEnded]:
    row = AttemptEnded(
        run_id="run_1",
        attempt=1,
        time=0,
        key="k",
        route="*",
        provider="gpu1",
        model="qwen",
        path="normalized",
        response_mode="full",
        status=status,
        usage=fields.pop("usage", Usage(input_tokens=3, output_tokens=5, reported=True)),
        **fields,
    )
    error = str(fields.get("category", ""))
    run = RunEnded(
        run_id="run_1",
        status=status,
        attempts=1,
        at=1,
        total_s=1,
        error_type=error,
    )
    return [row, run]


class Traced:
    def __init__(self, sent: Mapping[str, str], *, trace_content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.passed_on: dict[str, str] = {}
        self.tell = RunTracer(
            provider.get_tracer("edge"),
            headers_of=lambda _: sent,
            pass_on=lambda _, headers: self.passed_on.update(headers),
            trace_content=trace_content,
        )

    def spans(self) -> tuple[ReadableSpan, ReadableSpan]:
        attempt, run = self.exporter.get_finished_spans()
        return run, attempt


def traced(status: AttemptEnd = "success", **fields: Any) -> Traced:
    content = bool(fields.pop("trace_content", False))
    found = Traced(PARENT, trace_content=content)
    for event in [STARTED, ATTEMPT, *ended(status, **fields)]:
        found.tell(event)
    return found


def test_an_attempt_is_a_span_below_its_run_and_the_run_continues_the_clients_trace() -> None:
    run, attempt = traced().spans()

    assert run.parent is not None
    assert attempt.parent is not None
    assert format(run.parent.span_id, "x") == "b" * 16
    assert run.context is not None
    assert attempt.parent.span_id == run.context.span_id


def test_the_provider_is_told_to_continue_the_attempts_span() -> None:
    found = traced()
    _, attempt = found.spans()

    assert attempt.context is not None
    told = re.fullmatch(r"00-(\w{32})-(\w{16})-01", found.passed_on["traceparent"])
    assert told is not None
    assert told[1] == "a" * 32
    assert told[2] == format(attempt.context.span_id, "016x")


def test_attributes_have_the_names_of_the_conventions() -> None:
    _, attempt = traced().spans()
    attributes = dict(attempt.attributes or {})

    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == "qwen"
    assert attributes["gen_ai.provider.name"] == "gpu1"
    assert attributes["gen_ai.usage.input_tokens"] == 3
    assert attributes["gen_ai.usage.output_tokens"] == 5


def test_guesses_are_not_told_as_the_providers_count() -> None:
    _, attempt = traced(usage=Usage(output_tokens=5)).spans()

    assert not [name for name in attempt.attributes or {} if name.startswith("gen_ai.usage")]
    assert (attempt.attributes or {})["edge.usage.reported"] is False


def test_a_failure_has_its_category_and_no_text() -> None:
    run, attempt = traced("validation_failed", category="schema", reason="secret text").spans()

    assert (attempt.attributes or {})["error.type"] == "schema"
    assert attempt.status.status_code is StatusCode.ERROR
    assert "secret text" not in attempt.to_json() + run.to_json()


@pytest.mark.parametrize(("status", "told"), [("success", ("look",)), ("validation_failed", None)])
def test_names_of_tools_are_told_where_they_are_names_of_tools(
    status: AttemptEnd, told: tuple[str, ...] | None
) -> None:
    _, attempt = traced(status, calls=("look",)).spans()

    assert (attempt.attributes or {}).get("edge.tool_calls") == told


def test_the_reason_is_told_where_content_may_be() -> None:
    fields: dict[str, Any] = {"category": "schema", "reason": "text", "trace_content": True}

    assert traced("validation_failed", **fields).spans()[1].status.description == "text"


def test_a_client_that_leaves_is_no_error() -> None:
    run, attempt = traced("cancelled", category="give_up").spans()

    assert run.status.status_code is attempt.status.status_code is StatusCode.UNSET


SIMULATED = """
[[providers]]
name = "sim"
kind = "simulated"
[[routes]]
model = "*"
targets = [{ provider = "sim" }]
[telemetry]
otel = true
"""


def test_tracing_without_the_extra_is_refused_with_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cross_checks, "find_spec", lambda _: None)

    with pytest.raises(SettingsError, match=r"edge\[otel\]"):
        Settings.from_toml(SIMULATED)


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Where the spans of gateways go that are built in this test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "otlp_provider", lambda: provider)
    return exporter


async def test_a_gateway_exports_its_spans_and_hands_its_trace_to_the_provider(
    exporter: InMemorySpanExporter,
) -> None:
    async with openai_server(streams("hello")) as upstream:
        config = upstream_config(upstream.base_url, telemetry="otel = true")
        async with gateway(config) as edge:
            await ask_once(edge.url, chat(), *PARENT.items())
            await edge.settled()

    attempt, run = exporter.get_finished_spans()
    sent = upstream.asked[0].headers["traceparent"]
    assert run.context is not None
    assert attempt.context is not None
    assert sent == f"00-{'a' * 32}-{attempt.context.span_id:016x}-01"
    assert [span.name for span in (run, attempt)] == ["chat coder", "chat coder"]


async def test_what_passes_through_is_traced_by_its_operation_and_each_attempt_is_continued(
    exporter: InMemorySpanExporter,
) -> None:
    scripts = refuses(503, "busy"), answers(200, {"data": []})
    async with scene(*scripts, telemetry="otel = true") as (client, upstream, edge):
        body = {"model": "bge", "input": "secret text"}
        parent = {**PARENT, "tracestate": "vendor=1"}
        await post(client, "/v1/embeddings", body, *parent.items())
        await edge.settled()

    first, second, run = exporter.get_finished_spans()
    assert {span.name for span in (first, second, run)} == {"embeddings bge"}
    assert run.parent is not None
    assert format(run.parent.span_id, "x") == "b" * 16
    assert first.context is not None
    assert second.context is not None
    told = [asked.headers["traceparent"].split("-")[2] for asked in upstream.asked]
    assert told == [f"{span.context.span_id:016x}" for span in (first, second)]
    assert {asked.headers["tracestate"] for asked in upstream.asked} == {"vendor=1"}
    assert "secret text" not in first.to_json() + second.to_json() + run.to_json()
