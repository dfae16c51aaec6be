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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_on_its_ground(scheme: str) -> None:
    """By WCAG 2.2, 1.4.3: the contrast of small text is 4.5 to 1 at least."""
    roots = re.findall(r":root \{(.*?)\}", (UI / "page.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w+);", roots[scheme == "dark"]))
    pairs = [("ink", "ground"), ("quiet", "ground"), ("ink", "field"), ("ink", "warn-ground")]
    pairs += [(tone, f"{tone}-ground") for tone in ("good", "warn", "bad", "live")]

    poor = [pair for pair in pairs if contrast(*(colours[name] for name in pair)) < 4.5]
    assert poor == []


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted(map(luminance, (one, other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(each * 2 for each in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(map(float.__mul__, (0.2126, 0.7152, 0.0722), linear))


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
