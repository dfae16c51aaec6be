"""How one attempt of a run ended, in words that retry, pool, ledger and metrics share.

An attempt ends in exactly one :class:`AttemptOutcome`. Its ``status`` is what the ledger says, its
``category`` is the finer label (of few values, so that it may be a metric's label), and the rest is
what the retry decision needs. Errors are sorted by class and status, with one exception: some
model servers parse tool calls themselves and answer HTTP 500 when their model wrote a broken one.
That is the model's failure, not the server's, and nothing but the message tells it
(:func:`is_model_failure`).
"""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from edge.core.verdict import OUTPUT_CATEGORIES, Reason
from edge.errors import (
    ClientError,
    EdgeError,
    NoPath,
    Overloaded,
    ProviderError,
    ProviderProtocolError,
    ProviderRefused,
    ProviderStreamError,
    ProviderTimeout,
    ProviderUnreachable,
    RateLimited,
    RunCancelled,
    RunTimeout,
    ToolValidationRetryError,
)
from edge.wire.strict_json import MalformedJson, parse

AttemptStatus: TypeAlias = Literal[
    "success",
    "validation_failed",  # the answer came whole and does not keep the request's contract
    "upstream_error",  # the provider refused, broke off or sent no sound stream
    "timeout",  # a connect, first-token, idle or run deadline passed
    "cancelled",  # the client gave up, or somebody cancelled the run
    "drained",  # the client gave up and the answer was read on for the bill
    "rejected",  # never sent: nothing to send it to, or nothing acceptable was offered
]

MODEL_FAILURE = "tool_parse"
"""Category of a model server that could not parse its own model's tool call."""

_MODEL_FAILURE_MARKS = (
    "failed to parse tool call",  # llama.cpp
    "failed to parse input at pos",  # llama.cpp's parsers of text forms
    "error parsing tool call",  # Ollama
    "xml syntax error",  # Ollama, for models whose calls are tagged
    "expected element type <",  # the same
)
"""What such a message says, in lower case."""

_REQUEST_FAULTS = frozenset({"400", "404", "413", "422", "context_length_exceeded"})
"""Codes of error objects inside a 200 that speak about the request."""

_MARK_WITHIN = 200
"""Characters of a message that are looked at: a proxy between may put its own words in front, but
a prompt or an answer that is echoed further on must not decide anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptOutcome:
    """The end of one attempt.

    Attributes:
        attempt: 1 for the first attempt of the run.
        provider: name of the provider, empty where none was chosen.
        model: the model name that was sent to it.
        target: name of the route's target (``Lease.target``); the provider's name where empty.
        category: the finer label: of :func:`classify` for errors, of the first reason for
            ``validation_failed``, empty for success.
        error: what was raised, None for success and for verdicts.
        reasons: what the validator found, for ``validation_failed``.
        committed: the client has been given some of this answer, so nothing may follow it.
        made_calls: the answer held at least one tool call, sound or not.
        retry_after_s: seconds the provider asked to be left alone for, or None.
    """

    attempt: int
    provider: str = ""
    model: str = ""
    target: str = ""
    status: AttemptStatus
    category: str = ""
    error: EdgeError | None = None
    reasons: tuple[Reason, ...] = ()
    committed: bool = False
    made_calls: bool = False
    retry_after_s: float | None = None

    @property
    def blames_calls(self) -> bool:
        """Whether its tool calls were found unsound (and not only the answer's text).

        That is so, too, where faults are merely observed and the attempt is a success.
        """
        return any(reason.category not in OUTPUT_CATEGORIES for reason in self.reasons)


def outcome_of_error(
    error: EdgeError,
    *,
    attempt: int,
    provider: str = "",
    model: str = "",
    target: str = "",
    committed: bool = False,
    made_calls: bool = False,
) -> AttemptOutcome:
    """The outcome of an attempt that ended in ``error``.

    A model failure reported as HTTP 500 comes out as ``validation_failed`` with a reason, so that
    it is asked again as such and never counts against the provider's health.
    """
    category = classify(error)
    failed_parse = category == MODEL_FAILURE
    return AttemptOutcome(
        attempt=attempt,
        provider=provider,
        model=model,
        target=target,
        status=_status_of(error, category),
        category=category,
        error=error,
        reasons=(Reason("not_json", _told(error)),) if failed_parse else (),
        committed=committed,
        made_calls=made_calls or failed_parse,
        retry_after_s=error.retry_after_s,
    )


def classify(error: EdgeError) -> str:
    """A label of few values for what went wrong."""
    match error:
        case ProviderTimeout():
            # Attempt deadlines say which one passed; what is left is the transport's.
            return error.code or "connect_timeout"
        case ProviderUnreachable():
            return "connect"
        case ProviderRefused():
            return _classify_refusal(error)
        case ProviderStreamError():
            return _classify_stream_error(error)
        case ProviderProtocolError():
            return error.code or "protocol"
        case ProviderError():
            return "provider"
        case RunTimeout():
            return "run_timeout"
        case RunCancelled():
            return "run_cancelled"
        case RateLimited():
            return "rate_limited"
        case Overloaded():
            return "overloaded"
        case ToolValidationRetryError() | NoPath():
            return "no_path"
        case ClientError():
            return "request"
    return error.type


def is_model_failure(error: EdgeError) -> bool:
    """Whether a model server says that it could not parse its own model's tool call."""
    if isinstance(error, ProviderRefused):
        return error.upstream_status == 500 and _tells_of_model(_upstream_message(error))
    return isinstance(error, ProviderStreamError) and _tells_of_model(error.message)


def _classify_refusal(error: ProviderRefused) -> str:
    status = error.upstream_status
    if status in (401, 403):
        return "http_auth"
    if status in (408, 409, 429):
        return f"http_{status}"
    if 400 <= status < 500:
        return "http_4xx"
    if status >= 500:
        return MODEL_FAILURE if is_model_failure(error) else "http_5xx"
    return "protocol"


def _classify_stream_error(error: ProviderStreamError) -> str:
    if is_model_failure(error):
        return MODEL_FAILURE
    return "stream_4xx" if error.code in _REQUEST_FAULTS else "stream_error"


def _status_of(error: EdgeError, category: str) -> AttemptStatus:
    if category == MODEL_FAILURE:
        return "validation_failed"
    match error:
        case ProviderTimeout() | RunTimeout():
            return "timeout"
        case RunCancelled():
            return "cancelled"
        case ToolValidationRetryError() | RateLimited() | Overloaded() | ClientError():
            return "rejected"
    return "upstream_error"


def _told(error: EdgeError) -> str:
    said = _upstream_message(error) if isinstance(error, ProviderRefused) else error.message
    return f"the model server could not parse the tool call: {said}"


def _tells_of_model(message: str) -> bool:
    opening = message[:_MARK_WITHIN].lower()
    return any(mark in opening for mark in _MODEL_FAILURE_MARKS)


def _upstream_message(error: ProviderRefused) -> str:
    """The message inside an error body; servers put it in one of four places."""
    try:
        body = parse(error.upstream_body)
    except MalformedJson:
        return ""
    return _message_in(body)


def _message_in(body: Any) -> str:
    if isinstance(body, str):
        return body
    if not isinstance(body, dict):
        return ""
    inner = body.get("error", body)
    if isinstance(inner, str):
        return inner
    if not isinstance(inner, dict):
        return ""
    message = inner.get("message")
    if isinstance(message, str):
        return message
    return next(iter(inner), "")
