"""``edge tail`` as a process of its own, against a real gateway."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from edge.cli import cli
from edge.settings import Settings
from tests.fakes.gateway import (
    RunningGateway,
    ask_once,
    chat,
    gateway,
    tool,
    upstream_config,
)
from tests.fakes.openai_scripts import by_attempt, streams
from tests.fakes.openai_server import openai_server

PATIENCE_S = 60.0
LOOK = tool("look", "sku", sku={"type": "string"})
KEYED = """
[[keys]]
name = "a"
key = "env:EDGE_TEST_TAIL_KEY"
[[providers]]
name = "simulated"
kind = "simulated"
[[routes]]
model = "sim-echo"
targets = [{ provider = "simulated" }]
"""


async def tail(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "edge", "tail", *arguments]
    with trio.fail_after(PATIENCE_S):
        return await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, **(environ or {})},
        )


async def a_run(edge: RunningGateway, model: str = "sim-tools", **fields: Any) -> str:
    """The id of a traced run that has ended."""
    traced = {"edge.trace": "true"}
    request = {**chat("hello there"), "model": model, "metadata": traced, "stream": True, **fields}
    answer = await ask_once(edge.url, request)
    return answer.headers["x-edge-run-id"]


async def test_a_run_is_read_with_its_attempts_and_what_was_held() -> None:
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        run_id = await a_run(edge, tools=[LOOK])
        done = await tail(run_id, "--url", edge.url)

    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0].startswith(f"{run_id}  sim-tools, streamed")
    assert lines[3].startswith("✗ attempt 1 incomplete")
    assert '→ look({"sku":"example"})' in lines
    assert lines[-1].startswith("✓ success: 2 attempts")


async def test_a_recorded_run_is_read_and_judged_again_just_as_it_was(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    text = '<tool_call>{"name": "look", "arguments": {"sku": %s}}</tool_call>'
    script = by_attempt(streams("Well. ", text % "7"), streams(text % '"a-7",'))
    async with openai_server(script) as upstream:
        config = upstream_config(upstream.base_url, output="trace = true")
        async with gateway(config) as edge:
            run_id = await a_run(edge, "coder", tools=[LOOK])
            done = await tail(run_id, "--url", edge.url, "--record", str(record))
    again = CliRunner().invoke(cli, ["replay", str(record), "--json"])

    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in again.stdout.splitlines()]
    assert again.exit_code == 0, again.stderr
    (then,) = [each for each in told if each["kind"] == "then"]
    (refused,) = [each for each in told if each["kind"] == "invalid"]
    assert (refused["category"], refused["param"]) == ("schema", "tool_calls[0].arguments.sku")
    assert then["category"] == "schema"
    assert refused["message"].endswith(then["reason"])
    assert [each["form"] for each in told if each["kind"] == "call"] == ["hermes", "hermes"]
    assert [each["decision"] for each in told if each["kind"] == "retry"] == ["again", "accept"]
    assert "missing" not in {each["kind"] for each in told}


async def test_frames_are_printed_for_pipes_and_recorded(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        run_id = await a_run(edge, "sim-echo")
        done = await tail(run_id, "--json", "--url", edge.url, "--record", str(record))

    frames = [json.loads(line) for line in done.stdout.splitlines()]
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert (frames[0]["type"], frames[-1]["type"]) == ("run.started", "run.finished")
    assert record.read_bytes() == done.stdout
    assert stat.S_IMODE(record.stat().st_mode) == 0o600


async def test_all_runs_are_followed_as_they_happen(tmp_path: Path) -> None:
    record = tmp_path / "runs.jsonl"
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        command = [sys.executable, "-m", "edge", "tail", "--url", edge.url, "--json"]
        start = partial(
            trio.run_process,
            [*command, "--record", str(record)],
            stdout=subprocess.PIPE,
            check=False,
        )
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(start)
            with trio.fail_after(PATIENCE_S):
                while not edge.gateway.common.hub.statistics().subscribers:  # noqa: ASYNC110
                    await trio.sleep(0.01)  # the other process joins
            run_id = await a_run(edge, "sim-echo")
            seen = b""
            assert process.stdout is not None
            with trio.fail_after(PATIENCE_S):
                while b"run.finished" not in seen:
                    seen += await process.stdout.receive_some()
            process.terminate()

    types = [json.loads(line)["type"] for line in seen.splitlines()]
    assert types[:3] == ["run.started", "request", "attempt.started"]
    assert run_id.encode() in seen


async def test_a_run_that_does_not_exist_is_told_with_status_1() -> None:
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        done = await tail("run_none", "--url", edge.url)

    assert done.returncode == 1
    assert done.stderr.decode().startswith("edge: there is no such run")
    assert b"Traceback" not in done.stderr


async def test_the_key_is_taken_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"EDGE_TEST_TAIL_KEY": "sesame-sesame"}
    monkeypatch.setenv(*next(iter(key.items())))
    async with gateway(KEYED) as edge:
        without = await tail("run_none", "--url", edge.url)
        arguments = ("run_none", "--url", edge.url, "--key-env", "EDGE_TEST_TAIL_KEY")
        with_key = await tail(*arguments, environ=key)

    assert b"401" in without.stderr
    assert b"no such run" in with_key.stderr


async def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    async with gateway(Settings.simulated(bind=["127.0.0.1:0"])) as edge:
        run_id = await a_run(edge, "sim-echo")
        script = f"{sys.executable} -m edge tail {run_id} --json --url {edge.url} | head -1"
        with trio.fail_after(PATIENCE_S):
            done = await trio.run_process(
                ["bash", "-c", f"set -o pipefail; {script}"],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
            )

    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--key-env", "NOT_SET_AT_ALL"), b"NOT_SET_AT_ALL is not set"),
        (("--url", "nowhere"), b"is no address"),
    ],
)
async def test_a_mistake_is_told_in_words(arguments: tuple[str, ...], complaint: bytes) -> None:
    done = await tail(*arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
