"""What the gateway answers is what ``GET /openapi.json`` says it answers."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge.settings import Settings, Surroundings
from tests.fakes.described import Described
from tests.fakes.gateway import CHAT, RunningGateway, chat, gateway, send, tool, upstream_config
from tests.fakes.openai_scripts import (
    by_attempt,
    calls,
    completes,
    html,
    refuses,
    silent,
    streams,
)
from tests.fakes.openai_server import Script, openai_server
from tests.fakes.raw_client import RawClient, RawResponse, connect
from tests.fakes.tunnelled import OFF, config

USAGE_TOO = {"stream_options": {"include_usage": True}}
NO_SCHEMA = {"type": "function", "function": {"name": "f", "parameters": {"type": 1}}}
WEATHER = tool("weather", "city", city={"type": "string"})
SOUND = calls("weather", {"city": "Bern"})
BROKEN = calls("weather", {"town": "Bern"})
KEYS = """
[[keys]]
name = "watcher"
key = "env:W"
observe = true
[[keys]]
name = "team-a"
key = "env:A"
cancel = false
models = ["coder"]
"""


async def get(client: RawClient, path: str, key: str = "", method: str = "GET") -> RawResponse:
    headers = [("Authorization", f"Bearer {key}")] if key else []
    await client.request(path, method=method, headers=headers)
    return await client.response()


async def document(client: RawClient) -> Described:
    answer = await client.get("/openapi.json")
    assert answer.status == 200
    described = Described(orjson.loads(answer.body))
    described.check("GET", "/openapi.json", answer)
    return described


@asynccontextmanager
async def scene(
    *scripts: Script, keys: bool = False, **tables: str
) -> AsyncGenerator[tuple[RunningGateway, RawClient, Described]]:
    """A gateway with one provider, a client, and what it was told of the API."""
    async with openai_server(*scripts, models=["llama"]) as upstream:
        text = upstream_config(upstream.base_url, **tables)
        around = Surroundings(environ={"A": "key-of-a", "W": "key-of-w"}, folder=Path())
        settings = Settings.from_toml(
            text + (KEYS if keys else ""), bind=["127.0.0.1:0"], around=around
        )
        async with gateway(settings) as edge, connect(edge.url) as client:
            yield edge, client, await document(client)


async def asked(
    client: RawClient, path: str, body: Any, headers: Iterable[tuple[str, str]] = ()
) -> RawResponse:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    await client.request(path, method="POST", headers=headers, body=data)
    return await client.response()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("script", "fields"),
    [
        (streams("Hello"), {}),
        (
            streams({"reasoning_content": "Hm."}, "Hello"),
            {"stream_options": {"include_usage": True}},
        ),
        (by_attempt(BROKEN, SOUND), {"tools": [WEATHER]}),
    ],
    ids=["text", "reasoning and usage", "calls, at the second attempt"],
)
async def test_an_answer_is_as_described(
    script: Script, fields: dict[str, Any], stream: bool
) -> None:
    if not stream:
        fields = {k: v for k, v in fields.items() if k != "stream_options"}
    async with scene(script) as (_, client, described):
        answer = await asked(client, CHAT, chat(stream=stream, **fields))

    assert answer.status == 200
    described.check("POST", CHAT, answer)


@pytest.mark.parametrize(
    ("request_body", "headers", "status"),
    [
        (b"{", [], 400),
        (chat(n=0), [], 400),
        (chat(metadata={"edge.buffer": "half"}), [], 400),
        (chat(), [("x-edge-output", "buffer")], 400),
        (
            chat(
                tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": 1}}}]
            ),
            [],
            400,
        ),
        (chat(), [("Origin", "http://evil.example")], 403),
        (b"x" * 2000, [], 413),
    ],
    ids=[
        "no JSON",
        "a bad field",
        "a bad override",
        "a bad header",
        "a bad schema",
        "origin",
        "size",
    ],
)
async def test_a_request_at_fault_is_told_as_described(
    request_body: Any, headers: list[tuple[str, str]], status: int
) -> None:
    async with scene(server="max_body_bytes = 1024") as (_, client, described):
        answer = await asked(client, CHAT, request_body, headers)

    assert answer.status == status
    described.check("POST", CHAT, answer)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("script", "output", "status"),
    [
        (refuses(400, "no"), "", 400),
        (refuses(422, "no"), "", 422),
        (refuses(401, "no"), "", 502),
        (refuses(429, "later"), "max_attempts = 1", 429),
        (refuses(500, "broken"), "max_attempts = 1", 502),
        (html(503), "max_attempts = 1", 502),
        (BROKEN, "max_attempts = 2", 502),
        (silent, "run_timeout_s = 0.05", 504),
    ],
)
async def test_a_failed_run_is_told_as_described(
    script: Script, output: str, status: int, stream: bool
) -> None:
    async with scene(script, output=output) as (_, client, described):
        answer = await asked(client, CHAT, chat(tools=[WEATHER], stream=stream))

    assert answer.status == status
    described.check("POST", CHAT, answer, refused=status in (400, 422))


async def test_an_error_behind_a_streams_beginning_is_an_event_as_described() -> None:
    script = streams("Hello", finish=None, done=False)
    async with scene(script, output="max_attempts = 1") as (_, client, described):
        answer = await asked(client, CHAT, chat(stream=True))

    assert b'"error"' in answer.body
    described.check("POST", CHAT, answer)


async def test_a_cancelled_run_is_told_as_described() -> None:
    async with scene(silent) as (edge, client, described), connect(edge.url) as other:
        await send(client, chat())
        await edge.phase_reached("connecting")
        (run,) = edge.gateway.desk.registry.live()
        live = await get(other, f"/v1/runs/{run.id}")
        cancelled = await get(other, f"/v1/runs/{run.id}", method="DELETE")
        answer = await client.response()

    assert answer.status == 499
    described.check("POST", CHAT, answer)
    described.check("GET", "/v1/runs/{run_id}", live)
    described.check("DELETE", "/v1/runs/{run_id}", cancelled)


async def test_runs_are_shown_as_described() -> None:
    async with scene(by_attempt(BROKEN, SOUND)) as (edge, client, described):
        ran = await asked(client, CHAT, chat(tools=[WEATHER]))
        await edge.settled(2)
        await asked(client, CHAT, chat(model=""))
        run_id = ran.headers["x-edge-run-id"]
        pages = [
            await get(client, f"/v1/runs{query}")
            for query in ("", "?status=success&limit=1", f"?after={run_id}", "?provider=nobody")
        ]
        wrong = [
            await get(client, f"/v1/runs?{query}")
            for query in ("limit=0", "status=done", "since=then", "after=run_none", "state=x")
        ]
        one = await get(client, f"/v1/runs/{run_id}")
        none = [
            await get(client, "/v1/runs/run_none"),
            await get(client, "/v1/runs/run_none", method="DELETE"),
        ]
        ended = await get(client, f"/v1/runs/{run_id}", method="DELETE")

    assert {answer.status for answer in pages} == {200}
    assert {answer.status for answer in wrong} == {400}
    for answer in (*pages, *wrong):
        described.check("GET", "/v1/runs", answer)
    described.check("GET", "/v1/runs/{run_id}", one)
    described.check("GET", "/v1/runs/{run_id}", none[0])
    for answer in (ended, none[1]):
        described.check("DELETE", "/v1/runs/{run_id}", answer)


async def test_what_the_gateway_tells_of_itself_is_as_described() -> None:
    async with scene(SOUND) as (edge, client, described):
        for path in ("/v1/models", "/v1/providers", "/healthz", "/readyz", "/metrics", "/ui"):
            answer = await get(client, path)
            assert answer.status == 200
            described.check("GET", path, answer)
        await client.request("/metrics", headers=[("Accept", "application/openmetrics-text")])
        described.check("GET", "/metrics", await client.response())
        await asked(client, CHAT, chat(tools=[WEATHER]))
        described.check("GET", "/v1/providers", await get(client, "/v1/providers"))
        for name, status in (("llama", 200), ("a/b", 404)):
            answer = await get(client, f"/v1/models/{name}")
            assert answer.status == status
            described.check("GET", "/v1/models/{model}", answer)
        for name, status in (("page.js", 200), ("page.css", 200), ("nothing", 404)):
            answer = await get(client, f"/ui/{name}")
            assert answer.status == status
            described.check("GET", "/ui/{name}", answer)
        edge.gateway.common.leaving.set()
        leaving = await get(client, "/readyz")

    assert leaving.status == 503
    described.check("GET", "/readyz", leaving)


async def test_what_a_key_may_not_do_is_told_as_described() -> None:
    async with scene(silent, keys=True) as (edge, client, described), connect(edge.url) as other:
        for path in ("/v1/models", "/v1/runs", "/v1/providers", "/metrics"):
            for key in ("", "nobodys"):
                answer = await get(client, path, key)
                assert answer.status == 401
                described.check("GET", path, answer)
        for path in ("/v1/providers", "/metrics"):
            answer = await get(client, path, "key-of-a")
            assert answer.status == 403
            described.check("GET", path, answer)
        mine = [("Authorization", "Bearer key-of-a")]
        for body, status in ((chat(model="other"), 404), (b"{", 400)):
            answer = await asked(client, CHAT, body, mine)
            assert answer.status == status
            described.check("POST", CHAT, answer)
        described.check("POST", CHAT, await asked(client, CHAT, chat()))
        await send_as(other, mine)
        await edge.phase_reached("connecting")
        (run,) = edge.gateway.desk.registry.live()
        refused = await get(client, f"/v1/runs/{run.id}", "key-of-a", "DELETE")

    assert refused.status == 403
    described.check("DELETE", "/v1/runs/{run_id}", refused)


async def send_as(client: RawClient, headers: Iterable[tuple[str, str]]) -> None:
    body = orjson.dumps(chat())
    await client.request(CHAT, method="POST", headers=headers, body=body)


TUNNELLED = "/v1/{rest}"


async def test_what_passes_through_is_as_described() -> None:
    async with scene(completes("done")) as (_, client, described):
        for path, body, status in [
            ("/v1/embeddings", {"model": "m"}, 200),
            ("/v1/a/b/c", {"model": "m"}, 200),
            ("/v1/embeddings", {}, 400),
            ("/v1/embeddings", b"", 400),
            ("/v1/a/../b", {"model": "m"}, 404),
            ("/v1/models", {"model": "m"}, 405),
        ]:
            answer = await asked(client, path, body)
            assert answer.status == status
            described.check("POST", TUNNELLED, answer)


@pytest.mark.parametrize("status", [400, 404, 418, 429, 500, 529])
async def test_a_refusal_that_passes_through_is_as_described(status: int) -> None:
    script = html(status)
    async with (
        openai_server(script) as upstream,
        gateway(config(upstream, output=f"{OFF}\nmax_attempts = 1")) as edge,
        connect(edge.url) as client,
    ):
        described = await document(client)
        passed = await asked(client, "/v1/rerank", {"model": "m"})
        chatted = await asked(client, CHAT, chat())

    assert (passed.status, chatted.status) == (status, status)
    described.check("POST", TUNNELLED, passed, refused=True)
    described.check("POST", CHAT, chatted, refused=True)


async def test_everybody_gets_the_same_document_and_only_once() -> None:
    async with scene(keys=True) as (_, client, _described):
        with_keys = await client.get("/openapi.json")
        etag = with_keys.headers["etag"]
        await client.request("/openapi.json", headers=[("If-None-Match", etag)])
        again = await client.response(bodyless=True)
        _described.check("GET", "/openapi.json", again)
    async with scene(server="max_body_bytes = 4242", telemetry="open_metrics = true") as (
        _,
        client,
        _described,
    ):
        without = await client.get("/openapi.json")

    assert with_keys.body == without.body
    assert (again.status, again.body) == (304, b"")


ALLOWED = [
    ("POST", "/v1/models", {"GET", "HEAD"}),
    ("POST", "/v1/models/a/b", {"GET", "HEAD"}),
    ("POST", "/v1/providers", {"GET", "HEAD"}),
    ("POST", "/v1/runs", {"GET", "HEAD"}),
    ("PUT", "/v1/runs/run_1", {"GET", "HEAD", "DELETE"}),
    ("OPTIONS", "/v1/runs/run_1", {"GET", "HEAD", "DELETE"}),
    ("GET", CHAT, {"POST"}),
    ("TRACE", CHAT, {"POST"}),
    ("GET", "/v1/embeddings", {"POST"}),
    ("DELETE", "/openapi.json", {"GET", "HEAD"}),
]


async def test_a_wrong_method_is_told_the_right_ones() -> None:
    async with scene() as (_, client, described):
        for method, path, allowed in ALLOWED:
            answer = await get(client, path, method=method)
            assert answer.status == 405
            assert {each.strip() for each in answer.headers["allow"].split(",")} == allowed
            described.named("Error").validate(orjson.loads(answer.body))


async def test_a_websocket_that_is_asked_for_as_a_page_says_what_it_is() -> None:
    async with scene() as (_, client, described):
        for path in ("/v1/mirror", "/v1/runs/run_1/mirror"):
            for method in ("GET", "POST", "PUT"):
                answer = await get(client, path, method=method)
                assert (answer.status, answer.headers["upgrade"]) == (426, "websocket")
                described.named("Error").validate(orjson.loads(answer.body))
