"""What is counted of runs and attempts, and under which labels."""

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from edge.core.run_events import CallRead, Usage
from edge.telemetry import metrics as metrics_module
from edge.telemetry.metrics import Metrics
from edge.telemetry.shared_metrics import FOLDER_VARIABLE
from tests.fakes.run_events import attempt_ended, attempt_started, run_ended, run_started
from tests.fakes.scraped import Scraped

ATTEMPT = {
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "gpu1",
    "gen_ai_request_model": "qwen3-coder",
}


def counted(*events: Any) -> Scraped:
    """What a scrape shows once these events have been told."""
    metrics = Metrics()
    metrics.know(["coder", "qwen3-coder"])
    for event in events:
        metrics(event)
    return scraped(metrics)


def scraped(metrics: Metrics) -> Scraped:
    body, _ = metrics.render()
    return Scraped(body)


def test_runs_are_counted_by_route_mode_and_status() -> None:
    seen = counted(run_ended(), run_ended(), run_ended(status="cancelled", response_mode="whole"))

    of_route = {"route": "coder"}
    assert seen.value("edge_runs_total", **of_route, mode="tool_calls", status="success") == 2
    assert seen.value("edge_runs_total", **of_route, mode="whole", status="cancelled") == 1


def test_a_run_takes_the_time_from_its_request_to_its_end() -> None:
    seen = counted(run_ended(total_s=3), run_ended(status="timeout", error_type="run_timeout"))

    name = "gen_ai_server_request_duration_seconds_sum"
    assert seen.value(name, route="coder", error_type="") == 3
    assert seen.value(name, route="coder", error_type="run_timeout") == 3


def test_attempts_are_counted_by_provider_path_status_and_category() -> None:
    seen = counted(
        attempt_ended(),
        attempt_ended(status="upstream_error", category="http_429", path="tunnel"),
        attempt_ended(provider="", path="none", status="rejected", category="overloaded"),
    )

    attempts = "edge_attempts_total"
    labels = {"provider": "gpu1", "path": "normalized", "status": "success", "category": ""}
    assert seen.value(attempts, **labels) == 1
    assert seen.total(attempts, category="http_429", path="tunnel") == 1
    assert seen.total(attempts, provider="none", status="rejected") == 1


def test_the_conventions_histograms_measure_an_attempt() -> None:
    usage = Usage(input_tokens=100, output_tokens=21, reported=True)
    seen = counted(attempt_ended(first_token_s=0.5, total_s=2.5, usage=usage))

    assert seen.value("gen_ai_server_time_to_first_token_seconds_sum", **ATTEMPT) == 0.5
    assert seen.value("gen_ai_server_time_per_output_token_seconds_sum", **ATTEMPT) == 0.1
    duration = "gen_ai_client_operation_duration_seconds_sum"
    assert seen.value(duration, **ATTEMPT, error_type="") == 2.5
    tokens = "gen_ai_client_token_usage_sum"
    assert seen.value(tokens, **ATTEMPT, gen_ai_token_type="input") == 100
    assert seen.value(tokens, **ATTEMPT, gen_ai_token_type="output") == 21


def test_guesses_are_not_shown_as_the_providers_count() -> None:
    seen = counted(attempt_ended(usage=Usage(output_tokens=7)))

    assert seen.total("gen_ai_client_token_usage_count") == 0
    assert seen.total("gen_ai_server_time_per_output_token_seconds_count") == 0


def test_an_attempt_that_was_never_dispatched_has_no_duration() -> None:
    seen = counted(attempt_ended(provider="", path="none", status="rejected", first_token_s=None))

    assert seen.total("gen_ai_client_operation_duration_seconds_count") == 0


def test_attempts_are_measured_by_their_operation() -> None:
    seen = counted(attempt_ended(), attempt_ended(path="tunnel", operation="embeddings"))

    name = "gen_ai_client_operation_duration_seconds_count"
    assert seen.total(name, gen_ai_operation_name="chat") == 1
    assert seen.total(name, gen_ai_operation_name="embeddings") == 1


def test_a_failure_names_its_kind() -> None:
    seen = counted(attempt_ended(status="timeout", category="idle_timeout"))

    name = "gen_ai_client_operation_duration_seconds_count"
    assert seen.total(name, error_type="idle_timeout") == 1


def test_models_that_nobody_configured_are_one() -> None:
    seen = counted(*(attempt_ended(model=f"made-up-{number}") for number in range(1000)))

    name = "gen_ai_client_operation_duration_seconds_count"
    assert seen.labels(name, "gen_ai_request_model") == {"other"}
    assert seen.total(name) == 1000


def test_words_are_bounded_whoever_makes_them_up() -> None:
    seen = counted(
        *(attempt_ended(status="upstream_error", category=f"word-{n}") for n in range(1000))
    )

    categories = seen.labels("edge_attempts_total", "category")
    assert len(categories) == metrics_module.MAX_WORDS + 1
    assert "other" in categories


NATIVE = CallRead("native", repaired=False)
MENDED = CallRead("native", repaired=True)
HERMES = CallRead("hermes", repaired=False)


def test_delivered_calls_are_native_recovered_or_repaired() -> None:
    seen = counted(attempt_ended(calls_read=(NATIVE, NATIVE, MENDED, HERMES)))

    def calls(form: str, verdict: str) -> float | None:
        return seen.value("edge_tool_calls_total", provider="gpu1", form=form, verdict=verdict)

    assert calls("native", "native") == 2
    assert calls("native", "repaired") == 1
    assert calls("hermes", "recovered") == 1


