"""``GET /v1/providers`` tells those who may see it what the pool knows, and what it weighs."""

from typing import Any

import orjson
import pytest
import trio

from edge.settings import Settings
from tests.fakes.gateway import (
    ask_once,
    chat,
    gateway,
    send,
    tool,
    until,
    upstream_config,
)
from tests.fakes.keys import OPERATIONS_AND_TEAM
from tests.fakes.openai_scripts import silent
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect

TWO_TARGETS = """
[[providers]]
name = "gpu1"
base_url = "http://127.0.0.1:1/v1"
max_concurrent = 4
[[providers]]
name = "gpu2"
base_url = "http://127.0.0.1:1/v1"
[[routes]]
model = "coder"
targets = [{ provider = "gpu1", model = "small" }, { provider = "gpu1", model = "big" }]
[[routes]]
model = "*"
targets = [{ provider = "gpu2" }]
"""


async def providers(url: str, *headers: tuple[str, str]) -> tuple[int, dict[str, Any]]:
    async with connect(url) as client:
        await client.request("/v1/providers", headers=headers)
        answer = await client.response()
    return answer.status, orjson.loads(answer.body)


async def test_every_provider_is_listed_with_its_slots_health_and_targets() -> None:
    async with gateway(TWO_TARGETS) as edge:
        status, told = await providers(edge.url)

    assert status == 200
    assert (told["object"], told["waiting"]) == ("list", 0)
    assert told["data"][0] == {
        "object": "edge.provider",
        "name": "gpu1",
        "max_concurrent": 4,
        "busy": 0,
        "waiting": 0,
        "health": "closed",
        "failures": 0,
        "resumes_in_s": 0,
        "call_validity": None,
        "judged": 0,
        "targets": [
            {
                "name": f"gpu1/{model}",
                "model": model,
                "call_validity": None,
                "judged": 0,
                "penalty": 1,
            }
            for model in ("small", "big")
        ],
    }
    assert [each["name"] for each in told["data"]] == ["gpu1", "gpu2"]
    assert told["data"][1]["targets"][0]["model"] is None


async def test_a_slot_that_is_taken_and_one_that_is_waited_for_are_seen() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url, provider="max_concurrent = 1")) as edge,
        connect(edge.url) as first,
        connect(edge.url) as second,
    ):
        await send(first, chat(stream=True))
        await upstream.happened("asked")
        await send(second, chat(stream=True))
        await until(lambda: edge.gateway.desk.dispatcher.statistics().waiting == 1)

        _, told = await providers(edge.url)

    assert (told["data"][0]["busy"], told["data"][0]["waiting"], told["waiting"]) == (1, 1, 1)


async def test_failures_open_the_breaker_for_all_to_see() -> None:
    async with gateway(TWO_TARGETS) as edge:
        for _ in range(5):
            async with connect(edge.url) as client:
                await send(client, chat(model="other"), ("x-edge-output", "max_attempts=1"))
                await client.response()

        _, told = await providers(edge.url)

    assert told["data"][1]["health"] == "open"
    assert told["data"][1]["failures"] == 5
    assert told["data"][1]["resumes_in_s"] > 0


async def test_what_answers_showed_of_tool_calls_is_told_with_the_penalty_it_brings() -> None:
    weather = tool("weather", "city", city={"type": "string"})
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        # The first attempt is malformed on purpose, the second sound.
        await ask_once(edge.url, chat("go", model="sim-tools", tools=[weather]))
        _, told = await providers(edge.url)

    (provider,) = told["data"]
    (target,) = provider["targets"]
    assert (provider["judged"], target["judged"]) == (2, 2)
    assert 0.9 < provider["call_validity"] < 1
    assert target["penalty"] == pytest.approx(1 / target["call_validity"] ** 2, rel=1e-3)


async def test_a_run_shows_the_validity_by_which_its_targets_were_chosen() -> None:
    weather = tool("weather", "city", city={"type": "string"})
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        await ask_once(edge.url, chat("go", model="sim-tools", tools=[weather]))
        async with connect(edge.url) as client:
            await client.request("/v1/runs")
            (run,) = orjson.loads((await client.response()).body)["data"]

    first, second = (attempt["call_validity"] for attempt in run["attempts"])
    assert first == 1
    assert second == pytest.approx(0.9, abs=0.01)  # the first was malformed


async def test_only_keys_that_may_see_others_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_OPERATIONS", "sk-operations")
    monkeypatch.setenv("EDGE_TEST_TEAM", "sk-team")
    async with gateway(TWO_TARGETS + OPERATIONS_AND_TEAM) as edge:
        statuses = [
            (await providers(edge.url, *headers))[0]
            for headers in (
                (),
                (("authorization", "Bearer sk-team"),),
                (("authorization", "Bearer sk-operations"),),
            )
        ]

    assert statuses == [401, 403, 200]


async def test_how_long_a_cancelled_attempt_took_to_end_is_measured() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        async with connect(edge.url) as client:
            await send(client, chat(stream=True))
            await upstream.happened("asked")
        (left,) = await edge.settled()
        async with connect(edge.url) as client:
            await send(client, chat(stream=True))
            await upstream.happened("asked", 2)
            (run,) = edge.gateway.desk.registry.live()
            assert edge.gateway.desk.registry.cancel(run.id)
            await client.response()
        _, cancelled = await edge.settled(2)
        now = trio.current_time()

    for row in (left, cancelled):
        assert row.status == "cancelled"
        assert row.cancel_s is not None
        assert 0 <= row.cancel_s < now
