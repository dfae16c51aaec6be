"""Schemathesis makes requests out of ``/openapi.json``, good and bad, and judges the answers.

It is started as a program of its own, which ``EDGE_SCHEMATHESIS`` names, since it goes with
versions of libraries that are not the gateway's. Without it there is nothing here to be seen;
``tox run -e api`` brings both.
"""

import json
import logging
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import trio

from edge.core.run_events import RunEnded, RunStarted
from edge.settings import Settings, Surroundings
from tests.fakes.described import Described, described_path
from tests.fakes.gateway import RunningGateway, gateway
from tests.fakes.openai_scripts import completes, streams
from tests.fakes.openai_server import Answer, openai_server
from tests.fakes.raw_client import connect

PROGRAM = os.environ.get("EDGE_SCHEMATHESIS", "")
HERE = Path(__file__).parent
PATIENCE_S = 300

CONFIG = """
[[keys]]
name = "team-a"
key = "env:A"
observe = true

[[providers]]
name = "simulated"
kind = "simulated"

[[providers]]
name = "gpu1"
base_url = "{}"
path = "tunnel"

[[routes]]
model = "coder"
policy = "ordered"
targets = [{{ provider = "simulated", model = "sim-tools" }}, {{ provider = "gpu1" }}]

[[routes]]
model = "*"
policy = "ordered"
targets = [{{ provider = "simulated", model = "sim-echo" }}, {{ provider = "gpu1" }}]
"""

pytestmark = pytest.mark.skipif(not PROGRAM, reason="EDGE_SCHEMATHESIS names no schemathesis")


async def in_kind(answer: Answer) -> None:
    """What was asked for: a stream or a whole answer."""
    script = streams("Hello") if answer.asked.body.get("stream") is True else completes("Hello")
    await script(answer)


async def document(edge: RunningGateway) -> Described:
    async with connect(edge.url) as client:
        return Described(json.loads((await client.get("/openapi.json")).body))


async def judge(url: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Have all addresses tried; what was asked and answered is left in ``folder``."""
    command = [
        *(PROGRAM, "--config-file", str(HERE / "schemathesis.toml"), "--no-color"),
        *("run", f"{url}/openapi.json", "--header", "Authorization: Bearer key-of-a"),
        *("--report", "har", "--report-har-path", str(folder / "asked.har")),
        *("--output-sanitize", "false"),
    ]
    with trio.fail_after(PATIENCE_S):
        return await trio.run_process(
            command, cwd=folder, capture_stdout=True, capture_stderr=True, check=False
        )


async def test_nothing_that_is_asked_brings_an_answer_that_is_not_described(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with openai_server(in_kind) as upstream:
        settings = Settings.from_toml(
            CONFIG.format(upstream.base_url),
            bind=["127.0.0.1:0"],
            around=Surroundings(environ={"A": "key-of-a"}, folder=tmp_path),
        )
        async with gateway(settings) as edge:
            described = await document(edge)
            ran = await judge(edge.url, tmp_path)
            events = [type(event) for event in edge.events]

    assert ran.returncode == 0, ran.stdout.decode()
    entries = json.loads((tmp_path / "asked.har").read_bytes())["log"]["entries"]
    assert_typed(entries, described)
    assert_broad(entries, described)
    assert events.count(RunStarted) == events.count(RunEnded) > 0
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


def assert_typed(entries: list[dict[str, Any]], described: Described) -> None:
    """Every error is one of the gateway's own, in its own shape."""
    errors = [each["response"] for each in entries if each["response"]["status"] >= 400]
    shape = described.named("Error")
    for error in errors:
        if error["content"]["text"]:  # an answer to HEAD has none
            shape.validate(json.loads(error["content"]["text"]))
    assert errors


def assert_broad(entries: list[dict[str, Any]], described: Described) -> None:
    """Every operation has been tried, and had answers that are no errors."""
    answered: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        path = entry["request"]["url"].partition("://")[2].partition("?")[0]
        path = "/" + path.partition("/")[2]
        for method, template in described.operations:
            if method == entry["request"]["method"] and described_path(template).fullmatch(path):
                answered[method, template] += entry["response"]["status"] < 400
    tried = {key for key, count in answered.items() if count}
    assert tried >= described.operations.keys() - {("GET", "/openapi.json")}  # it has read that
