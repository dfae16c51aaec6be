"""Many chat runs over one WebSocket, on a real socket."""

import socket
from collections import defaultdict
from pathlib import Path
from typing import Any

import orjson
import pytest
import trio

from edge.runs import run
from edge.server import socket_runs
from edge.settings import Settings, Surroundings
from tests.fakes.gateway import CHAT, ask_once, chat, gateway, message, tool, until, upstream_config
from tests.fakes.mirror_client import Frame, SocketClient, open_socket
from tests.fakes.openai_scripts import by_attempt, calls, refuses, silent, streams
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect
from tests.fakes.strict_client import fold

HANDSHAKE = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
]
WEATHER = tool("weather", "city", city={"type": "string"})


async def ask(
    client: SocketClient, run_id: str | int | None, content: str = "go", **more: Any
) -> None:
    await client.send({"id": run_id, "request": chat(content, **more)})


async def last_words(client: SocketClient, runs: int = 1) -> dict[Any, list[Frame]]:
    """The frames of each run, once so many have had their last word."""
    frames: dict[Any, list[Frame]] = defaultdict(list)
    while runs:
        frame = await client.frame()
        frames[frame["id"]].append(frame)
        runs -= "done" in frame or "error" in frame
    return frames


def folded(frames: list[Frame]) -> dict[str, Any]:
    """The chunks of a run as the message they make, judged as SSE is."""
    events = [b"data: " + orjson.dumps(each["chunk"]) for each in frames if "chunk" in each]
    found: dict[str, Any] = fold(b"\n\n".join([*events, b"data: [DONE]", b""]))
    return found["choices"][0]["message"]  # type: ignore[no-any-return]


