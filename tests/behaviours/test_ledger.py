"""The ledger's file under a whole gateway: every attempt of every run is in it, and none waits."""

import json
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import trio
from click.testing import CliRunner

from edge.cli import cli
from edge.telemetry.ledger_file import read_ledger
from tests.fakes.edge_process import edge_process
from tests.fakes.gateway import ask_once, chat, gateway, send, tool, until, upstream_config
from tests.fakes.openai_scripts import by_model, calls, refuses, silent, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect
from tests.fakes.raw_server import Peer, raw_server

SIMULATED = """
[[providers]]
name = "simulated"
kind = "simulated"
[[routes]]
model = "*"
targets = [{ provider = "simulated" }]
"""


def with_ledger(path: Path, config: str = SIMULATED) -> str:
    return f'{config}\n[telemetry]\nledger = "{path}"\n'


def rows(path: Path) -> list[tuple[object, ...]]:
    with closing(read_ledger(path)) as connection:
        return connection.execute(
            "SELECT run_id, attempt, status, usage, output_tokens FROM attempts ORDER BY rowid"
        ).fetchall()


async def test_every_attempt_is_in_the_file_when_the_gateway_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with gateway(with_ledger(path)) as edge:
        await ask_once(edge.url, chat("one two", model="sim-echo"))
        await ask_once(edge.url, chat("one two", model="nothing-like-it"))
        expected = [
            (row.run_id, row.attempt, row.status, "reported" if row.usage.reported else "estimated")
            for row in edge.rows()
        ]

    assert len(expected) >= 2
    assert [row[:4] for row in rows(path)] == expected


STEADY = """
[[providers]]
name = "gpu1"
base_url = "{url}"
[[providers]]
name = "gpu2"
base_url = "{url}"
on_give_up = "drain"
[[routes]]
model = "*"
targets = [{{ provider = "gpu1" }}]
[[routes]]
model = "drains"
targets = [{{ provider = "gpu2" }}]
[output]
max_attempts = 1
"""


async def test_every_way_in_which_an_attempt_can_end_is_a_row_of_its_own(tmp_path: Path) -> None:
    path, rest = tmp_path / "ledger.db", trio.Event()
    answers_of = {
        "sound": streams("hello"),
        "wrong": calls("weather", {"town": "Bern"}),
        "broken": refuses(500),
        "late": silent,
        "left": silent,
        "drains": streams("one ", rest, "two"),
    }
    weather = tool("weather", "city", city={"type": "string"})
    async with (
        openai_server(by_model(answers_of)) as upstream,
        gateway(with_ledger(path, STEADY.format(url=upstream.base_url))) as edge,
    ):
        for model in ("sound", "wrong", "broken"):
            await ask_once(edge.url, chat(model=model, tools=[weather]))
        await ask_once(edge.url, chat(model="late"), ("x-edge-output", "run_timeout_s=0.2"))
        for model, phase in (("left", "connecting"), ("drains", "streaming")):
            async with connect(edge.url) as client:
                await send(client, chat(model=model, stream=True))
                await edge.phase_reached(phase)
            if model == "drains":
                await edge.phase_reached("draining")
                rest.set()
            await edge.settled()
        edge.gateway.common.admission.drain()
        await ask_once(edge.url, chat(model="sound"))

    assert [row[2] for row in rows(path)] == [
        *("success", "validation_failed", "upstream_error", "timeout"),
        *("cancelled", "drained", "rejected"),
    ]


async def test_a_run_ends_whether_or_not_the_ledger_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    async with gateway(with_ledger(path)) as edge:
        await ask_once(edge.url, chat("one", model="sim-echo"))
        assert edge.gateway.writer is not None
        statistics = edge.gateway.writer.statistics
        await until(lambda: statistics().written == 1)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answer = await ask_once(edge.url, chat("two", model="sim-echo"))
            assert answer.status == 200
            assert statistics().waiting == 1

    assert [row[2] for row in rows(path)] == ["success", "success"]
    assert statistics().dropped == 0


async def test_a_ledger_that_cannot_be_opened_at_all_is_counted_and_serves_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    path.write_text("no database " * 100)
    async with gateway(with_ledger(path)) as edge:
        answer = await ask_once(edge.url, chat("one", model="sim-echo"))
        assert edge.gateway.writer is not None
        statistics = edge.gateway.writer.statistics
        await until(lambda: statistics().failures > 0)

    assert answer.status == 200
    assert statistics().dropped == 1