REFUSED: dict[str, Any] = {
    "status": "validation_failed",
    "category": "schema",
    "calls_read": (NATIVE, HERMES),
}


def verdicts(seen: Scraped) -> dict[str, float]:
    names = seen.labels("edge_tool_calls_total", "verdict")
    return {name: seen.total("edge_tool_calls_total", verdict=name) for name in names}


def test_refused_calls_are_retried_once_another_attempt_starts() -> None:
    seen = counted(
        run_started(),
        attempt_started(),
        attempt_ended(**REFUSED),
        attempt_started(attempt=2),
        attempt_ended(attempt=2, calls_read=(NATIVE,)),
        run_ended(attempts=2),
    )

    assert verdicts(seen) == {"retried": 2, "native": 1}


def test_refused_calls_with_nothing_after_them_have_failed() -> None:
    seen = counted(
        run_started(),
        attempt_started(),
        attempt_ended(**REFUSED),
        attempt_started(attempt=2),
        attempt_ended(attempt=2, **REFUSED),
        run_ended(attempts=2, status="validation_failed"),
    )

    assert verdicts(seen) == {"retried": 2, "failed": 2}


def test_a_call_that_the_model_server_refused_counts_as_one() -> None:
    failure = attempt_ended(status="validation_failed", category="tool_parse")
    seen = counted(run_started(), failure, run_ended(status="validation_failed"))

    assert verdicts(seen) == {"failed": 1}


def test_unsound_calls_that_were_delivered_all_the_same_were_observed() -> None:
    assert verdicts(counted(attempt_ended(category="schema", calls_read=(MENDED,)))) == {
        "observed": 1
    }


def test_faults_of_the_text_are_not_the_calls() -> None:
    delivered = attempt_ended(category="strict", calls_read=(NATIVE,))
    refused = attempt_ended(status="validation_failed", category="strict", calls_read=(NATIVE,))

    assert verdicts(counted(run_started(), refused, delivered, run_ended())) == {"native": 1}


def test_tokens_of_attempts_without_use_are_wasted() -> None:
    usage = Usage(input_tokens=100, output_tokens=7)
    seen = counted(
        attempt_ended(usage=usage),
        attempt_ended(status="validation_failed", usage=usage),
        attempt_ended(status="cancelled", usage=usage),
    )

    wasted = "edge_wasted_tokens_total"
    of_failed = {"provider": "gpu1", "status": "validation_failed"}
    assert seen.value(wasted, **of_failed, token_type="input") == 100
    assert seen.value(wasted, **of_failed, token_type="output") == 7
    assert seen.total(wasted, status="cancelled") == 107
    assert seen.total(wasted) == 214


def test_give_ups_are_counted_by_where_the_run_was() -> None:
    seen = counted(
        attempt_ended(status="cancelled", category="give_up", phase="streaming"),
        attempt_ended(status="drained", category="drain_s", phase="waiting"),
        attempt_ended(status="cancelled", category="run_cancelled", phase="streaming"),
    )

    assert seen.value("edge_give_ups_total", phase="streaming") == 1
    assert seen.value("edge_give_ups_total", phase="waiting") == 1


def test_how_long_cancelling_takes_is_measured() -> None:
    seen = counted(attempt_ended(status="cancelled", cancel_s=0.003), attempt_ended())

    assert seen.value("edge_cancel_latency_seconds_sum", provider="gpu1") == 0.003
    assert seen.value("edge_cancel_latency_seconds_count", provider="gpu1") == 1


def test_how_long_answers_are_held_is_measured_by_mode() -> None:
    seen = counted(attempt_ended(held_s=0.25), attempt_ended(first_token_s=None, held_s=0))

    assert seen.value("edge_held_seconds_sum", mode="tool_calls") == 0.25
    assert seen.value("edge_held_seconds_count", mode="tool_calls") == 1


def test_a_run_waits_from_its_request_to_its_first_dispatch() -> None:
    seen = counted(
        run_started(at=10.0), attempt_started(at=12.5), attempt_started(attempt=2, at=99.0)
    )

    assert seen.value("edge_queue_wait_seconds_sum", route="coder") == 2.5
    assert seen.value("edge_queue_wait_seconds_count", route="coder") == 1


def test_nothing_is_remembered_of_runs_that_have_ended() -> None:
    metrics = Metrics()
    for number in range(10):
        metrics(run_started(f"run_{number}"))
        metrics(run_ended(f"run_{number}"))

    assert metrics._live == {}


async def test_the_lag_of_the_event_loop_is_measured_all_the_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    metrics = Metrics()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(metrics.run)
        await trio.sleep(10 * metrics_module.EVERY_S + 0.1)
        nursery.cancel_scope.cancel()

    seen = scraped(metrics)
    assert seen.value("edge_loop_lag_seconds_count") == 10
    assert seen.value("edge_loop_lag_seconds_sum") == pytest.approx(0, abs=1e-6)


def test_two_gateways_in_one_process_do_not_share_their_numbers() -> None:
    one, other = Metrics(), Metrics()
    one(run_ended())

    assert scraped(one).total("edge_runs_total") == 1
    assert scraped(other).total("edge_runs_total") == 0


def test_the_form_is_the_one_that_is_asked_for() -> None:
    metrics = Metrics()

    assert metrics.render("")[1].startswith("text/plain")
    body, kind = metrics.render("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_a_worker_whose_folder_is_gone_tells_its_own_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "gone"))
    metrics = Metrics()
    metrics(run_ended())

    assert scraped(metrics).total("edge_runs_total") == 1
