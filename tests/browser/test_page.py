"""The page in a real browser: Chromium, driven by Playwright, against a whole gateway.

Skipped where there is no Chromium (``EDGE_CHROMIUM`` names one that is not on the path) or no
Playwright. ``EDGE_SCREENSHOTS=DIR`` keeps pictures of what the tests see.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from edge.server.auth import KEY_PROTOCOL
from tests.fakes.gateway import RunningGateway, ask_once, chat, gateway, send, tool
from tests.fakes.raw_client import connect

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = os.environ.get("EDGE_CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = os.environ.get("EDGE_SCREENSHOTS")
PATIENCE_MS = 60_000
"""How long a busy machine may take for anything; nothing waits so long elsewhere."""
SLOW = "Nothing runs for nobody, and what leaves is right. " + "On and on. " * 40
"""At a word a second it never ends by itself in a test."""

SIMULATED = """
[[providers]]
name = "sim"
kind = "simulated"
max_concurrent = 8
[[routes]]
model = "*"
targets = [{ provider = "sim" }]
"""
KEYED = """
[[keys]]
name = "desk"
key = "env:DESK_KEY"
observe = true
"""
FLOOD = """async () => {
  const {Runs} = await import("/ui/runs.js");
  const runs = new Runs();
  for (let n = 0; n < 300; n += 1) {
    const run = {run_id: `run_${n}`, at: 10};
    runs.take({...run, type: "run.started", seq: 1, model: "m"});
    const end = {status: "success", attempts: [], timings: {total_s: 0}};
    runs.take({...run, type: "run.finished", seq: 2, ...end});
  }
  const {hidden, finished} = runs.counts;
  const shown = runs.rows.size;
  for (const n of [300, 301]) runs.take({type: "run.started", run_id: `run_${n}`, seq: 1, at: 20});
  runs.take({type: "gap", run_id: null, seq: null, at: 20, missed: 7});
  const kept = ["run_1", "run_2"].map((id) => runs.rows.has(id));
  return [shown, hidden, finished, ...kept, runs.counts.missed];
}"""
"""Of 300 runs at once 200 are shown; ended ones make room later; a gap is counted."""
HOLES = """async () => {
  const {Runs} = await import("/ui/runs.js");
  const runs = new Runs();
  const take = (seq, frame) => runs.take({run_id: "run_1", at: 1, seq, ...frame});
  const missed = () => runs.rows.get("run_1").missed;
  const chunk = {type: "chunk", chunk: null};
  take(1, {type: "run.started", model: "m"});
  take(5, chunk);
  const told = [missed()];
  runs.take({type: "gap", run_id: null, seq: null, at: 1, missed: 3});
  take(9, chunk);
  told.push(missed());
  take(20, {type: "gap", missed: 2});
  return [...told, missed()];
}"""
"""Numbers that are left out without a gap are of frames that this key is not told."""
NAMELESS = """() => [...document.querySelectorAll("button, input, summary, a")]
  .filter((each) => each.offsetParent)
  .filter((each) => !(each.innerText.trim() || each.ariaLabel || each.labels?.length))
  .map((each) => each.outerHTML)"""
"""What can be used and has no name."""
WEATHER = tool("weather", "city", city={"type": "string"})


@contextmanager
def opened(url: str, folder: Path, scheme: str = "light") -> Iterator[Any]:
    """The page in a fresh browser; nothing it says on its console may be an error."""
    with playwright.sync_playwright() as driver:
        context = driver.chromium.launch_persistent_context(
            str(folder),
            executable_path=CHROMIUM,
            args=FLAGS,
            color_scheme=scheme,
            viewport={"width": 1280, "height": 720},
        )
        page = context.pages[0]
        page.set_default_timeout(PATIENCE_MS)
        playwright.expect.set_options(timeout=PATIENCE_MS)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if refused(said) else None)
        page.goto(f"{url}/ui")
        yield page
        context.close()
        assert faults == []


def refused(said: Any) -> bool:
    """Whether a console message tells of something the page's policy forbids."""
    return "Content Security Policy" in said.text or "MIME" in said.text


def picture(page: Any, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))


