"""Structured logs: one JSON line (or one line for people) per run and per retry, on stderr.

Every line of the process has the same form: our own, and those of the libraries that log through
the standard library (hypercorn, Quart) or warn. Secrets are taken out of every line as it is
written, whoever logged it.

No line holds content: no prompt, no answer, and nothing that quotes them. What the model did wrong
is told as a category and a place; a reason in full quotes values, and is logged where its words
are the gateway's own (``_OWN_WORDS``), or with ``trace_content``.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import orjson
import structlog

from edge.core.run_events import AttemptEnded, PieceEmitted, RunEnded, RunEvent
from edge.telemetry.secrets import SecretMask

LogFormat: TypeAlias = Literal["json", "text", "off"]

# Failures that are nobody's surprise: they are in the row of the run, not lines of their own.
_QUIET = frozenset({"success", "cancelled", "drained"})

_OWN_WORDS = frozenset(
    {
        "connect",
        "connect_timeout",
        "first_token_timeout",
        "idle_timeout",
        "run_timeout",
        "protocol",
        "too_large",
        "overloaded",
        "rate_limited",
        "no_path",
    }
)
"""Categories of failures whose reason quotes neither the model nor the provider nor the client."""

MAX_PLACE = 200
"""Longest place that is logged: it may hold keys that the model made up."""

RUNS = "edge.runs"
"""The logger of runs, as its lines name it."""

_Logger: TypeAlias = structlog.typing.FilteringBoundLogger | structlog.stdlib.BoundLogger

_mask = SecretMask()


def hide_secrets(secrets: Iterable[str]) -> None:
    """Take these values out of every line from now on, as long as the process lives."""
    _mask.add(secrets)


def configure_logs(form: LogFormat) -> None:
    """Send every log line to stderr in one form; call once, when the process begins."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        structlog.processors.StackInfoRenderer(),
    ]
    _log_runs_with(form)
    root = logging.getLogger()
    root.handlers = [logging.NullHandler() if form == "off" else _handler(form, shared)]
    root.setLevel(logging.CRITICAL + 1 if form == "off" else logging.INFO)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _usual_logger() -> _Logger:
    logger: _Logger = structlog.get_logger(RUNS)
    return logger


_run_logger: Callable[[], _Logger] = _usual_logger


def _log_runs_with(form: LogFormat) -> None:
    """Choose the logger of runs.

    Every run ends in a line, so the lines for machines are made by one pass of structlog and
    written at once: through the standard library's logging they were a tenth of what a short
    request costs. They look the same.
    """
    global _run_logger
    _run_logger = _quick_logger if form == "json" else _usual_logger


def _quick_logger() -> _Logger:
    logger: _Logger = structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(serializer=_json_line, default=str),
            _without_secrets,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    return logger.bind(logger=RUNS)


def _json_line(event: dict[str, Any], default: Callable[[Any], Any]) -> str:
    try:
        return orjson.dumps(event, default, orjson.OPT_PASSTHROUGH_DATACLASS).decode()
    except orjson.JSONEncodeError:  # a lone surrogate, or a big integer
        return json.dumps(event, default=default)


def _handler(form: LogFormat, shared: list[structlog.typing.Processor]) -> logging.Handler:
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer(
        serializer=_json_line, default=str
    )
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                renderer,
                _without_secrets,
            ],
        )
    )
    return handler


def _without_secrets(_logger: object, _method: str, line: Any) -> Any:
    """The last of the processors: it gets the line as it would be written."""
    return _mask.hide(line)


class RunLog:
    """Logs failed attempts as warnings, every run's end, and the pieces of traced runs.

    An observer of run events.

    Args:
        trace_content: log the text of pieces, and reasons that quote the answer.
    """

    def __init__(self, *, trace_content: bool = False) -> None:
        self._trace_content = trace_content
        self._log = _run_logger()

    def __call__(self, event: RunEvent) -> None:
        """Write the line of this event, if it has one."""
        match event:
            case AttemptEnded() if event.status not in _QUIET:
                self._attempt_failed(event)
            case RunEnded():
                self._run_ended(event)
            case PieceEmitted():
                self._piece(event)

    def _attempt_failed(self, event: AttemptEnded) -> None:
        more: dict[str, object] = {}
        place = event.param[:MAX_PLACE]
        if place:
            more["param"] = place
        if event.upstream_status:
            more["upstream_status"] = event.upstream_status
        reason = f"{event.category} at {place}" if place else event.category
        if self._trace_content or event.category in _OWN_WORDS:
            reason = event.reason
        self._log.warning(
            "attempt failed",
            run_id=event.run_id,
            attempt=event.attempt,
            provider=event.provider,
            status=event.status,
            category=event.category,
            reason=reason,
            **more,
        )

    def _run_ended(self, event: RunEnded) -> None:
        more: dict[str, object] = {}
        if event.error_type:
            more["error_type"] = event.error_type
        if event.status == "success" or self._trace_content:
            # Those of a failed answer may be any words of the model.
            more["calls"] = event.calls
        self._log.info(
            "run ended",
            run_id=event.run_id,
            request_id=event.request_id,
            key=event.key,
            route=event.route,
            model=event.model,
            provider=event.provider,
            status=event.status,
            attempts=event.attempts,
            total_s=round(event.total_s, 4),
            response_mode=event.response_mode,
            content_chars=event.content_chars,
            reasoning_chars=event.reasoning_chars,
            policy=event.policy,
            **more,
        )

    def _piece(self, event: PieceEmitted) -> None:
        text = {"text": event.text} if self._trace_content else {}
        self._log.info(
            "piece",
            run_id=event.run_id,
            seq=event.seq,
            kind=event.kind,
            chars=event.chars,
            **({"names": event.names} if event.names else {}),
            **({"repairs": event.repairs} if event.repairs else {}),
            **text,
        )
