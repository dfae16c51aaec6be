"""SIGHUP: a new configuration, taken whole or refused whole, and no run is dropped for it."""

import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
import trio

from tests.fakes.edge_process import EdgeProcess, edge_process
from tests.fakes.gateway import ask, ask_once, chat, message, send
from tests.fakes.raw_client import RawClient, RawResponse, connect
from tests.fakes.raw_server import Peer, RawServer, raw_server

CONFIGURED = "the configuration was read again"
REFUSED = "the new configuration is refused"


def word(text: str) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


class ModelServer:
    """Answers with its name, in two halves, the second when ``go_on`` is set."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.go_on = trio.Event()
        self.go_on.set()
        self.authorizations: list[str] = []

    async def __call__(self, peer: Peer) -> None:
        while True:
            request = await peer.read_request()
            self.authorizations.append(request.headers.get("authorization", ""))
            await peer.start_sse()
            await peer.send_chunk(word(f"{self.name} "))
            await self.go_on.wait()
            await peer.send_chunk(word("end") + END)
            await peer.end_chunks()

    def halt(self) -> None:
        self.go_on = trio.Event()


class Configured:
    """A configuration file, and the gateway that reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.edge: EdgeProcess
        self._reloads = 0

    def write(self, *providers: RawServer, keys: str = "", more: str = "") -> None:
        text = keys
        for number, server in enumerate(providers, 1):
            text += f"""
            [[providers]]
            name = "gpu{number}"
            base_url = "{server.url}/v1"
            api_key = "file:provider.key"
            max_concurrent = 1
            [[routes]]
            model = "model{number}"
            targets = [{{ provider = "gpu{number}" }}]
            """
        self.path.write_text(text + more)

    async def reload(self, outcome: str = CONFIGURED) -> str:
        """Have it read again; the line of the log that tells what came of it."""
        self._reloads += 1
        before = sum(outcome in line for line in self.edge.lines)
        self.edge.send(signal.SIGHUP)
        return (await self.edge.line(f".*{outcome}.*", before + 1))[0]


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    (tmp_path / "provider.key").write_text("first-key")
    return Configured(tmp_path / "edge.toml")


@asynccontextmanager
async def serving(configured: Configured, *arguments: str) -> AsyncGenerator[EdgeProcess]:
    async with edge_process("--config", str(configured.path), *arguments) as edge:
        configured.edge = edge
        yield edge


def asked(model: str) -> dict[str, object]:
    return chat(model=model, stream=True)


async def open_stream(client: RawClient, model: str) -> None:
    await send(client, asked(model))
    assert (await client.head()).status == 200


async def test_new_routes_are_served_and_removed_ones_are_not(configured: Configured) -> None:
    one, two = ModelServer("one"), ModelServer("two")
    async with raw_server(one) as first, raw_server(two) as second:
        configured.write(first)
        async with serving(configured) as edge, connect(edge.url) as client:
            assert (await ask(client, asked("model2"))).status == 404

            configured.write(first, second)
            await configured.reload()

            # The same connection: only what answers it was replaced.
            assert message(await ask(client, asked("model2")))["content"] == "two end"
            configured.path.write_text(configured.path.read_text().replace("model1", "other"))
            await configured.reload()
            assert (await ask(client, asked("model1"))).status == 404
            assert message(await ask(client, asked("other")))["content"] == "one end"


async def test_a_run_goes_on_with_what_it_began_with_though_all_of_it_was_removed(
    configured: Configured,
) -> None:
    one, two = ModelServer("one"), ModelServer("two")
    async with raw_server(one) as first, raw_server(two) as second:
        configured.write(first)
        one.halt()
        async with (
            serving(configured) as edge,
            connect(edge.url) as streaming,
            connect(edge.url) as queued,
        ):
            await open_stream(streaming, "model1")
            await send(queued, asked("model1"))  # the provider's only slot is taken: it waits
            await edge_has_runs(edge, 2)
            configured.write(second)
            await configured.reload()
            assert message(await ask_once(edge.url, asked("model1")))["content"] == "two end"
            one.go_on.set()

            assert b"[DONE]" in await streaming.rest_of_chunks()
            assert message(await queued.response())["content"] == "one end"


