"""Log lines: one form for all of them, and no content and no secret in any."""

import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from edge.core.run_events import PieceEmitted
from edge.telemetry import logs
from edge.telemetry.logs import LogFormat, RunLog, configure_logs, hide_secrets
from edge.telemetry.secrets import MASK, SecretMask
from tests.fakes.run_events import attempt_ended, attempt_started, run_ended, run_started


class Stderr:
    """What has been written to stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._written = ""

    def getvalue(self) -> str:
        self._written += self._capsys.readouterr().err
        return self._written


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Stderr]:
    """Stderr; logging is put back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    monkeypatch.setattr(logs, "_mask", SecretMask())
    yield Stderr(capsys)
    root.handlers = handlers
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(written: Stderr) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def only(written: Stderr) -> dict[str, Any]:
    (line,) = lines(written)
    return line


def test_a_run_ends_in_one_line_with_its_ids(stderr: Stderr) -> None:
    configure_logs("json")
    log = RunLog()
    for event in (run_started(), attempt_started(), attempt_ended()):
        log(event)
    log(run_ended(calls=("weather",), policy="buffer=full validate=enforce"))

    line = only(stderr)
    assert isinstance(line.pop("timestamp"), str)
    assert line == {
        "event": "run ended",
        "level": "info",
        "logger": "edge.runs",
        "run_id": "run_1",
        "request_id": "req_1",
        "key": "team-a",
        "route": "coder",
        "model": "coder",
        "provider": "gpu1",
        "status": "success",
        "attempts": 1,
        "total_s": 3.0,
        "response_mode": "tool_calls",
        "content_chars": 0,
        "reasoning_chars": 0,
        "calls": ["weather"],
        "policy": "buffer=full validate=enforce",
    }


INVALID = attempt_ended(
    attempt=2,
    status="validation_failed",
    category="schema",
    param="tool_calls[0].arguments.city",
    reason='weather: city: "the secret plan" is none of the allowed values',
    calls=("the_secret_tool",),
)


def test_a_failed_attempt_is_a_line_that_says_what_and_where_but_quotes_nothing(
    stderr: Stderr,
) -> None:
    configure_logs("json")
    RunLog()(INVALID)

    line = only(stderr)
    assert (line["level"], line["event"]) == ("warning", "attempt failed")
    assert (line["run_id"], line["attempt"], line["provider"]) == ("run_1", 2, "gpu1")
    assert (line["category"], line["param"]) == ("schema", "tool_calls[0].arguments.city")
    assert line["reason"] == "schema at tool_calls[0].arguments.city"
    assert "secret" not in stderr.getvalue()


def test_with_trace_content_the_reason_is_told_in_words(stderr: Stderr) -> None:
    configure_logs("json")
    RunLog(trace_content=True)(INVALID)

    assert only(stderr)["reason"] == INVALID.reason


@pytest.mark.parametrize(
    ("status", "category", "is_told"),
    [
        ("upstream_error", "connect", True),
        ("timeout", "idle_timeout", True),
        ("upstream_error", "protocol", True),
        ("rejected", "overloaded", True),
        ("upstream_error", "http_5xx", False),  # quotes the provider, which may quote the prompt
        ("upstream_error", "stream_error", False),
        ("validation_failed", "tool_parse", False),
        ("rejected", "request", False),
    ],
)
def test_a_reason_is_told_where_its_words_are_our_own(
    stderr: Stderr, status: Any, category: str, is_told: bool
) -> None:
    configure_logs("json")
    RunLog()(attempt_ended(status=status, category=category, reason="because"))

    assert only(stderr)["reason"] == ("because" if is_told else category)


def test_the_status_of_a_refusal_is_told(stderr: Stderr) -> None:
    configure_logs("json")
    RunLog()(attempt_ended(status="upstream_error", category="http_5xx", upstream_status=503))

    assert only(stderr)["upstream_status"] == 503


def test_a_place_that_the_model_made_up_is_bounded(stderr: Stderr) -> None:
    configure_logs("json")
    RunLog()(attempt_ended(status="validation_failed", param="x" * 10_000))

    assert len(stderr.getvalue()) < 1_000


