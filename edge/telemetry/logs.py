"""Structured logs: one JSON line (or one line for people) per run and per retry, on stderr.

Content is never logged unless ``trace_content`` says so. Standard-library loggers (hypercorn's,
Quart's and our own) come out in the same form.
"""

import logging
import sys
from typing import Literal, TypeAlias

import structlog

from edge.core.run_events import AttemptEnded, PieceEmitted, RunEnded, RunEvent

LogFormat: TypeAlias = Literal["json", "text", "off"]

# Failures that are nobody's surprise: they are in the row of the run, not lines of their own.
_QUIET = frozenset({"success", "cancelled", "drained"})


def configure_logs(form: LogFormat) -> None:
    """Send every log line to stderr in one form; call once, in the composition root."""
    shared: list[structlog.typing.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if form == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.CRITICAL + 1 if form == "off" else logging.INFO)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


class RunLog:
    """Logs failed attempts as warnings, every run's end, and the pieces of traced runs.

    An observer of run events. The text of pieces is logged only with ``trace_content``.
    """

    def __init__(self, *, trace_content: bool = False) -> None:
        self._trace_content = trace_content
        self._log: structlog.stdlib.BoundLogger = structlog.get_logger("edge.runs")

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
        self._log.warning(
            "attempt failed",
            run_id=event.run_id,
            attempt=event.attempt,
            provider=event.provider,
            status=event.status,
            category=event.category,
            reason=event.reason,
        )

    def _run_ended(self, event: RunEnded) -> None:
        self._log.info(
            "run ended",
            run_id=event.run_id,
            status=event.status,
            attempts=event.attempts,
            total_s=round(event.total_s, 4),
            response_mode=event.response_mode,
            content_chars=event.content_chars,
            reasoning_chars=event.reasoning_chars,
            calls=event.calls,
            policy=event.policy,
            **({"error_type": event.error_type} if event.error_type else {}),
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
