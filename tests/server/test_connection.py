"""Quart views on our connections: answers that write themselves, bodies, and errors as JSON."""

import logging

import pytest
import trio
from quart import Response, request
from quart_trio import QuartTrio

from edge.errors import InvalidRequest, RateLimited
from edge.runs.reply import Reply
from edge.server.connection import (
    Carry,
    GatewayRequest,
    RunResponse,
    gateway_request,
    read_body,
)
from tests.fakes.raw_client import connect
from tests.fakes.served import fresh_app, running


async def describe(asked: GatewayRequest) -> Carry:
    """Answer with what the handler sees."""
    body = await asked.body()
    query = asked.query_string.decode()
    seen = f"{asked.method} {asked.path} {query} {asked.headers.get('X-A')} {body.decode()}"

    async def carry(reply: Reply) -> None:
        await reply.start(201, [(b"x-seen", b"yes")])
        await reply.write(seen.encode())

    return carry


def app_with_views() -> QuartTrio:
    app = fresh_app()

    @app.post("/view/<name>")
    async def view(name: str) -> RunResponse:
        return RunResponse(await describe(gateway_request(request)))

    @app.post("/body")
    async def body() -> bytes:
        return await read_body(request)

    @app.get("/invalid")
    async def invalid() -> str:
        raise InvalidRequest("no such thing", param="messages[0]")

    @app.get("/busy")
    async def busy() -> str:
        async with trio.open_nursery():
            raise RateLimited("later", retry_after_s=2.5)

    @app.get("/bug")
    async def bug() -> str:
        raise KeyError("secret")

    @app.get("/redirect")
    async def redirect() -> Response:
        return Response("", 308, {"location": "/elsewhere"})

    @app.get("/deep/path")
    async def deep() -> str:
        return "deep"

    @app.get("/slash/")
    async def slash() -> str:
        return "slash"

    return app


async def test_a_handler_sees_the_same_in_a_view_and_directly() -> None:
    direct = {("POST", "/direct/a b"): describe}
    async with running(app_with_views(), direct=direct) as url, connect(url) as client:
        answers = []
        for way in ("view", "direct"):
            path = f"/{way}/a%20b?q=%20"
            await client.request(path, method="POST", headers=[("X-A", "1")], body=b"abc")
            answers.append(await client.response())

    assert [answer.body for answer in answers] == [
        b"POST /view/a b q=%20 1 abc",
        b"POST /direct/a b q=%20 1 abc",
    ]
    assert [answer.status for answer in answers] == [201, 201]
    assert [answer.headers["x-seen"] for answer in answers] == ["yes", "yes"]


async def test_a_direct_handler_goes_before_a_view_and_only_for_its_method() -> None:
    direct = {("POST", "/body"): describe, ("GET", "/body"): describe}
    async with running(app_with_views(), direct=direct) as url, connect(url) as client:
        posted = await client.post("/body", b"abc")
        got = await client.get("/body")
        await client.request("/body", method="DELETE")
        deleted = await client.response()

    assert [posted.status, got.status, deleted.status] == [201, 201, 405]


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
async def test_a_view_reads_its_body_whole(size: int) -> None:
    body = b"x" * size
    async with running(app_with_views()) as url, connect(url) as client:
        answer = await client.post("/body", body)

    assert answer.body == body


async def test_quarts_own_test_client_works_too() -> None:
    client = app_with_views().test_client()
    seen = await client.post("/view/a?q=1", data=b"abc", headers={"X-A": "1"})
    read = await client.post("/body", data=b"abc")

    assert seen.status_code == 201
    assert await seen.get_data() == b"POST /view/a q=1 1 abc"
    assert await read.get_data() == b"abc"


# Errors


@pytest.mark.parametrize(
    ("method", "path", "status", "type_", "param"),
    [
        ("GET", "/nothing", 404, "not_found_error", None),
        ("GET", "/body", 405, "invalid_request_error", None),
        ("OPTIONS", "/body", 405, "invalid_request_error", None),
        ("GET", "/invalid", 400, "invalid_request_error", "messages[0]"),
        ("GET", "/busy", 429, "rate_limit_error", None),
        ("GET", "/bug", 500, "server_error", None),
    ],
)
async def test_every_error_of_a_view_is_openai_shaped(
    method: str, path: str, status: int, type_: str, param: str | None
) -> None:
    async with running(app_with_views()) as url, connect(url) as client:
        await client.request(path, method=method)
        answer = await client.response()

    assert answer.status == status
    assert answer.headers["content-type"] == "application/json"
    assert isinstance(answer.json, dict)
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == (type_, param)
    assert "secret" not in error["message"]


async def test_a_wrong_method_is_told_the_right_one() -> None:
    async with running(app_with_views()) as url, connect(url) as client:
        answer = await client.get("/body")

    assert answer.headers["allow"] == "POST"


async def test_when_to_come_back_is_said_in_whole_seconds() -> None:
    async with running(app_with_views()) as url, connect(url) as client:
        answer = await client.get("/busy")

    assert answer.headers["retry-after"] == "3"


async def test_a_bug_in_a_view_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with running(app_with_views()) as url, connect(url) as client:
        await client.get("/bug")

    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "secret" in str(caplog.records[0].exc_info)


async def test_only_a_views_own_redirects_are_sent_and_slashes_are_none() -> None:
    async with running(app_with_views()) as url, connect(url) as client:
        redirect = await client.get("/redirect")
        merged = await client.get("/deep//path")
        slash = await client.get("/slash")

    assert (redirect.status, redirect.headers["location"]) == (308, "/elsewhere")
    assert merged.status == 404, "no redirect is made up, which would take the request's own host"
    assert slash.body == b"slash"
