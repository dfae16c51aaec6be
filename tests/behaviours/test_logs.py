"""What a gateway in a process of its own writes to stderr."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.edge_process import EdgeProcess, edge_process
from tests.fakes.gateway import ask_once, chat, tool

CONFIG = """
[[keys]]
name = "team"
key = "env:EDGE_TEST_KEY"
[[providers]]
name = "simulated"
kind = "simulated"
[[routes]]
model = "*"
targets = [{ provider = "simulated" }]
"""
KEY = "a-key-that-nobody-may-see"
AUTHORIZED = ("authorization", f"Bearer {KEY}")


def told(edge: EdgeProcess) -> list[dict[str, Any]]:
    """The lines of the log; those for people, at the start, are no part of it."""
    return [json.loads(line) for line in edge.lines if not line.startswith("edge: ")]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGE_TEST_KEY", KEY)
    path = tmp_path / "edge.toml"
    path.write_text(CONFIG)
    return path


async def test_a_retried_run_is_two_lines_with_ids_and_nothing_of_what_was_said(
    config: Path,
) -> None:
    weather = tool("weather", "city", city={"type": "string", "const": "Atlantis"})
    async with edge_process("--config", str(config)) as edge:
        request = chat("where is Atlantis", model="sim-tools", tools=[weather], stream=True)
        answer = await ask_once(edge.url, request, AUTHORIZED, ("x-request-id", "mine"))
        await edge.line("run ended")
    run_id = answer.headers["x-edge-run-id"]

    failed, ended = told(edge)
    assert (failed["event"], failed["run_id"], failed["attempt"]) == ("attempt failed", run_id, 1)
    assert failed["status"] == "validation_failed"
    assert failed["param"].startswith("tool_calls[0]")
    assert (ended["event"], ended["run_id"], ended["attempts"]) == ("run ended", run_id, 2)
    assert (ended["request_id"], ended["key"], ended["calls"]) == ("mine", "team", ["weather"])
    assert "Atlantis" not in "".join(edge.lines)
    assert KEY not in "".join(edge.lines)


@pytest.fixture
def silent_config(config: Path) -> Path:
    config.write_text(f'{CONFIG}\n[telemetry]\nlog = "off"\n')
    return config


async def test_logs_can_be_off(silent_config: Path) -> None:
    async with edge_process("--config", str(silent_config)) as edge:
        await ask_once(edge.url, chat("hello", model="sim-echo"), AUTHORIZED)

    assert told(edge) == []
