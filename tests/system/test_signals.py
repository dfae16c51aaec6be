"""What a process that serves alone does about SIGTERM and SIGINT, and what systemd is told."""

import signal
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import trio

from tests.fakes.edge_process import PATIENCE_S, edge_process, refused
from tests.fakes.gateway import chat, send
from tests.fakes.raw_client import RawClient, connect

SLOW = "word " * 300
"""``sim-slow`` takes a second for each: an answer that nobody waits for here."""


@asynccontextmanager
async def begun_stream(url: str, content: str) -> AsyncGenerator[RawClient]:
    async with connect(url) as client:
        await send(client, chat(content, model="sim-slow", stream=True))
        assert (await client.head()).status == 200
        yield client


def simulated(folder: Path, server: str) -> tuple[str, str]:
    """Arguments for a configuration of the simulated models."""
    path = folder / "edge.toml"
    path.write_text(
        f"""
        [server]
        {server}
        [[providers]]
        name = "simulated"
        kind = "simulated"
        [[routes]]
        model = "*"
        targets = [{{ provider = "simulated" }}]
        """
    )
    return "--config", str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_closes_the_door_and_lets_open_streams_end(number: signal.Signals) -> None:
    async with edge_process() as edge, begun_stream(edge.url, "one two") as client:
        edge.send(number)

        await refused(edge.url)
        assert b"data: [DONE]" in await client.rest_of_chunks()
        assert await edge.ended() == 0


async def test_what_is_open_when_the_time_is_over_gets_an_error_event_and_a_sound_end(
    tmp_path: Path,
) -> None:
    config = simulated(tmp_path, "drain_s = 1")
    async with edge_process(*config) as edge, begun_stream(edge.url, SLOW) as client:
        edge.send(signal.SIGTERM)

        *_, error, done = (await client.rest_of_chunks()).decode().strip().split("\n\n")
        assert done == "data: [DONE]"
        told = orjson.loads(error.removeprefix("data: "))["error"]
        assert told["type"] == "run_cancelled"
        assert "went down" in told["message"]
        assert await edge.ended() == 0
        await edge.line('"status":"cancelled".*"run ended"')


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_a_second_signal_ends_at_once_and_the_status_says_so(
    number: signal.Signals, status: int
) -> None:
    async with edge_process() as edge, begun_stream(edge.url, SLOW) as client:
        edge.send(signal.SIGTERM)
        await refused(edge.url)
        edge.send(number)

        assert await edge.ended() == status
        with pytest.raises((AssertionError, trio.BrokenResourceError)):
            await client.rest_of_chunks()


async def test_readiness_goes_first_and_nothing_else_while_a_notice_lasts(tmp_path: Path) -> None:
    async with edge_process(*simulated(tmp_path, "drain_notice_s = 600")) as edge:
        async with connect(edge.url) as client:
            assert (await client.get("/readyz")).status == 200
            edge.send(signal.SIGTERM)
            with trio.fail_after(PATIENCE_S):
                while (await client.get("/readyz")).status != 503:
                    await trio.lowlevel.checkpoint()

        async with connect(edge.url) as late:
            assert (await late.get("/healthz")).status == 200
            await send(late, chat("hello", model="sim-echo"))
            assert (await late.response()).status == 200
        edge.send(signal.SIGTERM)
        assert await edge.ended() == 143


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_systemd_hears_of_the_start_of_reloads_and_of_the_end(
    tmp_path: Path, workers: str
) -> None:
    path = tmp_path / "notify"
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        await manager.bind(str(path))

        async def heard() -> list[str]:
            with trio.fail_after(PATIENCE_S):
                return (await manager.recv(4096)).decode().split("\n")

        arguments = ("--workers", workers)
        environ = {"NOTIFY_SOCKET": str(path)}
        async with edge_process(*arguments, environ=environ) as edge:
            assert await heard() == ["READY=1"]

            edge.send(signal.SIGHUP)
            name, usec = await heard()
            assert name == "RELOADING=1"
            assert usec.removeprefix("MONOTONIC_USEC=").isdigit()
            assert await heard() == ["READY=1"]

            edge.send(signal.SIGTERM)
            assert await heard() == ["STOPPING=1"]
            assert await edge.ended() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_systemd_is_shown_signs_of_life_where_it_asks_for_them(
    tmp_path: Path, workers: str
) -> None:
    path = tmp_path / "notify"
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        await manager.bind(str(path))
        environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "20000"}
        # Nobody waits here while the messages come: a full socket would lose some.
        async with edge_process("--workers", workers, environ=environ, wait=False) as edge:
            heard: list[bytes] = []
            with trio.fail_after(PATIENCE_S):
                while heard.count(b"WATCHDOG=1") < 5 or b"READY=1" not in heard:
                    heard.append(await manager.recv(4096))

            assert set(heard) == {b"WATCHDOG=1", b"READY=1"}
            edge.send(signal.SIGTERM)
            assert await edge.ended() == 0
