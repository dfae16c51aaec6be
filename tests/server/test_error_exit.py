"""Errors as the client gets them."""

import orjson
import pytest

from edge.errors import (
    EdgeError,
    GatewayFault,
    InvalidRequest,
    Overloaded,
    ProviderRefused,
    ProviderUnreachable,
    RateLimited,
    RunCancelled,
    RunTimeout,
    ToolValidationError,
)
from edge.server.error_exit import error_event, error_response, send_error


def told(error: EdgeError) -> tuple[int, dict[bytes, bytes], dict[str, object]]:
    status, headers, body = error_response(error)
    tree = orjson.loads(body)
    assert set(tree["error"]) >= {"message", "type"}
    return status, dict(headers), tree["error"]


@pytest.mark.parametrize(
    ("error", "status", "type_"),
    [
        (InvalidRequest("m"), 400, "invalid_request_error"),
        (RateLimited("m"), 429, "rate_limit_error"),
        (Overloaded("m"), 503, "overloaded_error"),
        (ProviderUnreachable("m"), 502, "run_error"),
        (ToolValidationError("m"), 502, "tool_validation_error"),
        (RunTimeout("m"), 504, "run_timeout"),
        (RunCancelled("m"), 499, "run_cancelled"),
        (GatewayFault("m"), 500, "server_error"),
    ],
)
def test_an_error_has_its_status_and_type(error: EdgeError, status: int, type_: str) -> None:
    got, headers, body = told(error)

    assert (got, body) == (
        status,
        {"message": "m", "type": type_, "param": None, "code": None},
    )
    assert headers == {b"content-type": b"application/json"}


def test_param_and_code_travel() -> None:
    error = InvalidRequest("m", param="messages[2].tool_calls[0].id", code="bad_id")

    assert told(error)[2]["param"] == "messages[2].tool_calls[0].id"
    assert told(error)[2]["code"] == "bad_id"


@pytest.mark.parametrize(("seconds", "said"), [(0.0, b"1"), (0.2, b"1"), (1, b"1"), (2.01, b"3")])
def test_retry_after_is_whole_seconds_and_never_too_early(seconds: float, said: bytes) -> None:
    assert told(Overloaded("m", retry_after_s=seconds))[1][b"retry-after"] == said


def test_spent_attempts_are_not_to_be_repeated_by_the_client() -> None:
    assert told(ToolValidationError("m", spent=True))[1][b"x-should-retry"] == b"false"
    assert b"x-should-retry" not in told(ToolValidationError("m"))[1]


def test_more_headers_go_along() -> None:
    headers = error_response(InvalidRequest("m"), [(b"x-request-id", b"r1")])[1]

    assert (b"x-request-id", b"r1") in headers


# A provider's refusal


def refusal(status: int, body: bytes = b"", **details: object) -> ProviderRefused:
    error = ProviderRefused("gpu1 answered with an error", upstream_status=status, provider="gpu1")
    error.upstream_body = body
    for name, value in details.items():
        setattr(error, name, value)
    return error


def test_a_providers_own_4xx_keeps_its_status_and_body() -> None:
    body = b'{"error": {"message": "too long", "type": "context", "extra": 1}, "id": "x"}'
    status, _, sent = error_response(refusal(400, body))

    assert status == 400
    assert orjson.loads(sent) == orjson.loads(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "gpu1 answered with an error"),
        (b"<html>no</html>", "gpu1 answered with an error"),
        (b'{"object": "error", "message": "too long"}', "too long"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"detail": [{"loc": []}]}', "gpu1 answered with an error"),
        (b'{"error": "too long"}', "too long"),
        (b"[1]", "gpu1 answered with an error"),
    ],
)
def test_a_4xx_in_another_shape_is_put_in_ours(body: bytes, message: str) -> None:
    status, _, error = told(refusal(422, body))

    assert status == 422
    assert error == {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


@pytest.mark.parametrize("status", [401, 403, 407])
def test_that_our_credentials_are_refused_is_our_fault_and_shows_nothing(status: int) -> None:
    body = b'{"error": {"message": "Incorrect API key provided: sk-secret"}}'
    got, _, error = told(refusal(status, body, message="sk-secret"))

    assert (got, error["type"]) == (502, "run_error")
    assert b"secret" not in error_response(refusal(status, body, message="sk-secret"))[2]


@pytest.mark.parametrize(
    ("upstream", "status", "type_"),
    [(429, 429, "rate_limit_error"), (408, 503, "overloaded_error")],
)
def test_a_busy_provider_is_a_busy_gateway(upstream: int, status: int, type_: str) -> None:
    got, headers, error = told(refusal(upstream, b"{}"))

    assert (got, error["type"], headers[b"retry-after"]) == (status, type_, b"1")
    later = told(refusal(upstream, b"{}", retry_after_s=7.5))
    assert later[1][b"retry-after"] == b"8"


def test_a_providers_5xx_is_a_502() -> None:
    status, _, error = told(refusal(500, b'{"error": {"message": "CUDA out of memory"}}'))

    assert (status, error["type"]) == (502, "run_error")


# In a stream, and through a reply


def test_an_error_event_is_one_line_and_the_end() -> None:
    event = error_event(refusal(400, b'{"error":\n {"message": "a\\nb"}}'))
    first, second, rest = event.split(b"\n\n")

    assert orjson.loads(first.removeprefix(b"data: ")) == {"error": {"message": "a\nb"}}
    assert b"\n" not in first
    assert (second, rest) == (b"data: [DONE]", b"")


def test_text_that_is_no_unicode_can_still_be_told() -> None:
    assert b"\\ud800" in error_event(ToolValidationError("bad \ud800"))


async def test_an_error_can_be_sent_as_the_whole_answer() -> None:
    class Kept:
        started = False
        sent: tuple[int, int | None, bytes] | None = None

        async def start(
            self, status: int, headers: object, *, content_length: int | None = None
        ) -> None:
            self.head = (status, content_length)

        async def write(self, data: bytes) -> None:
            raise AssertionError("one piece is enough")

        def write_now(self, data: bytes) -> bool:
            raise AssertionError("one piece is enough")

        async def finish(self, data: bytes = b"") -> None:
            self.sent = (*self.head, data)

    reply = Kept()
    await send_error(reply, InvalidRequest("m"))
    body = error_response(InvalidRequest("m"))[2]

    assert reply.sent == (400, len(body), body)


@pytest.mark.parametrize("levels", [100, 900, 1010, 50_000])
def test_a_refusal_is_told_however_deeply_its_body_is_nested(levels: int) -> None:
    body = b'{"error": {"message": "no", "deep": ' + b"[" * levels + b"]" * levels + b"}}"

    event, done, _ = error_event(refusal(400, body)).split(b"\n\n")
    status, _, whole = error_response(refusal(400, body))

    assert (status, done) == (400, b"data: [DONE]")
    assert "error" in orjson.loads(event.removeprefix(b"data: "))
    assert "error" in orjson.loads(whole)


def test_a_refusal_that_ends_a_stream_keeps_every_digit() -> None:
    body = b'{"error":{"message":"no","param":123456789012345678901}}'

    assert b"123456789012345678901" in error_event(refusal(400, body))
