"""What a client is told when something fails, before and after its first byte.

Before it, a real status and a JSON error; after it, one error event and ``[DONE]``, never a
``finish_reason``. Every attempt is in the ledger.
"""

import json
from typing import Any

import orjson
import pytest

from tests.fakes.gateway import RunningGateway, ask_once, chat, gateway, tool, upstream_config
from tests.fakes.openai_scripts import (
    answers,
    call,
    calls,
    completes,
    error,
    hangs_up,
    html,
    refuses,
    streams,
)
from tests.fakes.openai_server import Break, Script, event, openai_server
from tests.fakes.raw_client import RawResponse
from tests.fakes.strict_client import payloads

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


async def one_try(
    script: Script, *, stream: bool, **fields: Any
) -> tuple[RawResponse, RunningGateway]:
    """Ask a gateway that makes a single attempt; its ledger has been settled."""
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url, output="max_attempts = 1")) as edge,
    ):
        answer = await ask_once(edge.url, chat(stream=stream, **fields))
        await edge.settled()
        return answer, edge


def error_of(answer: RawResponse) -> dict[str, Any]:
    """The error object of an answer that is nothing but an error."""
    body = orjson.loads(answer.body)
    assert list(body) == ["error"]
    assert set(body["error"]) >= {"message", "type", "param", "code"}
    found: dict[str, Any] = body["error"]
    return found


BEFORE_THE_FIRST_BYTE = {
    "closes its connection": (hangs_up, 502, "run_error", "connect"),
    "answers 500": (refuses(500), 502, "run_error", "http_5xx"),
    "answers 503": (refuses(503), 502, "run_error", "http_5xx"),
    "answers 429": (refuses(429), 429, "rate_limit_error", "http_429"),
    "answers 401": (refuses(401), 502, "run_error", "http_auth"),
    "redirects": (
        answers(302, b"", {"location": "http://127.0.0.1:1/"}),
        502,
        "run_error",
        "protocol",
    ),
    "answers HTML": (html(), 502, "run_error", "protocol"),
    "answers truncated JSON": (answers(200, b'{"choices": [{"mess'), 502, "run_error", "protocol"),
    "answers JSON that is no completion": (answers(200, b"[1]"), 502, "run_error", "protocol"),
    "sends an error inside a 200": (
        streams(error("no memory"), role=False),
        502,
        "run_error",
        "stream_error",
    ),
    "sends no JSON": (streams(b"data: {oops\n\n", role=False), 502, "run_error", "protocol"),
    "ends without finish and [DONE]": (
        streams(finish=None, done=False, usage=None),
        502,
        "run_error",
        "protocol",
    ),
    "dies before its first token": (streams(Break.RESET), 502, "run_error", "protocol"),
    "compresses unasked": (
        streams("x", headers={"content-encoding": "gzip"}),
        502,
        "run_error",
        "protocol",
    ),
}


@both_ways
@pytest.mark.parametrize(
    ("script", "status", "kind", "category"),
    BEFORE_THE_FIRST_BYTE.values(),
    ids=BEFORE_THE_FIRST_BYTE.keys(),
)
async def test_a_provider_that(
    script: Script, status: int, kind: str, category: str, stream: bool
) -> None:
    answer, edge = await one_try(script, stream=stream)

    (row,) = edge.rows()
    assert (answer.status, error_of(answer)["type"]) == (status, kind)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-should-retry"] == "false"
    assert answer.headers["x-edge-run-id"] == row.run_id
    assert (row.status, row.category) == ("upstream_error", category)


@both_ways
async def test_a_refusal_of_the_request_keeps_its_status_and_body(stream: bool) -> None:
    told = {"message": "context too long", "type": "invalid_request_error", "param": "messages"}

    answer, _ = await one_try(answers(400, {"error": {**told, "code": "ctx"}}), stream=stream)

    assert answer.status == 400
    assert error_of(answer) == {**told, "code": "ctx"}


async def test_the_providers_credentials_are_no_affair_of_the_client() -> None:
    answer, _ = await one_try(refuses(401, "invalid key sk-secret"), stream=False)

    assert b"sk-secret" not in answer.body


AFTER_THE_FIRST_BYTE = {
    "dies": streams("Hel", Break.RESET),
    "closes": streams("Hel", Break.CLOSE),
    "sends an error": streams("Hel", error("no memory")),
    "sends no JSON": streams("Hel", b"data: {oops\n\n"),
    "ends without finish and [DONE]": streams("Hel", finish=None, done=False, usage=None),
    "says that it broke off": streams("Hel", finish="abort"),
}


