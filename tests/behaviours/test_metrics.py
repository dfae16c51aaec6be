"""``GET /metrics`` of a whole gateway, alone and with workers, and what is written about it."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import trio
from prometheus_client import CollectorRegistry

from edge.settings import Settings
from edge.telemetry.gauges import Gauges
from edge.telemetry.instruments import Instruments
from tests.fakes.edge_process import edge_process
from tests.fakes.gateway import ask_once, chat, gateway, send, tool, upstream_config
from tests.fakes.keys import OPERATIONS_AND_TEAM
from tests.fakes.openai_scripts import silent
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import RawResponse, connect
from tests.fakes.scraped import Scraped

DOCS = Path(__file__).parent.parent.parent / "docs"


async def get(url: str, *headers: tuple[str, str]) -> RawResponse:
    async with connect(url) as client:
        await client.request("/metrics", headers=headers)
        return await client.response()


async def scrape(url: str) -> Scraped:
    answer = await get(url)
    assert answer.status == 200, answer.body
    return Scraped(answer.body)


async def test_a_run_is_in_the_metrics_when_it_has_ended() -> None:
    weather = tool("weather", "city", city={"type": "string"})
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        await ask_once(edge.url, chat("one two", model="sim-echo", stream=True))
        await ask_once(edge.url, chat("go", model="sim-tools", tools=[weather]))
        seen = await scrape(edge.url)

    assert seen.total("edge_runs_total", status="success") == 2
    assert seen.total("edge_attempts_total", status="validation_failed") == 1
    assert seen.value("edge_queue_wait_seconds_count", route="sim-echo") == 1
    calls = {"provider": "simulated", "form": "native"}
    assert seen.value("edge_tool_calls_total", **calls, verdict="retried") == 1
    assert seen.value("edge_tool_calls_total", **calls, verdict="native") == 1
    validity = {"provider": "simulated", "target": "simulated"}
    assert 0 < (seen.value("edge_target_call_validity", **validity) or 0) < 1


async def test_what_is_so_now_is_seen_while_it_is_so() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        async with connect(edge.url) as client:
            await send(client, chat(stream=True))
            await upstream.happened("asked")
            during = await scrape(edge.url)
        await edge.settled()
        after = await scrape(edge.url)

    assert during.value("edge_runs_active") == 1
    assert (during.value("edge_tasks") or 0) > (after.value("edge_tasks") or 0) > 0
    assert during.value("edge_provider_busy_slots", provider="gpu1") == 1
    assert after.value("edge_runs_active") == 0
    assert after.value("edge_provider_busy_slots", provider="gpu1") == 0
    assert after.total("edge_give_ups_total") == 1
    assert after.value("edge_cancel_latency_seconds_count", provider="gpu1") == 1


@pytest.mark.parametrize(
    ("telemetry", "statuses"),
    [("", [401, 403, 200]), ("[telemetry]\nopen_metrics = true", [200, 200, 200])],
)
async def test_with_keys_the_metrics_are_for_those_who_may_see_others_unless_they_are_open(
    telemetry: str, statuses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_TEST_OPERATIONS", "sk-operations")
    monkeypatch.setenv("EDGE_TEST_TEAM", "sk-team")
    async with gateway(
        upstream_config("http://127.0.0.1:1") + OPERATIONS_AND_TEAM + telemetry
    ) as edge:
        answers = [
            await get(edge.url),
            await get(edge.url, ("authorization", "Bearer sk-team")),
            await get(edge.url, ("authorization", "Bearer sk-operations")),
        ]

    assert [answer.status for answer in answers] == statuses


async def test_a_scraper_gets_the_form_it_asks_for() -> None:
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        plain = await get(edge.url)
        openmetrics = await get(edge.url, ("accept", "application/openmetrics-text"))

    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")


async def scraped_until(url: str, name: str, value: float, **labels: str) -> Scraped:
    """Scrape until a sum is as it should be: workers publish gauges now and then."""
    with trio.fail_after(30):
        while True:
            seen = await scrape(url)
            if seen.total(name, **labels) == value:
                return seen
            await trio.sleep(0.05)  # nothing tells of it


async def test_with_several_workers_any_of_them_tells_of_all_and_a_crash_loses_no_count() -> None:
    async with edge_process("--workers", "2") as edge:
        for _ in range(20):  # on connections of their own, so both get some
            await ask_once(edge.url, chat("one", model="sim-echo"))
        await scraped_until(edge.url, "edge_runs_total", 20)  # counted after its last byte is sent
        seen = [await scrape(edge.url) for _ in range(10)]
        await scraped_until(edge.url, "edge_info", 1)
        health = {"provider": "simulated", "state": "closed"}
        await scraped_until(edge.url, "edge_provider_health", 2, **health)

        (victim, _) = edge.workers()
        await trio.run_process(["kill", "-9", str(victim)])
        await edge.line("serves in its place")
        await ask_once(edge.url, chat("one", model="sim-echo"))
        await scraped_until(edge.url, "edge_provider_health", 2, **health)
        after = await scraped_until(edge.url, "edge_runs_total", 21)
        edge.send(signal.SIGTERM)
        await edge.ended()

    assert [each.total("edge_runs_total") for each in seen] == [20] * 10
    assert after.total("edge_runs_total") == 21


async def test_a_supervisor_that_is_killed_leaves_no_folder() -> None:
    async with edge_process("--workers", "2") as edge:
        (worker, _) = edge.workers()
        folder = trio.Path(environment_of(worker)["PROMETHEUS_MULTIPROC_DIR"])
        was_there = await folder.is_dir()
        edge.send(signal.SIGKILL)
        with trio.fail_after(30):
            while await folder.exists():  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.05)

    assert was_there


def environment_of(pid: int) -> dict[str, str]:
    told = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in told if "=" in pair)


# What is written about them.


def known() -> dict[str, set[str]]:
    """Every metric's name, with its labels."""
    registry = CollectorRegistry()
    Instruments(registry)
    Gauges(registry, shared=False)
    found = {}
    for collector in registry._collector_to_names:
        kind, name = collector._type, collector._name  # type: ignore[attr-defined]
        labels = set(collector._labelnames)  # type: ignore[attr-defined]
        found[f"{name}_total" if kind == "counter" else name] = labels
    return found


