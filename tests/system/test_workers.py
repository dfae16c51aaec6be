"""Several workers behind one supervisor, as real processes with real signals."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from tests.fakes.edge_process import PATIENCE_S, EdgeProcess, edge_process, gone, refused
from tests.fakes.gateway import chat, send
from tests.fakes.raw_client import RawClient, connect

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

WORKERS = ("--workers", "2")


@asynccontextmanager
async def begun_stream(edge: EdgeProcess, *, words: int = 2) -> AsyncGenerator[RawClient]:
    """A stream that has begun, and goes on for a second a word."""
    async with connect(edge.url) as client:
        await send(client, chat("word " * words, model="sim-slow", stream=True))
        assert (await client.head()).status == 200
        yield client


async def breaks(client: RawClient) -> bool:
    """Whether the connection breaks in the middle of its answer."""
    try:
        await client.rest_of_chunks()
    except (AssertionError, trio.BrokenResourceError):
        return True
    return False


def owner(client: RawClient, workers: list[int]) -> int:
    """The worker that holds the other end of a connection."""
    ours = in_hexadecimal(client.stream.socket.getsockname())
    theirs = in_hexadecimal(client.stream.socket.getpeername())
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == [theirs, ours]:
            return next(pid for pid in workers if f"socket:[{fields[9]}]" in descriptors(pid))
    raise LookupError(ours)


def in_hexadecimal(address: tuple[str, int]) -> str:
    """As /proc/net/tcp writes an address."""
    host, port = address
    return f"{bytes(map(int, host.split('.')))[::-1].hex().upper()}:{port:04X}"


def descriptors(pid: int) -> set[str]:
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(each))
    return found


async def test_all_of_them_serve_at_one_address_and_one_line_says_so() -> None:
    async with edge_process(*WORKERS) as edge, AsyncExitStack() as stack:
        workers = edge.workers()
        serving: set[int] = set()
        with trio.fail_after(PATIENCE_S):
            while len(serving) < 2:
                client = await stack.enter_async_context(connect(edge.url))
                assert (await client.get("/readyz")).status == 200
                serving.add(owner(client, workers))

        assert serving == set(workers)
        assert [line for line in edge.lines if "serving" in line] == [
            f"edge: serving sim-echo, sim-tools, sim-slow on {edge.url} with 2 workers"
        ]


async def test_one_that_crashes_is_replaced_and_the_streams_of_the_others_go_on() -> None:
    async with edge_process(*WORKERS) as edge, begun_stream(edge) as client:
        workers = edge.workers()
        kept = owner(client, workers)
        (killed,) = set(workers) - {kept}

        os.kill(killed, signal.SIGKILL)

        await edge.line(rf"worker \d \(pid {killed}\) was killed by SIGKILL; .* in 0.25 s")
        assert b"data: [DONE]" in await client.rest_of_chunks()
        await edge.line("serves in its place")
        assert kept in edge.workers()
        assert len(set(edge.workers()) - {killed}) == 2


async def test_the_clients_of_one_that_crashes_see_their_connections_break() -> None:
    async with edge_process(*WORKERS) as edge, begun_stream(edge, words=300) as client:
        os.kill(owner(client, edge.workers()), signal.SIGKILL)

        assert await breaks(client)


async def test_the_pause_before_a_replacement_grows_with_each_crash_in_a_row() -> None:
    async with edge_process(*WORKERS) as edge:
        first = edge.workers()[0]
        os.kill(first, signal.SIGKILL)
        second = int((await edge.line(r"\(pid (\d+)\) serves in its place"))[1])
        os.kill(second, signal.SIGKILL)

        await edge.line(rf"\(pid {second}\) was killed by SIGKILL; .* in 0.5 s")


async def test_one_that_hangs_is_killed_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "edge.toml"
    path.write_text(
        "[server]\nhang_s = 2\n"
        '[[providers]]\nname = "simulated"\nkind = "simulated"\n'
        '[[routes]]\nmodel = "*"\ntargets = [{ provider = "simulated" }]\n'
    )
    async with edge_process("--config", str(path), *WORKERS) as edge:
        hung = edge.workers()[0]
        os.kill(hung, signal.SIGSTOP)

        await edge.line(rf"worker \d \(pid {hung}\) has shown no sign of life for 2 s")
        await edge.line(rf"\(pid {hung}\) was killed by SIGKILL; another one starts")
        await edge.line("serves in its place")


async def test_one_that_ends_before_it_ever_listened_ends_them_all() -> None:
    async with edge_process(*WORKERS, wait=False) as edge:
        with trio.fail_after(PATIENCE_S):
            while not edge.workers():  # noqa: ASYNC110 - nothing tells of it
                await trio.sleep(0.001)
        os.kill(edge.workers()[0], signal.SIGKILL)

        await edge.line("was killed by SIGKILL before it listened")
        assert await edge.ended() == 1
        assert edge.url == ""


async def test_sigterm_lets_open_streams_end_and_then_all_are_gone() -> None:
    async with edge_process(*WORKERS) as edge, begun_stream(edge) as client:
        workers = edge.workers()
        edge.send(signal.SIGTERM)

        await refused(edge.url)
        assert b"data: [DONE]" in await client.rest_of_chunks()
        assert await edge.ended() == 0
        for pid in workers:
            await gone(pid)


async def test_a_second_signal_ends_all_of_them_at_once() -> None:
    async with edge_process(*WORKERS) as edge, begun_stream(edge, words=300) as client:
        workers = edge.workers()
        edge.send(signal.SIGTERM)
        await refused(edge.url)
        edge.send(signal.SIGTERM)

        assert await edge.ended() == 143
        for pid in workers:
            await gone(pid)
        assert await breaks(client)


async def test_ctrl_c_reaches_the_workers_through_the_supervisor_alone() -> None:
    async with edge_process(*WORKERS) as edge:
        groups = {os.getpgid(pid) for pid in [edge.process.pid, *edge.workers()]}
        edge.send(signal.SIGINT)

        assert await edge.ended() == 0
        assert len(groups) == 3


async def test_no_worker_outlives_a_supervisor_that_was_killed() -> None:
    async with edge_process(*WORKERS) as edge:
        workers = edge.workers()
        edge.send(signal.SIGKILL)

        assert await edge.ended() == -signal.SIGKILL
        for pid in workers:
            await gone(pid)


@pytest.mark.parametrize("count", ["1", "2"])
async def test_an_address_that_others_serve_is_refused_and_not_shared(count: str) -> None:
    async with edge_process(*WORKERS) as edge:
        taken = edge.url.removeprefix("http://")
        second = edge_process("--bind", taken, "--workers", count, wait=False)
        async with second as other:
            assert await other.ended() == 1

        assert other.lines == [f"edge: cannot listen on {taken}: Address already in use"]
