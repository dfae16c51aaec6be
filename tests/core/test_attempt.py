"""How failures are sorted."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.attempt import MODEL_FAILURE, AttemptOutcome, classify, outcome_of_error
from edge.core.verdict import Reason
from edge.errors import (
    EdgeError,
    GatewayFault,
    InvalidRequest,
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


def refused(status: int, body: object = "") -> ProviderRefused:
    encoded = body if isinstance(body, bytes) else json.dumps(body).encode()
    return ProviderRefused("no", upstream_status=status, upstream_body=encoded)


@pytest.mark.parametrize(
    ("error", "category", "status"),
    [
        (ProviderUnreachable("x"), "connect", "upstream_error"),
        (ProviderTimeout("x"), "connect_timeout", "timeout"),
        (ProviderTimeout("x", code="first_token_timeout"), "first_token_timeout", "timeout"),
        (ProviderTimeout("x", code="idle_timeout"), "idle_timeout", "timeout"),
        (refused(400), "http_4xx", "upstream_error"),
        (refused(401), "http_auth", "upstream_error"),
        (refused(403), "http_auth", "upstream_error"),
        (refused(404), "http_4xx", "upstream_error"),
        (refused(408), "http_408", "upstream_error"),
        (refused(409), "http_409", "upstream_error"),
        (refused(413), "http_4xx", "upstream_error"),
        (refused(422), "http_4xx", "upstream_error"),
        (refused(429), "http_429", "upstream_error"),
        (refused(500), "http_5xx", "upstream_error"),
        (refused(503), "http_5xx", "upstream_error"),
        (refused(302), "protocol", "upstream_error"),
        (ProviderStreamError("x"), "stream_error", "upstream_error"),
        (ProviderStreamError("x", code="503"), "stream_error", "upstream_error"),
        (ProviderStreamError("x", code="400"), "stream_4xx", "upstream_error"),
        (ProviderProtocolError("x"), "protocol", "upstream_error"),
        (ProviderProtocolError("x", code="too_large"), "too_large", "upstream_error"),
        (ProviderError("x"), "provider", "upstream_error"),
        (RunTimeout("x"), "run_timeout", "timeout"),
        (RunCancelled("x"), "run_cancelled", "cancelled"),
        (RateLimited("x"), "rate_limited", "rejected"),
        (Overloaded("x"), "overloaded", "rejected"),
        (ToolValidationRetryError("x"), "no_path", "rejected"),
        (InvalidRequest("x"), "request", "rejected"),
        (GatewayFault("x"), "server_error", "upstream_error"),
    ],
)
def test_every_error_has_a_category_and_a_status(
    error: EdgeError, category: str, status: str
) -> None:
    assert category == classify(error)
    assert status == outcome_of_error(error, attempt=1).status


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 500, "message": "Failed to parse tool call arguments as JSON: [json…"}},
        {"error": {"message": "Failed to parse input at pos 40: <tool_call>…"}},
        {"error": "error parsing tool call: raw='{\"a\":1}]', err=invalid character"},
        {"error": "XML syntax error on line 7: element <function> closed by </parameter>"},
        {"error": "failed to parse XML: XML syntax error on line 1: expected element name"},
        {"error": "expected element type <function> but have <parameter>"},
        {"message": "Failed to parse tool call: unexpected end"},
        {"error parsing tool call: raw='x'": ""},
        {"error": {"message": "litellm.InternalServerError: Failed to parse tool call arguments"}},
    ],
)
def test_a_500_about_an_unparsed_tool_call_is_the_models_failure(body: object) -> None:
    outcome = outcome_of_error(refused(500, body), attempt=2, provider="gpu1")

    assert outcome.status == "validation_failed"
    assert outcome.category == MODEL_FAILURE
    assert outcome.made_calls
    assert outcome.blames_calls
    assert "could not parse the tool call" in outcome.reasons[0].message


@pytest.mark.parametrize(
    "error",
    [
        refused(500, {"error": {"message": "out of memory"}}),
        refused(500, b"<html>failed to parse tool call</html>"),
        refused(400, {"error": {"message": "failed to parse tool call"}}),
        refused(500, {"error": {"message": "bad prompt: " + 300 * "x" + "XML syntax error"}}),
        refused(500, [1]),
        refused(500, {"error": [1]}),
        refused(500, {}),
    ],
)
def test_other_refusals_are_not_the_models_failure(error: ProviderRefused) -> None:
    assert classify(error) != MODEL_FAILURE


def test_an_error_object_in_a_stream_may_be_the_models_failure_too() -> None:
    error = ProviderStreamError("XML syntax error on line 3: unexpected EOF")

    assert classify(error) == MODEL_FAILURE


def test_an_outcome_keeps_what_the_provider_asked_for() -> None:
    error = ProviderRefused("busy", upstream_status=429, retry_after_s=7.0)

    outcome = outcome_of_error(error, attempt=3, provider="a", model="m", target="a/m")

    assert (
        outcome.attempt,
        outcome.provider,
        outcome.model,
        outcome.target,
    ) == (3, "a", "m", "a/m")
    assert outcome.retry_after_s == 7.0
    assert error is outcome.error
    assert not outcome.made_calls


def test_faults_of_the_text_do_not_blame_the_calls() -> None:
    text = Reason("response_format", "no JSON")
    calls = Reason("schema", "limit is no number")

    def failed(*reasons: Reason) -> AttemptOutcome:
        return AttemptOutcome(attempt=1, status="validation_failed", reasons=reasons)

    assert not failed(text).blames_calls
    assert failed(text, calls).blames_calls


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.integers(400, 599), st.binary() | JSON)
def test_any_error_body_is_sorted_by_its_status_alone_or_is_the_models_failure(
    status: int, body: object
) -> None:
    outcome = outcome_of_error(refused(status, body), attempt=1)

    assert outcome.category == MODEL_FAILURE or outcome.category.startswith("http_")


@pytest.mark.parametrize("deep", [b"[" * 60_000, b'{"error":' * 6_000, b"[" * 900 + b"]" * 900])
def test_an_error_body_may_be_nested_as_deeply_as_it_likes(deep: bytes) -> None:
    assert classify(refused(500, deep)) == "http_5xx"
