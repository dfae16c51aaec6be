"""``GET /v1/runs``: what has run and is running, filtered, in pages, and only what one may see."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from edge.core.run_summary import RunFacts, RunQuery
from edge.settings import Settings, Surroundings
from tests.fakes.gateway import ask_once, chat, gateway, send, tool, until, upstream_config
from tests.fakes.openai_scripts import by_attempt, by_model, calls, refuses, silent, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import RawResponse, connect

WEATHER = tool("weather", "city", city={"type": "string"})
KEYS = """
[[keys]]
name = "team-a"
key = "env:A"
[[keys]]
name = "watcher"
key = "env:W"
observe = true
"""


async def get(url: str, path: str, key: str = "") -> RawResponse:
    async with connect(url) as client:
        headers = [("Authorization", f"Bearer {key}")] if key else []
        await client.request(path, headers=headers)
        return await client.response()


async def listed(url: str, query: str = "", key: str = "") -> dict[str, Any]:
    answer = await get(url, f"/v1/runs{query}", key)
    assert answer.status == 200, answer.body
    found: dict[str, Any] = orjson.loads(answer.body)
    return found


def ids(page: dict[str, Any]) -> list[str]:
    return [run["id"] for run in page["data"]]


async def run_once(url: str, *headers: tuple[str, str], **fields: Any) -> str:
    answer = await ask_once(url, chat(**fields), *headers)
    return answer.headers["x-edge-run-id"]


async def test_pages_follow_each_other_while_runs_begin_and_end() -> None:
    pause = trio.Event()
    script = by_model({"coder": streams("Hello"), "slow": streams("Hel", pause, "lo")})
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url) as client,
    ):
        begun = [await run_once(edge.url) for _ in range(2)]
        await send(client, chat(model="slow", stream=True))
        begun.append((await client.head()).headers["x-edge-run-id"])
        begun += [await run_once(edge.url) for _ in range(2)]
        first = await listed(edge.url, "?limit=2")
        pause.set()
        await client.rest_of_chunks()
        await edge.settled(5)
        await run_once(edge.url)
        second = await listed(edge.url, f"?limit=2&after={first['last_id']}")
        third = await listed(edge.url, f"?limit=2&after={second['last_id']}")

    assert [ids(page) for page in (first, second, third)] == [
        begun[:2:-1],
        begun[2:0:-1],
        begun[:1],
    ]
    assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
    assert (first["first_id"], first["last_id"]) == (begun[4], begun[3])


async def test_runs_are_found_by_what_they_are() -> None:
    script = by_model({"coder": streams("Hello"), "broken": refuses(400, "no"), "mute": silent})
    async with openai_server(script) as upstream:
        config = upstream_config(upstream.base_url)
        config += '[[routes]]\nmodel = "mute"\ntargets = [{ provider = "gpu1" }]\n'
        async with gateway(config) as edge, connect(edge.url) as client:
            sound = await run_once(edge.url)
            broken = await run_once(edge.url, model="broken")
            await send(client, chat(model="mute"))
            await edge.phase_reached("connecting")
            (live,) = edge.gateway.desk.registry.live()
            found = {
                query: ids(await listed(edge.url, f"?{query}"))
                for query in (
                    "status=running",
                    "status=success",
                    "status=upstream_error",
                    "route=mute",
                    "provider=gpu1",
                    "provider=gpu2",
                    "since=0",
                    "since=99999999999",
                    "key=team-a",
                    "route=*&status=success",
                )
            }

    assert found == {
        "status=running": [live.id],
        "status=success": [sound],
        "status=upstream_error": [broken],
        "route=mute": [live.id],
        "provider=gpu1": [live.id, broken, sound],
        "provider=gpu2": [],
        "since=0": [live.id, broken, sound],
        "since=99999999999": [],
        "key=team-a": [],
        "route=*&status=success": [sound],
    }


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=ten",
        "limit=99999999999999999999",
        "status=done",
        "since=yesterday",
        "since=nan",
        "after=run_none",
        "state=running",
        "limit=1&limit=2",
    ],
)
async def test_a_filter_that_makes_no_sense_is_refused_by_name(query: str) -> None:
    async with openai_server() as upstream, gateway(upstream_config(upstream.base_url)) as edge:
        answer = await get(edge.url, f"/v1/runs?{query}")

    assert answer.status == 400
    assert orjson.loads(answer.body)["error"]["param"] == query.partition("=")[0]


async def test_a_run_shows_each_attempt_with_its_verdict_and_its_times() -> None:
    script = by_attempt(calls("weather", {"town": "Bern"}), calls("weather", {"city": "Bern"}))
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        run_id = await run_once(edge.url, tools=[WEATHER], stream=True)
        await edge.settled(2)
        run = orjson.loads((await get(edge.url, f"/v1/runs/{run_id}")).body)

    assert [each["verdict"] for each in run["attempts"]] == ["invalid", "valid"]
    assert [each["category"] for each in run["attempts"]] == ["schema", ""]
    assert [each["provider"] for each in run["attempts"]] == ["gpu1", "gpu1"]
    assert (run["status"], run["provider"], run["path"]) == ("success", "gpu1", "normalized")
    assert run["attempts"][1]["feedback"] is True
    assert run["age_s"] >= run["held_s"] >= 0
    assert run["first_token_s"] > 0
    assert run["usage"] == run["attempts"][1]["usage"]


async def test_a_run_that_nobody_judged_has_no_verdict() -> None:
    async with openai_server(streams("Hello")) as upstream:
        config = upstream_config(
            upstream.base_url, provider='path = "normalized"', output='validate = "off"'
        )
        async with gateway(config) as edge:
            run_id = await run_once(edge.url)
            await edge.settled()
            run = orjson.loads((await get(edge.url, f"/v1/runs/{run_id}")).body)

    assert [each["verdict"] for each in run["attempts"]] == [None]


async def test_a_key_sees_its_own_runs_and_an_observer_all() -> None:
    async with openai_server(streams("Hello")) as upstream:
        settings = Settings.from_toml(
            upstream_config(upstream.base_url) + KEYS,
            bind=["127.0.0.1:0"],
            around=Surroundings(environ={"A": "key-of-a", "W": "key-of-w"}, folder=Path()),
        )
        async with gateway(settings) as edge:
            mine = await run_once(edge.url, ("Authorization", "Bearer key-of-a"))
            other = await run_once(edge.url, ("Authorization", "Bearer key-of-w"))
            await until(lambda: len(edge.rows()) == 2)
            own = await listed(edge.url, key="key-of-a")
            every = await listed(edge.url, key="key-of-w")
            hidden = await get(edge.url, f"/v1/runs/{other}", "key-of-a")
            behind = await get(edge.url, f"/v1/runs?after={other}", "key-of-a")

    assert ids(own) == [mine]
    assert ids(every) == [other, mine]
    assert hidden.status == 404
    assert behind.status == 400


def test_a_query_is_about_every_filter_at_once() -> None:
    run = RunFacts(
        number=1, id="run_1", request_id="", created=100, model="m", key="k", route="r",
        stream=True, status="running", phase="queued", age_s=0.0,
    )  # fmt: skip

    assert RunQuery(status="running", route="r", key="k", since=100).matches(run)
    assert not RunQuery(status="running", route="r", key="k", since=100.5).matches(run)
    assert not RunQuery(provider="gpu1").matches(run)
