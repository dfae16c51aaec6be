"""Credentials stay on their side, no request chooses an address, and keys have their rights.

What a client sends to prove who it is never reaches a provider, and what proves the gateway to a
provider never reaches a client: not in answers, not in errors, not in logs, ledger or the runs API.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import trio

from tests.fakes.gateway import CHAT, RunningGateway, ask, ask_once, chat, gateway, send, until
from tests.fakes.mirror_client import open_socket
from tests.fakes.openai_scripts import answers, error, refuses, streams
from tests.fakes.openai_server import OpenAIServer, Script, openai_server
from tests.fakes.raw_client import RawResponse, connect
from tests.fakes.raw_server import Peer, raw_server

TEAM, OTHER, WATCHER = "team-secret", "other-secret", "watcher-secret"
PROVIDER = "sk-provider-secret"
TUNNEL = '[output]\nvalidate = "off"\nbuffer = "off"\nmax_attempts = 1\n'
ONE_TRY = "[output]\nmax_attempts = 1\n"

KEYS = """
[[keys]]
name = "team"
key = "env:EDGE_TEST_TEAM"
models = ["coder", "small"]
[[keys]]
name = "other"
key = "env:EDGE_TEST_OTHER"
cancel = false
[[keys]]
name = "watcher"
key = "env:EDGE_TEST_WATCHER"
observe = true
"""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_TEAM", TEAM)
    monkeypatch.setenv("EDGE_TEST_OTHER", OTHER)
    monkeypatch.setenv("EDGE_TEST_WATCHER", WATCHER)
    monkeypatch.setenv("EDGE_TEST_PROVIDER", PROVIDER)


def config(base_url: str, more: str = "") -> str:
    return f"""
    {KEYS}
    [[providers]]
    name = "gpu1"
    base_url = "{base_url}"
    api_key = "env:EDGE_TEST_PROVIDER"
    [[routes]]
    model = "*"
    targets = [{{ provider = "gpu1" }}]
    {more}
    """


@asynccontextmanager
async def scene(
    *scripts: Script, more: str = ""
) -> AsyncGenerator[tuple[RunningGateway, OpenAIServer]]:
    async with (
        openai_server(*scripts, models=["coder", "large"]) as upstream,
        gateway(config(upstream.base_url, more)) as edge,
    ):
        yield edge, upstream


def bearer(key: str) -> tuple[str, str]:
    return ("Authorization", f"Bearer {key}")


async def fetch(
    edge: RunningGateway, path: str, key: str, method: str = "GET", body: bytes | None = None
) -> RawResponse:
    async with connect(edge.url) as client:
        await client.request(path, method=method, headers=[bearer(key)], body=body)
        return await client.response()


PRIVATE = [
    ("Cookie", "session=client-private"),
    ("Proxy-Authorization", "Basic client-private"),
    ("X-Api-Key", "client-private"),
    ("Api-Key", "client-private"),
    ("X-Goog-Api-Key", "client-private"),
    ("X-Auth-Token", "client-private"),
    ("X-Forwarded-For", "client-private"),
    ("Forwarded", "for=client-private"),
    ("X-Edge-Run-Id", "client-private"),
    ("X-Edge-Failed-Attempt", "client-private"),
    ("X-Edge-Whatever", "client-private"),
    ("Referer", "http://client-private/"),
    ("Connection", "keep-alive, X-Hop"),
    ("X-Hop", "client-private"),
]


@pytest.mark.parametrize("presented", [bearer(TEAM), ("x-api-key", TEAM)], ids=["bearer", "x-api"])
@pytest.mark.parametrize(
    ("path", "more", "request_body"),
    [
        (CHAT, "", chat(stream=True)),
        (CHAT, TUNNEL, chat(stream=True)),
        ("/v1/embeddings", "", {"model": "coder", "input": "x"}),
    ],
    ids=["normalized", "tunnelled", "another kind"],
)
async def test_nothing_of_the_clients_credentials_reaches_a_provider(
    path: str, more: str, request_body: dict[str, Any], presented: tuple[str, str]
) -> None:
    headers = [*(pair for pair in PRIVATE if pair[0].lower() != presented[0]), presented]
    async with scene(more=more) as (edge, upstream), connect(edge.url) as client:
        body = orjson.dumps(request_body)
        await client.request(path, method="POST", headers=headers, body=body)
        answer = await client.response()

    (asked,) = upstream.asked
    assert answer.status == 200
    assert asked.headers["authorization"] == f"Bearer {PROVIDER}"
    told = repr((asked.path, asked.headers, asked.raw))
    assert TEAM not in told
    assert "client-private" not in told


QUOTED = f"the key {PROVIDER} is out of credit"

QUOTING = {
    "400": refuses(400, QUOTED),
    "401": refuses(401, QUOTED),
    "403": refuses(403, QUOTED),
    "404, no JSON": answers(404, QUOTED.encode(), {"content-type": "text/plain"}),
    "429": refuses(429, QUOTED),
    "500": refuses(500, QUOTED),
    "an error in a 200": streams(error(QUOTED), role=False),
    "an error in mid-stream": streams("Hel", error(QUOTED)),
    "a header": answers(400, b"{}", {"x-you-sent": f"Bearer {PROVIDER}"}),
    "a cookie": answers(400, b"{}", {"set-cookie": f"key={PROVIDER}"}),
    "a challenge": answers(401, b"{}", {"www-authenticate": f"Bearer key={PROVIDER}"}),
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("script", QUOTING.values(), ids=QUOTING.keys())
async def test_a_provider_that_quotes_our_key_is_not_quoted(
    script: Script, stream: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    async with scene(script, more=ONE_TRY) as (edge, _):
        answer = await ask_once(edge.url, chat(stream=stream), bearer(TEAM))
        rows = await edge.settled()
        runs = await fetch(edge, "/v1/runs", TEAM)
        metrics = await fetch(edge, "/metrics", WATCHER)

    told = [answer.head, answer.body, runs.body, metrics.body, repr(rows), repr(edge.events)]
    for each in (*told, *capfd.readouterr()):
        assert PROVIDER not in str(each)
        assert TEAM not in str(each)
    assert b"set-cookie" not in answer.head.lower()


@pytest.mark.parametrize("name", ["400", "404, no JSON", "500", "a header", "a cookie"])
async def test_nor_is_it_where_answers_pass_through(name: str) -> None:
    async with scene(QUOTING[name], more=TUNNEL) as (edge, _):
        answer = await ask_once(edge.url, chat(), bearer(TEAM))
        rows = await edge.settled()

    assert answer.status == (500 if name == "500" else int(name[:3]) if name[0] == "4" else 400)
    assert PROVIDER not in repr((answer.head, answer.body, rows))
    assert b"set-cookie" not in answer.head.lower()


PASSED_ON = {
    "an error in a 200": streams(error(QUOTED), role=False),
    "an error in mid-stream": streams("Hel", error(QUOTED)),
    "a whole body": answers(200, orjson.dumps({"error": {"message": QUOTED}})),
    "a body that is no JSON": answers(200, QUOTED.encode(), {"content-type": "text/plain"}),
    "an end": answers(200, f"{PROVIDER}".encode(), {"content-type": "text/plain"}),
}


@pytest.mark.parametrize("script", PASSED_ON.values(), ids=PASSED_ON.keys())
async def test_nor_inside_of_an_answer_that_passes_through(script: Script) -> None:
    async with scene(script, more=TUNNEL) as (edge, _), connect(edge.url) as client:
        body = orjson.dumps(chat(stream=True))
        await client.request(CHAT, method="POST", headers=[bearer(TEAM)], body=body)
        answer = await client.response()

    assert answer.status in (200, 502)
    assert PROVIDER not in repr(answer)
    assert b"[redacted]" in answer.body


@pytest.mark.parametrize("name", [name for name in QUOTING if name != "a header"])
@pytest.mark.parametrize("more", [ONE_TRY, ONE_TRY + "trace = true\n", TUNNEL])
async def test_nor_to_those_who_follow_a_run(name: str, more: str) -> None:
    async with (
        scene(QUOTING[name], more=more) as (edge, _),
        open_socket(edge.url, "/v1/mirror", key=WATCHER) as follower,
    ):
        await until(lambda: edge.gateway.common.hub.statistics().subscribers == 1)
        await ask_once(edge.url, chat(stream=True), bearer(TEAM))
        frames = await follower.until("run.finished")

    assert len(frames) > 2
    assert PROVIDER not in repr(frames)
    assert TEAM not in repr(frames)


async def test_what_only_looks_like_our_key_passes_through_whole() -> None:
    body = f"{PROVIDER[:-1]} {PROVIDER[:9]}".encode()
    script = answers(200, body, {"content-type": "text/plain"})
    async with scene(script) as (edge, _):
        asked = b'{"model": "coder", "input": "x"}'
        answer = await fetch(edge, "/v1/embeddings", TEAM, "POST", asked)

    assert answer.body == body


async def test_no_secret_is_in_what_is_shown_of_a_good_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    async with scene(more="[telemetry]\ntrace_content = true\n") as (edge, _):
        traced = chat(stream=True, metadata={"edge.trace": "true"})
        answer = await ask_once(edge.url, traced, bearer(TEAM), ("Cookie", "client-private"))
        rows = await edge.settled()
        run_id = answer.headers["x-edge-run-id"]
        shown = await fetch(edge, f"/v1/runs/{run_id}", TEAM)
        models = await fetch(edge, "/v1/models", TEAM)

    output = capfd.readouterr()
    told = [answer.head, answer.body, shown.body, models.body, rows, edge.events, output]
    for secret in (TEAM, PROVIDER, "client-private", "EDGE_TEST"):
        assert secret not in repr(told)
    assert PROVIDER not in repr(edge.gateway.settings)
    assert TEAM not in repr(edge.gateway.settings)


ELSEWHERE = {
    "absolute": "{other}/v1/chat/completions",
    "absolute embeddings": "{other}/v1/embeddings",
    "double slash": "//127.0.0.1:{port}/v1/chat/completions",
    "slashes inside": "/v1//127.0.0.1:{port}/x",
    "credentials": "/v1/@127.0.0.1:{port}/x",
    "upwards": "/v1/../../admin",
    "upwards, escaped": "/v1/%2e%2e/%2e%2e/admin",
    "upwards, escaped twice": "/v1/%252e%252e/admin",
    "a slash, escaped": "/v1/embeddings%2f..%2f..%2fadmin",
    "a backslash": "/v1/..\\\\admin",
    "a query": "/v1/embeddings?base_url={other}&url={other}",
    "a line end, escaped": "/v1/embeddings%0d%0aHost:%20evil",
}


@pytest.mark.parametrize("target", ELSEWHERE.values(), ids=ELSEWHERE.keys())
async def test_no_request_chooses_an_address(target: str) -> None:
    async def never(peer: Peer) -> None:
        await peer.read_request()

    async with raw_server(never) as other, scene() as (edge, upstream), connect(edge.url) as client:
        path = target.format(other=other.url, port=other.port)
        fields = {"base_url": other.url, "api_base": other.url, "provider": other.url}
        body = orjson.dumps({**chat(), "input": "x", **fields})
        headers = [bearer(TEAM), ("X-Forwarded-Host", f"127.0.0.1:{other.port}")]
        await client.request(path, method="POST", headers=headers, body=body)
        answer = await client.response()

        assert other.events == []
        for asked in upstream.asked:
            assert asked.path.partition("?")[0] in ("/v1/embeddings", CHAT)
            assert asked.headers["host"] == upstream.url.removeprefix("http://")
        assert answer.status in (200, 400, 404)


@pytest.mark.parametrize("model", ["http://127.0.0.1:1/", "../x", "a\r\nHost: evil", "a\0b", "*"])
async def test_a_models_name_is_only_a_name(model: str) -> None:
    async with scene() as (edge, upstream):
        answer = await ask_once(edge.url, {**chat(), "model": model}, bearer(OTHER))

    assert answer.status == 200
    assert [asked.body["model"] for asked in upstream.asked] == [model]
    assert upstream.asked[0].path == CHAT
    assert "evil" not in repr(upstream.asked[0].headers)
    assert b"\r\nHost: evil" not in answer.head


@pytest.mark.parametrize("key", ["base_url", "provider", "api_key", "path", "max_attempts=x"])
async def test_a_run_can_only_be_told_of_output(key: str) -> None:
    async with scene() as (edge, upstream):
        override = ("x-edge-output", f"{key}=http://127.0.0.1:1")
        answer = await ask_once(edge.url, chat(), bearer(TEAM), override)

    assert answer.status == 400
    assert upstream.asked == []


@pytest.mark.parametrize("name", ["x-request-id", "traceparent", "user-agent", "content-type"])
async def test_a_header_of_the_clients_cannot_become_two(name: str) -> None:
    """Not even with bytes that some readers take for a line's end."""
    odd = "a\x85b\xa0c\xffX-Evil: 1"
    async with scene(more=TUNNEL) as (edge, upstream):
        answer = await ask_once(edge.url, chat(stream=True), bearer(TEAM), (name, odd))
        await edge.settled()

    assert answer.status == 200
    for headers in (answer.headers, *(asked.headers for asked in upstream.asked)):
        assert "x-evil" not in headers