async def test_a_provider_that_did_not_change_keeps_its_slots_and_its_connections(
    configured: Configured,
) -> None:
    one, two = ModelServer("one"), ModelServer("two")
    async with raw_server(one) as first, raw_server(two) as second:
        configured.write(first)
        one.halt()
        async with (
            serving(configured) as edge,
            connect(edge.url) as streaming,
            connect(edge.url) as queued,
        ):
            await open_stream(streaming, "model1")
            configured.write(first, second)
            await configured.reload()
            await send(queued, asked("model1"))
            await edge_has_runs(edge, 2)
            assert len(one.authorizations) == 1  # its only slot is still taken
            one.go_on.set()

            assert b"[DONE]" in await streaming.rest_of_chunks()
            assert message(await queued.response())["content"] == "one end"
            assert first.count("accepted") == 1


async def edge_has_runs(edge: EdgeProcess, count: int) -> None:
    """Wait until so many runs are live."""
    async with connect(edge.url) as client:
        with trio.fail_after(60):
            while True:
                answer = orjson.loads((await client.get("/v1/runs")).body)
                if sum(run["status"] == "running" for run in answer["data"]) == count:
                    return


async def ask_with(client: RawClient, key: str) -> RawResponse:
    return await ask(client, asked("model1"), ("authorization", f"Bearer {key}"))


async def test_secrets_in_files_are_read_again(configured: Configured) -> None:
    keys = '[[keys]]\nname = "a"\nkey = "file:client.key"\n'
    client_key = configured.path.parent / "client.key"
    client_key.write_text("old-client-key")
    one = ModelServer("one")
    async with raw_server(one) as first:
        configured.write(first, keys=keys)
        async with serving(configured) as edge, connect(edge.url) as client:
            assert (await ask_with(client, "old-client-key")).status == 200
            client_key.write_text("new-client-key")
            (configured.path.parent / "provider.key").write_text("second-key")
            await configured.reload()

            assert (await ask_with(client, "old-client-key")).status == 401
            assert (await ask_with(client, "new-client-key")).status == 200
            assert one.authorizations == ["Bearer first-key", "Bearer second-key"]
            assert not any("-key" in line for line in edge.lines)


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_bad_configuration_is_refused_with_every_complaint_and_the_old_one_stays(
    configured: Configured, workers: str
) -> None:
    async with raw_server(ModelServer("one")) as first:
        configured.write(first)
        async with serving(configured, "--workers", workers) as edge:
            configured.write(first, more='[server]\ndrian_s = 1\n[limits]\nmax_runs = "5"\n')
            line = await configured.reload(REFUSED)

            assert f"{configured.path}:" in line
            assert "server.drian_s: unknown key" in line
            assert "limits.max_runs" in line
            assert message(await ask_once(edge.url, asked("model1")))["content"] == "one end"
            configured.write(first)
            await configured.reload()


async def test_a_file_that_is_gone_changes_nothing(configured: Configured) -> None:
    async with raw_server(ModelServer("one")) as first:
        configured.write(first)
        async with serving(configured) as edge:
            configured.path.unlink()
            assert "No such file" in await configured.reload(REFUSED)

            assert message(await ask_once(edge.url, asked("model1")))["content"] == "one end"


async def test_what_needs_a_restart_is_named_and_the_rest_is_taken(configured: Configured) -> None:
    one, two = ModelServer("one"), ModelServer("two")
    async with raw_server(one) as first, raw_server(two) as second:
        configured.write(first)
        async with serving(configured) as edge:
            more = "[server]\ndrain_s = 3\n[limits]\nmax_runs = 7\n"
            configured.write(first, second, more=more)
            await configured.reload()

            await edge.line(r"only a restart will use it: server\.drain_s, limits\.max_runs")
            assert message(await ask_once(edge.url, asked("model2")))["content"] == "two end"


async def test_every_worker_takes_the_new_configuration_and_so_does_one_that_starts_later(
    configured: Configured,
) -> None:
    one, two = ModelServer("one"), ModelServer("two")
    async with raw_server(one) as first, raw_server(two) as second:
        configured.write(first)
        async with serving(configured, "--workers", "2") as edge:
            configured.write(first, second)
            await configured.reload()
            for _ in range(8):  # new connections are shared out among the workers
                assert (await ask_once(edge.url, asked("model2"))).status == 200

            # What was read last is what a new worker starts with, whatever the file says now.
            configured.path.write_text("no TOML at all")
            for pid in edge.workers():
                await trio.run_process(["kill", "-KILL", str(pid)])
            await edge.line("serves in its place", 2)
            assert (await ask_once(edge.url, asked("model2"))).status == 200