def live(page: Any) -> None:
    playwright.expect(page.locator("#connection")).to_have_text("Live")


async def drive(look: Callable[[], None]) -> None:
    """Playwright's own event loop wants a thread of its own."""
    await trio.to_thread.run_sync(look)


def ask(url: str, request: dict[str, Any], *headers: tuple[str, str]) -> None:
    """Ask the gateway from the browser's thread, and wait for the answer."""
    trio.from_thread.run(ask_once, url, request, *headers)


async def test_an_empty_page_says_so_and_can_be_used_with_the_keyboard(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            assert page.get_by_text("Runs appear here as they happen.").is_visible()
            picture(page, "empty")
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
            hold = page.get_by_role("button", name="Hold")
            playwright.expect(hold).to_have_attribute("aria-pressed", "true")
            playwright.expect(hold).to_be_focused()

    async with gateway(SIMULATED) as edge:
        await drive(look)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_run_fills_with_text_and_is_cancelled_by_its_button(
    tmp_path: Path, scheme: str
) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path, scheme) as page:
            live(page)
            ask(edge.url, chat(model="sim-tools", tools=[WEATHER]))
            trio.from_thread.run_sync(nursery.start_soon, start_slow)
            row = page.locator("#runs tr").first
            playwright.expect(row).to_contain_text("Nothing runs")
            playwright.expect(row).to_contain_text("running")
            picture(page, f"running-{scheme}")
            row.get_by_role("button", name="Cancel run").click()
            playwright.expect(row).to_contain_text("cancelled")
            playwright.expect(page.locator("#counts")).to_contain_text("0 running, 2 finished")

    async def start_slow() -> None:
        await ask_once(edge.url, chat(SLOW, model="sim-slow", stream=True))

    async with gateway(SIMULATED) as edge, trio.open_nursery() as nursery:
        await drive(look)
    assert edge.statuses()[-1] == "cancelled"