async def test_a_run_is_answered_in_the_chunks_that_http_has() -> None:
    async with (
        openai_server(streams("Hel", "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        over_http = await ask_once(edge.url, chat(stream=True))
        await ask(client, "mine")
        frames = (await last_words(client))["mine"]
        rows = await edge.settled(2)

    assert folded(frames) == message(over_http)
    assert frames[-1] == {"id": "mine", "done": True, "run_id": rows[1].run_id}
    assert [set(frame) for frame in frames[:-1]] == [{"id", "chunk"}] * (len(frames) - 1)
    assert [row.status for row in rows] == ["success", "success"]


async def test_many_runs_share_a_socket_and_none_waits_for_another() -> None:
    pause = trio.Event()
    async with (
        openai_server(by_attempt(streams("a", pause, "b"))) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        for number in range(20):
            await ask(client, number)
        await upstream.happened("asked", 20)
        pause.set()
        frames = await last_words(client, 20)
        rows = await edge.settled(20)

    assert sorted(frames) == list(range(20))
    assert {folded(each)["content"] for each in frames.values()} == {"ab"}
    assert len({each[-1]["run_id"] for each in frames.values()}) == 20
    assert {row.status for row in rows} == {"success"}


async def test_a_whole_answer_comes_whole() -> None:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1, stream=False)
        completion, done = (await last_words(client))[1]

    assert completion["completion"]["choices"][0]["message"]["content"] == "Hello"
    assert done["done"] is True


async def test_a_malformed_call_is_retried_here_too() -> None:
    script = by_attempt(calls("weather", {"town": "Bern"}), calls("weather", {"city": "Bern"}))
    async with (
        openai_server(script) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1, tools=[WEATHER])
        frames = (await last_words(client))[1]
        statuses = [row.status for row in await edge.settled(2)]

    (call,) = folded(frames)["tool_calls"]
    assert orjson.loads(call["function"]["arguments"]) == {"city": "Bern"}
    assert statuses == ["validation_failed", "success"]


async def test_a_run_that_fails_is_told_with_its_status_and_the_others_go_on() -> None:
    async with (
        openai_server(refuses(400, "no such thing")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1)
        (refused,) = (await last_words(client))[1]
        await client.send({"id": 2, "request": {"model": "coder", "messages": "text"}})
        (malformed,) = (await last_words(client))[2]

    assert (refused["status"], refused["error"]["message"]) == (400, "no such thing")
    assert (malformed["status"], malformed["error"]["param"]) == (400, "messages")


async def test_a_run_that_fails_in_mid_stream_has_one_last_word() -> None:
    async with openai_server(streams("Hel", b"data: {broken\n\n", "lo")) as upstream:
        config = upstream_config(upstream.base_url, output="max_attempts = 1")
        async with gateway(config) as edge, open_socket(edge.url, CHAT) as client:
            await ask(client, 1)
            frames = (await last_words(client))[1]
            await ask(client, 2, model="coder")
            assert (await client.frame())["id"] == 2

    assert frames[-1]["error"]["type"] == "run_error"
    assert "chunk" in frames[0]


async def test_a_run_is_cancelled_by_its_clients_id_and_no_other() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, "one")
        await ask(client, "two")
        await upstream.happened("sent", 4)
        await client.send({"id": "one", "cancel": True})
        await client.send({"id": "unknown", "cancel": True})
        first = await last_words(client)
        pause.set()
        second = await last_words(client)
        rows = await edge.settled(2)

    assert first["one"][-1]["error"]["type"] == "run_cancelled"
    assert second["two"][-1]["done"] is True
    assert sorted(row.status for row in rows) == ["cancelled", "success"]


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_the_sockets_end_is_a_give_up_of_all_its_runs(how: str) -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
    ):
        async with connect(edge.url) as client:
            await client.request(CHAT, headers=HANDSHAKE)
            await client.head()
            for number in range(3):
                await client.send(masked({"id": number, "request": chat()}))
            await upstream.happened("asked", 3)
            await (client.reset() if how == "reset" else client.hang_up())
        rows = await edge.settled(3)
        edge.assert_idle()

    assert {(row.status, row.category) for row in rows} == {("cancelled", "give_up")}
    assert None not in {row.cancel_s for row in rows}


def masked(tree: object) -> bytes:
    """A client's text frame, masked with zeros."""
    payload = orjson.dumps(tree)
    assert len(payload) < 126
    return bytes((0x81, 0x80 | len(payload))) + bytes(4) + payload


async def test_a_client_that_reads_nothing_gives_all_its_runs_up() -> None:
    parts = ["x" * 65536] * 400
    async with openai_server(streams(*parts)) as upstream:
        config = upstream_config(upstream.base_url, server="write_timeout_s = 0.3")
        async with gateway(config) as edge, connect(edge.url, receive_buffer=4096) as client:
            await client.request(CHAT, headers=HANDSHAKE)
            await client.head()
            for number in range(2):
                await client.send(masked({"id": number, "request": chat()}))
            rows = await edge.settled(2)

    assert {(row.status, row.category) for row in rows} == {("cancelled", "give_up")}


async def test_a_client_that_reads_slowly_slows_its_provider_and_loses_nothing() -> None:
    parts = ["x" * 65536] * 200
    async with (
        openai_server(streams(*parts)) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await client.request(CHAT, headers=HANDSHAKE)
        await client.head()
        await client.send(masked({"id": 1, "request": chat()}))
        await upstream.happened("sent", 5)
        client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        data = b""
        while b'"done":true' not in data[-200:]:
            data += await client.stream.receive_some()

    assert data.count(b"x" * 65536) == 200


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("no json", None),
        ("[]", None),
        ("{}", "id"),
        ('{"id": true, "request": {}}', "id"),
        ('{"id": "%s", "request": {}}' % ("x" * 201), "id"),
        ('{"id": 1}', "request"),
        ('{"id": 1, "request": []}', "request"),
        ('{"id": 1, "request": {}, "cancel": true}', "request"),
    ],
)
async def test_what_is_no_message_is_refused_and_harms_no_run(text: str, param: str | None) -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1)
        assert "chunk" in await client.frame()
        await client.send_text(text)
        refused = (await last_words(client))[None]
        pause.set()
        assert (await last_words(client))[1][-1]["done"] is True

    (told,) = refused
    assert (told["id"], told["status"], told["error"]["param"]) == (None, 400, param)


async def test_an_id_that_is_in_use_does_not_end_the_run_that_has_it() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1)
        await ask(client, 1)
        frames = await last_words(client)
        pause.set()
        rest = await last_words(client)
        await ask(client, 1)
        again = await last_words(client)

    assert frames[None][0]["error"]["param"] == "id"
    assert rest[1][-1]["done"] is True
    assert again[1][-1]["done"] is True