@pytest.mark.parametrize("script", AFTER_THE_FIRST_BYTE.values(), ids=AFTER_THE_FIRST_BYTE.keys())
async def test_in_mid_stream_it_is_one_error_event_and_done(script: Script) -> None:
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        answer = await ask_once(edge.url, chat(stream=True))
        (row,) = await edge.settled()

    *chunks, failure, done = payloads(answer.body)
    assert answer.status == 200
    assert done == "[DONE]"
    assert json.loads(failure)["error"]["type"] == "run_error"
    texts = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert "".join(choice["delta"].get("content", "") for choice in texts) == "Hel"
    assert {choice["finish_reason"] for choice in texts} == {None}
    assert row.status == "upstream_error"
    assert upstream.count("asked") == 1, "nothing is retried after the commit point"


@both_ways
@pytest.mark.parametrize(
    "script",
    [
        streams("Hello", finish=None),
        streams("Hello", done=False),
        completes("Hello"),
        streams("Hello", event({"choices": []}), b": a comment\n\n"),
    ],
    ids=["no finish reason", "no [DONE]", "not streamed", "empty chunks"],
)
async def test_an_answer_that_is_whole_all_the_same_is_given(script: Script, stream: bool) -> None:
    answer, edge = await one_try(script, stream=stream)

    assert answer.status == 200
    assert b"Hello" in answer.body
    assert b'"finish_reason":"stop"' in answer.body
    assert edge.statuses() == ["success"]


@both_ways
async def test_invalid_calls_end_in_a_typed_error_that_names_the_place(stream: bool) -> None:
    script = calls("set_limit", {"limit": "three"})
    offered = [tool("set_limit", "limit", limit={"type": "integer"})]

    answer, edge = await one_try(script, stream=stream, tools=offered)

    failure = error_of(answer)
    assert (answer.status, failure["type"]) == (502, "tool_validation_error")
    assert failure["param"] == "tool_calls[0].arguments.limit"
    assert "limit" in failure["message"]
    assert [(row.status, row.category) for row in edge.rows()] == [("validation_failed", "schema")]


@both_ways
async def test_text_that_breaks_the_response_format_is_an_output_error(stream: bool) -> None:
    answer, edge = await one_try(
        streams("no JSON"), stream=stream, response_format={"type": "json_object"}
    )

    assert (answer.status, error_of(answer)["type"]) == (502, "output_validation_error")
    assert edge.rows()[0].category == "response_format"


async def test_a_failed_call_behind_shown_text_is_an_error_event() -> None:
    answer, _ = await one_try(
        streams("Let me see.", call("nothing", {}), finish="tool_calls"),
        stream=True,
        tools=[tool("ping")],
    )

    *_, failure, done = payloads(answer.body)
    assert (json.loads(failure)["error"]["type"], done) == ("tool_validation_error", "[DONE]")
    assert b'finish_reason":"' not in answer.body


CLIENT_ERRORS = {
    "no JSON": (b"{", 400, "invalid_request_error", None),
    "no object": (b"[]", 400, "invalid_request_error", None),
    "no model": (b'{"messages": [{"role": "user", "content": "x"}]}', 400, None, "model"),
    "no messages": (b'{"model": "m"}', 400, None, "messages"),
    "a wrong type": (b'{"model": "m", "messages": "x"}', 400, None, "messages"),
    "a wrong role": (
        b'{"model": "m", "messages": [{"role": "robot", "content": "x"}]}',
        400,
        None,
        "messages[0].role",
    ),
    "a bad schema": (
        json.dumps(
            chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": 1}}}])
        ).encode(),
        400,
        None,
        "tools[0].function.parameters.type",
    ),
    "an override that is none": (
        json.dumps(chat(metadata={"edge.bufer": "full"})).encode(),
        400,
        None,
        "metadata.edge.bufer",
    ),
}


@pytest.mark.parametrize(
    ("body", "status", "kind", "param"), CLIENT_ERRORS.values(), ids=CLIENT_ERRORS.keys()
)
async def test_a_request_with(
    body: bytes, status: int, kind: str | None, param: str | None
) -> None:
    from tests.fakes.raw_client import connect

    async with (
        openai_server() as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        answer = await client.post("/v1/chat/completions", body)

        assert (answer.status, error_of(answer)["type"]) == (status, "invalid_request_error")
        assert error_of(answer)["param"] == param
        assert upstream.count("asked") == 0
        assert (await client.get("/healthz")).status == 200, "the connection goes on"


async def test_an_unknown_model_is_404() -> None:
    async with gateway(
        """
        [[providers]]
        name = "gpu1"
        kind = "simulated"
        [[routes]]
        model = "sim-echo"
        targets = [{ provider = "gpu1" }]
        """
    ) as edge:
        answer = await ask_once(edge.url, chat())

    assert (answer.status, error_of(answer)["type"]) == (404, "model_not_found")
    assert error_of(answer)["param"] == "model"