async def test_a_run_is_its_own_keys_only_unless_the_other_observes() -> None:
    pause = trio.Event()
    async with scene(streams("Hel", pause, "lo")) as (edge, _), connect(edge.url) as client:
        await send(client, chat(stream=True), bearer(TEAM))
        run_id = (await client.head()).headers["x-edge-run-id"]
        path = f"/v1/runs/{run_id}"

        seen = [orjson.loads((await fetch(edge, "/v1/runs", key)).body)["data"] for key in ALL]
        shown = [(await fetch(edge, path, key)).status for key in ALL]
        cancelled = [(await fetch(edge, path, key, "DELETE")).status for key in (OTHER, "", "x")]
        unknown = await fetch(edge, "/v1/runs/run_other", OTHER)
        theirs = await fetch(edge, path, OTHER)
        pause.set()
        await client.rest_of_chunks()

    assert [len(runs) for runs in seen] == [1, 0, 1]
    assert shown == [200, 404, 200]
    assert cancelled == [404, 401, 401]
    assert unknown.body.replace(b"run_other", b"") == theirs.body.replace(run_id.encode(), b"")
    assert edge.statuses() == ["success"]


ALL = (TEAM, OTHER, WATCHER)


async def test_a_key_without_the_right_cancels_not_even_its_own() -> None:
    pause = trio.Event()
    async with scene(streams("Hel", pause, "lo")) as (edge, _), connect(edge.url) as client:
        await send(client, chat(stream=True), bearer(OTHER))
        run_id = (await client.head()).headers["x-edge-run-id"]

        refused = await fetch(edge, f"/v1/runs/{run_id}", OTHER, "DELETE")
        cancelled = await fetch(edge, f"/v1/runs/{run_id}", WATCHER, "DELETE")
        await client.rest_of_chunks()

    assert (refused.status, cancelled.status) == (403, 200)
    assert edge.statuses() == ["cancelled"]