async def test_a_refused_tool_call_unfolds_with_its_reason(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            ask(edge.url, chat("How is it?", model="sim-tools", tools=[WEATHER], stream=True))
            row = page.locator("#runs tr").first
            playwright.expect(row.locator(".call.good").first).to_contain_text("weather(")
            row.locator("summary").click()
            first, second = row.locator("li").nth(0), row.locator("li").nth(1)
            playwright.expect(first.locator(".badge.bad")).to_have_text("invalid")
            playwright.expect(first.locator("p")).not_to_be_empty()
            playwright.expect(second.locator(".badge.good")).to_have_text("valid")
            picture(page, "retried")

    async with gateway(SIMULATED) as edge:
        await drive(look)


async def test_a_client_that_leaves_is_a_give_up_and_no_failure(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            trio.from_thread.run(leave)
            row = page.locator("#runs tr").first
            playwright.expect(row.locator(".badge.warn").first).to_have_text("client gave up")
            playwright.expect(page.locator("#counts")).to_contain_text("0 failed, 1 gave up")
            picture(page, "give-up")

    async def leave() -> None:
        async with connect(edge.url) as client:
            await send(client, chat(SLOW, model="sim-slow", stream=True))
            await edge.phase_reached("streaming")

    async with gateway(SIMULATED) as edge:
        await drive(look)


async def test_a_run_is_read_and_cancelled_with_the_keyboard_alone(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            trio.from_thread.run_sync(nursery.start_soon, start_slow)
            row = page.locator("#runs tr").first
            playwright.expect(row).to_contain_text("Nothing runs")
            for _ in range(2):  # the button that holds, then the row
                page.keyboard.press("Tab")
            playwright.expect(row.locator("summary")).to_be_focused()
            page.keyboard.press("Enter")
            playwright.expect(row.locator("li")).to_contain_text("running sim")
            page.keyboard.press("Tab")
            button = row.get_by_role("button", name="Cancel run")
            playwright.expect(row).to_contain_text("what leaves")  # it has been painted meanwhile
            playwright.expect(button).to_be_focused()
            page.keyboard.press("Enter")
            playwright.expect(row).to_contain_text("cancelled")

    async def start_slow() -> None:
        await ask_once(edge.url, chat(SLOW, model="sim-slow", stream=True))

    async with gateway(SIMULATED) as edge, trio.open_nursery() as nursery:
        await drive(look)


async def test_a_screen_reader_finds_tables_names_and_headings(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            ask(edge.url, chat("How is it?", model="sim-tools", tools=[WEATHER], stream=True))
            playwright.expect(page.locator("#runs tr")).to_contain_text("2 attempts")
            playwright.expect(page.locator("#providers tr")).to_contain_text("of 8")
            assert page.locator("html").get_attribute("lang") == "en"
            assert page.title()
            for place in ("banner", "main"):
                assert page.get_by_role(place).count() == 1
            assert page.get_by_role("status").inner_text() == "Live"
            runs = page.get_by_role("table", name="Runs")
            assert [each.inner_text() for each in runs.get_by_role("columnheader").all()] == [
                *("Status", "Run", "Answer", "Attempts", "Time", "Actions")
            ]
            row = runs.get_by_role("row").nth(1)
            assert "sim-tools" in row.get_by_role("rowheader").inner_text()
            assert row.get_by_role("cell").count() == 5
            providers = page.get_by_role("table", name="Providers")
            line = providers.get_by_role("row").nth(1)
            assert line.get_by_role("rowheader").inner_text() == "sim"
            told = [cell.inner_text() for cell in line.get_by_role("cell").all()]
            assert told[:3] == ["well", "0 of 8", "0"]
            playwright.expect(line.get_by_role("cell").nth(3)).to_contain_text("%")
            nameless = page.evaluate(NAMELESS)
            assert nameless == []

    async with gateway(SIMULATED) as edge:
        await drive(look)


async def test_what_models_say_is_text_and_never_markup(tmp_path: Path) -> None:
    said = "<img src=x onerror=alert(1)><b>bold</b>"

    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            ask(edge.url, chat(said, model="sim-echo", stream=True))
            playwright.expect(page.locator("#runs tr").first).to_contain_text(said)
            assert page.locator("#runs img, #runs b").count() == 0

    async with gateway(SIMULATED) as edge:
        await drive(look)


async def test_a_flood_of_runs_is_counted_and_shown_in_part(tmp_path: Path) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            trio.from_thread.run(flood)
            counts = page.locator("#counts")
            playwright.expect(counts).to_contain_text("0 running, 300 finished")
            assert page.locator("#runs tr").count() == 200
            assert page.evaluate(HOLES) == [0, 3, 5]
            assert page.evaluate(FLOOD) == [200, 100, 300, False, True, 7]

    async def flood() -> None:
        for _ in range(300):
            await ask_once(edge.url, chat("go", model="sim-echo"))

    async with gateway(SIMULATED) as edge:
        await drive(look)


async def test_a_key_is_asked_for_and_opens_the_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> None:
        with opened(edge.url, tmp_path) as page:
            field = page.get_by_label("This gateway asks for a key")
            playwright.expect(field).to_be_focused()
            field.fill("wrong")
            page.keyboard.press("Enter")
            playwright.expect(page.get_by_role("alert")).to_have_text("This key is not valid here")
            field.fill("the-key-of-the-desk")
            page.keyboard.press("Enter")
            live(page)
            ask(edge.url, request, ("authorization", "Bearer the-key-of-the-desk"))
            playwright.expect(page.locator("#runs tr").first).to_contain_text("desk")
            assert KEY_PROTOCOL not in page.content()

    request = chat("go", model="sim-echo")
    monkeypatch.setenv("DESK_KEY", "the-key-of-the-desk")
    async with gateway(SIMULATED + KEYED) as edge:
        await drive(look)


async def test_a_page_whose_gateway_goes_down_says_that_it_tries_again(tmp_path: Path) -> None:
    def look(edge: RunningGateway) -> None:
        with opened(edge.url, tmp_path) as page:
            live(page)
            trio.from_thread.run_sync(edge.gateway.common.hub.drain)
            playwright.expect(page.locator("#connection")).to_contain_text("trying again")

    async with gateway(SIMULATED) as edge:
        await drive(lambda: look(edge))