@pytest.mark.parametrize("status", ["success", "cancelled", "drained"])
def test_attempts_that_are_nobodys_failure_have_no_line_of_their_own(
    stderr: Stderr, status: Any
) -> None:
    configure_logs("json")
    RunLog()(attempt_ended(status=status))

    assert stderr.getvalue() == ""


def test_names_that_a_failed_answer_called_are_not_told(stderr: Stderr) -> None:
    configure_logs("json")
    RunLog()(run_ended(status="validation_failed", calls=("anything it likes",)))

    assert "calls" not in only(stderr)


PIECE = PieceEmitted(run_id="run_1", seq=3, kind="content", chars=4, text="text")


@pytest.mark.parametrize("trace_content", [True, False])
def test_the_text_of_a_traced_run_needs_leave_of_its_own(
    stderr: Stderr, trace_content: bool
) -> None:
    configure_logs("json")
    RunLog(trace_content=trace_content)(PIECE)

    line = only(stderr)
    assert (line["seq"], line["kind"], line["chars"]) == (3, "content", 4)
    assert ("text" in line) is trace_content


@pytest.mark.parametrize(
    "logger", ["edge.server", "edge.server.hypercorn", "edge", "quart.app", "hypercorn.error"]
)
def test_lines_of_libraries_have_the_same_form(stderr: Stderr, logger: str) -> None:
    configure_logs("json")
    logging.getLogger(logger).warning("%s of %d", "one", 2)

    line = only(stderr)
    assert (line["event"], line["level"], line["logger"]) == ("one of 2", "warning", logger)
    assert "timestamp" in line


def test_a_failure_is_one_line_with_its_traceback(stderr: Stderr) -> None:
    configure_logs("json")
    try:
        raise ValueError("what went wrong")
    except ValueError:
        logging.getLogger("edge.server").exception("it failed")

    assert "ValueError: what went wrong" in only(stderr)["exception"]


def test_a_warning_of_python_is_a_line_too(stderr: Stderr) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        configure_logs("json")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        logging.captureWarnings(False)

    assert "DeprecationWarning: old" in only(stderr)["event"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_taken_out_of_every_line(stderr: Stderr, form: LogFormat) -> None:
    configure_logs(form)
    hide_secrets(["hunter2"])
    RunLog()(run_ended(request_id="hunter2", model="hunter2", policy="hunter2"))
    logging.getLogger("hypercorn").error("got %r", {"authorization": "Bearer other-key-9"})
    try:
        raise ValueError("hunter2")
    except ValueError:
        logging.getLogger("edge.server").exception("it failed")

    told = stderr.getvalue()
    assert "hunter2" not in told
    assert "other-key-9" not in told
    assert told.count(MASK) >= 5


def test_lines_for_people_are_lines(stderr: Stderr) -> None:
    configure_logs("text")
    RunLog()(run_ended())

    (line,) = stderr.getvalue().splitlines()
    assert "run ended" in line
    assert "run_id=run_1" in line


def test_off_is_off_for_everybody(stderr: Stderr) -> None:
    configure_logs("off")
    RunLog()(run_ended())
    loud = logging.getLogger("edge.loud")
    loud.setLevel(logging.DEBUG)
    loud.critical("anything")

    assert stderr.getvalue() == ""


def test_below_info_nothing_is_told(stderr: Stderr) -> None:
    configure_logs("json")
    logging.getLogger("edge").debug("detail")

    assert stderr.getvalue() == ""


def test_what_is_no_unicode_is_logged_all_the_same(stderr: Stderr) -> None:
    configure_logs("json")
    RunLog()(run_ended(calls=("\ud800",)))

    assert only(stderr)["calls"] == ["\ud800"]


def test_a_secret_is_hidden_however_it_is_written(stderr: Stderr) -> None:
    configure_logs("json")
    hide_secrets(['clé"secrète'])
    RunLog()(run_ended(calls=('clé"secrète',)))
    logging.getLogger("other").warning('clé"secrète')

    assert "secr" not in stderr.getvalue()
    assert [line["logger"] for line in lines(stderr)] == ["edge.runs", "other"]
