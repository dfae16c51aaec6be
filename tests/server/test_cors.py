"""Pages of configured origins may call and read; others may not even send where no key is asked."""

import pytest

from tests.fakes.gateway import CHAT, RunningGateway, ask_once, chat, gateway, upstream_config
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import RawResponse, connect

PAGE = "https://chat.example"
KEYED = '[[keys]]\nname = "team"\nkey = "env:EDGE_TEST_KEY"\n'


def config(base_url: str = "http://127.0.0.1:9", origins: str = "", keys: str = "") -> str:
    return upstream_config(base_url, server=f"cors_origins = [{origins}]") + keys


async def preflight(
    edge: RunningGateway, origin: str, *more: tuple[str, str], path: str = CHAT
) -> RawResponse:
    asked = [("origin", origin), ("access-control-request-method", "POST"), *more]
    async with connect(edge.url) as client:
        await client.request(path, method="OPTIONS", headers=asked)
        return await client.response(bodyless=True)


@pytest.mark.parametrize(
    ("origins", "told"), [(f'"{PAGE}"', PAGE), ('"*"', "*")], ids=["one", "any"]
)
async def test_a_page_of_a_configured_origin_calls_and_reads(
    origins: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "team-secret")
    wanted = "authorization, content-type, x-stainless-lang"
    async with (
        openai_server() as upstream,
        gateway(config(upstream.base_url, origins, KEYED)) as edge,
    ):
        asked = await preflight(edge, PAGE, ("access-control-request-headers", wanted))
        key = ("authorization", "Bearer team-secret")
        answer = await ask_once(edge.url, chat(stream=True), ("origin", PAGE), key)
        refusal = await ask_once(edge.url, chat(), ("origin", PAGE))

    assert asked.status == 204
    assert asked.headers["access-control-allow-headers"] == wanted
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert (answer.status, refusal.status) == (200, 401)
    for each in (asked, answer, refusal):
        assert each.headers["access-control-allow-origin"] == told
        assert "x-edge-run-id" in each.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in each.headers
    assert "origin" not in upstream.asked[0].headers


async def test_the_first_refusal_of_a_page_is_its_preflight() -> None:
    async with gateway(config(origins=f'"{PAGE}"')) as edge:
        answer = await preflight(edge, "https://evil.example")

    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("names", ["a b", "x" * 5000, "evil: yes", "a,,b"])
async def test_odd_names_of_headers_are_not_sent_back(names: str) -> None:
    async with gateway(config(origins='"*"')) as edge:
        answer = await preflight(edge, PAGE, ("access-control-request-headers", names))

    assert answer.status == 204
    assert "access-control-allow-headers" not in answer.headers


async def test_a_page_may_ask_from_the_web_for_a_gateway_at_home() -> None:
    asks = ("access-control-request-private-network", "true")
    async with gateway(config(origins=f'"{PAGE}"')) as edge:
        answer = await preflight(edge, PAGE, asks)

    assert answer.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:1234", "null"])
async def test_without_keys_other_pages_cannot_change_anything(origin: str) -> None:
    async with openai_server() as upstream, gateway(config(upstream.base_url)) as edge:
        answer = await ask_once(
            edge.url, chat(), ("origin", origin), ("content-type", "text/plain")
        )
        async with connect(edge.url) as client:
            await client.request("/v1/runs/run_1", method="DELETE", headers=[("origin", origin)])
            cancelled = await client.response()

    assert (answer.status, cancelled.status) == (403, 403)
    assert upstream.asked == []


@pytest.mark.parametrize("origin", ["http://gateway", "HTTP://Gateway", "vscode-webview://abc"])
async def test_its_own_page_and_what_is_no_page_are_let_through(origin: str) -> None:
    async with openai_server() as upstream, gateway(config(upstream.base_url)) as edge:
        answer = await ask_once(edge.url, chat(), ("origin", origin))

    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_with_keys_the_key_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "team-secret")
    async with openai_server() as upstream, gateway(config(upstream.base_url, keys=KEYED)) as edge:
        key = ("authorization", "Bearer team-secret")
        answer = await ask_once(edge.url, chat(), ("origin", "https://evil.example"), key)

    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_an_options_request_that_is_no_preflight_is_what_it_was() -> None:
    async with gateway(config(origins='"*"')) as edge, connect(edge.url) as client:
        await client.request(CHAT, method="OPTIONS", headers=[("origin", PAGE)])
        answer = await client.response()

    assert answer.status == 405
    assert answer.headers["access-control-allow-origin"] == "*"