def test_every_metric_is_documented_with_its_labels_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*)\|", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    documented = {name: set(re.findall(r"`([a-z_]+)`", labels)) for name, labels in rows}
    metrics = known()

    assert documented.keys() == metrics.keys()
    common = {"gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model"}
    for name, labels in metrics.items():
        told = documented[name] - {"input", "output"}
        assert told == (labels - common if common <= labels else labels), name


DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize("query", QUERIES)
def test_the_dashboard_asks_for_metrics_and_labels_that_exist(query: str) -> None:
    metrics = known()
    names = re.findall(r"\b(?:edge|gen_ai)_\w+(?=[\[{)\s]|$)", re.sub(r"by \([^)]*\)", "", query))
    labels = {label for each in re.findall(r"by \(([^)]*)\)", query) for label in each.split(", ")}
    labels |= set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))

    assert names
    for name in names:
        family = name if name in metrics else re.sub(r"_(bucket|sum|count)$", "", name)
        assert family in metrics
        assert labels - {"le"} <= metrics[family]
        assert ("le" in labels) is name.endswith("_bucket")
    assert query.count("(") == query.count(")")


def test_the_dashboard_shows_every_metric_but_the_caps_and_factors() -> None:
    asked = " ".join(QUERIES)
    unseen = {name for name in known() if name not in asked}

    assert unseen == {"edge_info", "edge_provider_slots", "edge_target_penalty"}


def test_panels_have_titles_numbers_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(places)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