async def test_a_key_sees_and_uses_its_models_only() -> None:
    async with scene() as (edge, upstream), connect(edge.url) as client:
        listed = orjson.loads((await fetch(edge, "/v1/models", TEAM)).body)["data"]
        hidden = await fetch(edge, "/v1/models/large", TEAM)
        refused = await ask(client, {**chat(), "model": "large"}, bearer(TEAM))
        nowhere = b'{"model": "large", "input": "x"}'
        tunnelled = await fetch(edge, "/v1/embeddings", TEAM, "POST", nowhere)
        twice = b'{"model": "large", "model": "coder", "input": "x"}'
        smuggled = await fetch(edge, "/v1/embeddings", TEAM, "POST", twice)
        allowed = await ask(client, {**chat(), "model": "large"}, bearer(OTHER))

    assert [model["id"] for model in listed] == ["coder"]
    assert [hidden.status, refused.status, tunnelled.status] == [404, 404, 404]
    assert (smuggled.status, allowed.status) == (200, 200)
    assert [asked.body["model"] for asked in upstream.asked] == ["coder", "large"]
    assert b"large" not in upstream.asked[0].raw


@pytest.mark.parametrize("path", ["/v1/models", "/v1/runs", "/v1/runs/x", "/metrics"])
@pytest.mark.parametrize("key", ["", "wrong", TEAM[:-1], f"{TEAM} ", f"{TEAM}x", PROVIDER])
async def test_without_a_key_nothing_is_told(path: str, key: str) -> None:
    async with scene() as (edge, _):
        status = (await fetch(edge, path, key)).status

    # Blanks around a key are no part of it.
    if key.strip() == TEAM:
        assert status in (200, 403, 404)
    else:
        assert status == 401 or (path, status) == ("/metrics", 404)
