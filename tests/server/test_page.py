"""The page's files, their policy, and who may open a WebSocket from a browser."""

import base64
import re
from pathlib import Path

import pytest

from edge.server import page
from edge.settings import Settings
from tests.fakes.gateway import gateway, upstream_config
from tests.fakes.raw_client import connect

UI = Path(page.__file__).parent / "ui"
KEYED = """
[[keys]]
name = "team"
key = "env:TEAM_KEY"
"""
UPGRADE = [
    ("connection", "Upgrade"),
    ("upgrade", "websocket"),
    ("sec-websocket-version", "13"),
    ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
]


def config(more: str = "") -> str:
    return upstream_config("http://127.0.0.1:9") + more


async def test_every_file_of_the_page_is_given_with_its_policy() -> None:
    async with gateway(config()) as edge, connect(edge.url) as client:
        for path in ("/ui", "/ui/", *(f"/ui/{file.name}" for file in UI.iterdir())):
            answer = await client.get(path)

            assert answer.status == 200, path
            assert answer.headers["x-content-type-options"] == "nosniff"
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
        assert (await client.get("/ui/nothing.js")).status == 404
        assert (await client.get("/ui/%2e%2e/page.py")).status == 404


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async with gateway(config()) as edge, connect(edge.url) as client:
        first = await client.get("/ui/page.js")
        await client.request("/ui/page.js", headers=[("if-none-match", first.headers["etag"])])
        second = await client.response(bodyless=True)

    assert second.status == 304


def test_the_page_loads_nothing_from_elsewhere_and_sets_no_html() -> None:
    for file in UI.iterdir():
        text = file.read_text()
        assert not re.search(r"https?://|innerHTML|insertAdjacentHTML|\beval\b| style=", text), file


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("http://gateway", True), ("http://other.example", False), ("null", False)],
)
async def test_only_the_gateways_own_pages_open_sockets(origin: str, allowed: bool) -> None:
    async with gateway(config()) as edge:
        assert await opens(edge.url, ("origin", origin)) is allowed


async def test_a_configured_origin_opens_sockets() -> None:
    text = config('\n[server]\nbind = ["127.0.0.1:0"]\ncors_origins = ["https://desk.example"]\n')
    async with gateway(Settings.from_toml(text)) as edge:
        assert await opens(edge.url, ("origin", "https://desk.example"))
        assert not await opens(edge.url, ("origin", "https://other.example"))


async def test_a_key_may_come_as_an_offered_protocol(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "secret-of-the-team")
    async with gateway(config(KEYED)) as edge:
        assert await opens(edge.url, protocols=["edge.mirror", offered("secret-of-the-team")])
        assert not await opens(edge.url, protocols=["edge.mirror", offered("another")])
        assert not await opens(edge.url, protocols=["edge.mirror", "edge.key.a"])
        assert not await opens(edge.url, protocols=["edge.mirror"])


def offered(key: str) -> str:
    return "edge.key." + base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")


async def opens(url: str, *headers: tuple[str, str], protocols: list[str] | None = None) -> bool:
    """Whether the mirror lets itself be opened; the protocol it chooses is never the key."""
    offer = [("sec-websocket-protocol", ", ".join(protocols))] if protocols else []
    async with connect(url) as client:
        await client.request("/v1/mirror", headers=[*UPGRADE, *offer, *headers])
        answer = await client.head()
    if answer.status == 101:
        chosen = answer.headers.get("sec-websocket-protocol")
        assert chosen == ("edge.mirror" if protocols else None)
        return True
    assert answer.status in (401, 403)
    return False