async def test_a_socket_has_a_bound_of_runs() -> None:
    async with (
        openai_server(silent) as upstream,
        gateway(upstream_config(upstream.base_url, limits="max_socket_runs = 2")) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        for number in (1, 2, 3):
            await ask(client, number)
        frames = await last_words(client)

    (refused,) = frames[3]
    assert (refused["status"], refused["error"]["type"]) == (429, "rate_limit_error")


async def test_a_message_that_is_too_long_closes_the_socket() -> None:
    async with openai_server(streams("Hello")) as upstream:
        config = upstream_config(upstream.base_url, server="max_body_bytes = 1000")
        async with gateway(config) as edge, open_socket(edge.url, CHAT) as client:
            await ask(client, 1, content="x" * 2000)
            assert await client.closed() == 1009


async def test_the_key_is_the_handshakes() -> None:
    async with openai_server(streams("Hello")) as upstream:
        config = upstream_config(upstream.base_url)
        config += '[[keys]]\nname = "team-a"\nkey = "env:A"\nmodels = ["coder"]\n'
        config = config.replace('model = "*"', 'model = "coder"')
        around = Surroundings(environ={"A": "key-of-a"}, folder=Path())
        settings = Settings.from_toml(config, bind=["127.0.0.1:0"], around=around)
        async with gateway(settings) as edge:
            async with connect(edge.url) as nobody:
                await nobody.request(CHAT, headers=HANDSHAKE)
                refused = await nobody.response()
            async with open_socket(edge.url, CHAT, key="key-of-a") as client:
                await ask(client, 1)
                frames = await last_words(client)
                await ask(client, 2, model="other")
                unknown = await last_words(client)
            (row,) = await edge.settled()

    assert refused.status == 401
    assert frames[1][-1]["done"] is True
    assert unknown[2][0]["error"]["type"] == "model_not_found"
    assert row.key == "team-a"


async def test_a_waiting_run_pings_its_client() -> None:
    async with openai_server(silent) as upstream:
        config = upstream_config(upstream.base_url, output="heartbeat_s = 0.02")
        async with gateway(config) as edge, connect(edge.url) as client:
            await client.request(CHAT, headers=HANDSHAKE)
            await client.head()
            await client.send(masked({"id": 1, "request": chat()}))
            assert await client.exactly(4) == b"\x89\x00\x89\x00"


async def test_a_bug_in_one_run_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = run.carry_run
    faulty = [True]

    async def carry_run(*args: Any) -> None:
        if faulty and faulty.pop():
            raise ZeroDivisionError
        await real(*args)

    monkeypatch.setattr(socket_runs, "carry_run", carry_run)
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1)
        failed = await last_words(client)
        await ask(client, 2)
        sound = await last_words(client)

    assert (failed[1][0]["status"], failed[1][0]["error"]["type"]) == (500, "server_error")
    assert "ZeroDivision" not in str(failed)
    assert sound[2][-1]["done"] is True


async def test_shutdown_lets_the_runs_end_and_then_closes() -> None:
    pause = trio.Event()
    async with (
        openai_server(streams("Hel", pause, "lo")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, CHAT) as idle,
        open_socket(edge.url, CHAT) as client,
    ):
        await ask(client, 1)
        assert "chunk" in await client.frame()
        edge.shutdown.set()
        assert await idle.closed() == 1001
        await ask(client, 2)
        late = await last_words(client)
        pause.set()
        frames = await last_words(client)
        code = await client.closed()

    assert late[2][0]["error"]["type"] == "overloaded_error"
    assert frames[1][-1]["done"] is True
    assert code == 1001


async def test_a_run_over_a_socket_is_mirrored_like_any_other() -> None:
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        open_socket(edge.url, "/v1/mirror") as follower,
        open_socket(edge.url, CHAT) as client,
    ):
        await until(lambda: edge.gateway.common.hub.statistics().subscribers == 1)
        await ask(client, 1)
        frames = (await last_words(client))[1]
        mirrored = await follower.until("run.finished")

    told = [frame["chunk"] for frame in mirrored if frame["type"] == "chunk"]
    assert told == [frame["chunk"] for frame in frames if "chunk" in frame]