async def one_word_with_usage_then_silence(peer: Peer) -> None:
    usage = {"prompt_tokens": 12, "completion_tokens": 5}
    delta = {"choices": [{"index": 0, "delta": {"content": "word "}}], "usage": usage}
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(b"data: " + orjson.dumps(delta) + b"\n\n")
    await peer.wait_closed()


async def test_running_usage_is_asked_for_and_counts_what_a_client_left() -> None:
    async with raw_server(one_word_with_usage_then_silence) as server:
        config = upstream_config(server.url, provider="continuous_usage = true")
        async with gateway(config) as edge:
            async with connect(edge.url) as client:
                await send(client, chat(tools=[], stream=True), ("x-edge-output", "buffer=full"))
                await edge.phase_reached("streaming")
            (row,) = await edge.settled()
        asked = await server.happened("body")

    assert orjson.loads(asked.detail)["stream_options"] == {
        "include_usage": True,
        "continuous_usage_stats": True,
    }
    assert row.status == "cancelled"
    assert (row.usage.input_tokens, row.usage.output_tokens, row.usage.reported) == (12, 5, True)


async def one_word_then_silence(peer: Peer) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "twelve chars"}}]}
    await peer.read_request()
    await peer.start_sse()
    await peer.send_chunk(b"data: " + orjson.dumps(delta) + b"\n\n")
    await peer.wait_closed()


async def test_without_a_count_what_came_is_estimated() -> None:
    async with raw_server(one_word_then_silence) as server:
        async with gateway(upstream_config(server.url)) as edge:
            async with connect(edge.url) as client:
                await send(client, chat(stream=True), ("x-edge-output", "buffer=full"))
                await edge.phase_reached("streaming")
            (row,) = await edge.settled()
        asked = await server.happened("body")

    assert "continuous_usage_stats" not in orjson.loads(asked.detail)["stream_options"]
    assert (row.usage.output_tokens, row.usage.reported) == (3, False)


async def test_a_killed_gateway_leaves_a_sound_ledger_with_all_but_the_last_batch(
    tmp_path: Path,
) -> None:
    path, config = tmp_path / "ledger.db", tmp_path / "edge.toml"
    config.write_text(with_ledger(path))
    async with edge_process("--config", str(config)) as edge:
        await ask_once(edge.url, chat("one", model="sim-echo"))
        await until_rows(path, 1)
        async with connect(edge.url) as client:
            await send(client, chat("a b c", model="sim-slow", stream=True))
            await client.head()
            edge.send(signal.SIGKILL)
        await edge.ended()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert [row[2] for row in rows(path)] == ["success"]


async def until_rows(path: Path, number: int) -> None:
    def count() -> int:
        try:
            return len(rows(path))
        except sqlite3.Error:
            return 0  # not made yet

    await until(lambda: count() >= number)


async def test_the_command_sums_up_what_the_gateway_wrote(tmp_path: Path) -> None:
    path, config = tmp_path / "ledger.db", tmp_path / "edge.toml"
    config.write_text(with_ledger(path))
    async with gateway(with_ledger(path)) as edge:
        for _ in range(3):
            await ask_once(edge.url, chat("one two", model="sim-echo"))

    by_file = CliRunner().invoke(cli, ["ledger", str(path), "--format", "json"])
    by_config = CliRunner().invoke(cli, ["ledger", "--config", str(config), "--format", "json"])
    (found,) = json.loads(by_file.output)

    assert by_config.output == by_file.output
    assert (found["model"], found["runs"], found["success"]) == ("sim-echo", 3, 3)


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["ledger", *arguments])
    return result.exit_code, result.output


def test_the_command_says_what_it_cannot_do(tmp_path: Path) -> None:
    config = tmp_path / "edge.toml"
    config.write_text(SIMULATED)
    other = tmp_path / "other.db"
    other.write_text("text")

    assert "no such file" in invoke(str(tmp_path / "none.db"))[1]
    assert invoke(str(tmp_path / "none.db"))[0] == 1
    assert not (tmp_path / "none.db").exists()
    assert invoke(str(other)) == (1, f"{other}: file is not a database\n")
    assert "configures no ledger" in invoke("--config", str(config))[1]
    assert invoke()[0] == 2
    assert "--since" in invoke(str(other), "--since", "yesterday")[1]
