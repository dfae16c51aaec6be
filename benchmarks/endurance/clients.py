"""Clients that ask, look closely at what they get, leave when they are to, and say how it ended."""

import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import trio
import trio_websocket

from benchmarks.endurance.asks import Ask
from tests.fakes.raw_client import RawClient, connect
from tests.fakes.strict_client import fold, fold_chunks

BROKEN = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)
LONGEST_S = 60.0
CLOSING_S = 5.0

Owner: TypeAlias = Callable[[trio.SocketStream], int]
"""Who is at the other end of a connection, by pid."""


def nobody(_stream: trio.SocketStream) -> int:
    """Nobody cares."""
    return 0


@dataclass(slots=True)
class Told:
    """How one request ended for its client.

    Attributes:
        request_id: what the gateway logs; a socket's runs share one.
        run_id: as far as the client got to know it.
        end: ``whole``, ``left``, an error's type, ``cut`` (the connection ended), ``refused`` (no
            connection) or ``wrong`` (an answer that is not what was asked for).
        got: whether any byte of an answer came.
        worker: the pid of the process that answered, where somebody looked; 0 if unknown.
        ended_ns: when, on the monotonic clock; of a client that leaves, the moment it left.
    """

    ask: Ask
    request_id: str
    run_id: str = ""
    end: str = ""
    got: bool = False
    worker: int = 0
    ended_ns: int = 0
    detail: str = ""


class HttpClient:
    """A client that keeps its connection for as long as it is of use.

    Args:
        url: the gateway's.
        owner: finds out who answers on a connection.
    """

    def __init__(self, url: str, owner: Owner = nobody) -> None:
        self._url = url
        self._owner = owner
        self._client: RawClient | None = None
        self._worker = 0

    async def carry(self, ask: Ask) -> Told:
        """Ask, and see it to its end."""
        told = Told(ask, ask.id)
        with trio.move_on_after(LONGEST_S) as scope:
            await self._carry(ask, told)
        if scope.cancelled_caught or not told.end:
            told.end, told.detail = "wrong", f"no end within {LONGEST_S:g} s"
        told.ended_ns = told.ended_ns or time.monotonic_ns()
        return told

    async def aclose(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        self._worker = 0
        if client is not None:
            await client.hang_up()

    async def _carry(self, ask: Ask, told: Told) -> None:
        kept = self._client
        try:
            client = self._client = kept or await _connected(self._url)
        except OSError as error:
            told.end, told.detail = "refused", str(error)
            return
        try:
            body = json.dumps(ask.body()).encode()
            headers = (("x-request-id", ask.id), ("content-type", "application/json"))
            await client.request(ask.kind.path, method="POST", headers=headers, body=body)
            await self._see(ask, told, client)
        except (AssertionError, *BROKEN, trio.TooSlowError) as error:
            # RawClient asserts that more comes.
            cut = not isinstance(error, AssertionError) or str(error).startswith("closed after")
            told.end = "cut" if cut and not isinstance(error, trio.TooSlowError) else "wrong"
            told.detail = f"{type(error).__name__}: {error}"[:500]
            await self.aclose()

    async def _see(self, ask: Ask, told: Told, client: RawClient) -> None:
        kind = ask.kind
        if kind.leaving in ("closes", "resets") and not kind.after_chunks:
            with trio.move_on_after(ask.leaves_after_s) as scope:
                await self._read(ask, told, client)
            if scope.cancelled_caught:
                await self._leave(ask, told)
        else:
            await self._read(ask, told, client)

    async def _read(self, ask: Ask, told: Told, client: RawClient) -> None:
        kind = ask.kind
        head = await client.head()
        self._worker = self._worker or self._owner(client.stream)
        told.worker = self._worker
        told.got, told.run_id = True, head.headers.get("x-edge-run-id", "")
        if "content-length" in head.headers:
            body = await client.exactly(int(head.headers["content-length"]))
            _judge_whole(ask, told, head.status, body)
            return
        pieces: list[bytes] = []
        while piece := await client.chunk():
            pieces.append(piece)
            if len(pieces) == kind.after_chunks:
                if kind.leaving != "cancels":
                    await self._leave(ask, told)
                    return
                await self._cancel(told)
        _judge_stream(ask, told, b"".join(pieces))

    async def _leave(self, ask: Ask, told: Told) -> None:
        client, self._client = self._client, None
        self._worker = 0
        assert client is not None
        told.end, told.ended_ns = "left", time.monotonic_ns()
        await (client.reset() if ask.kind.leaving == "resets" else client.hang_up())

    async def _cancel(self, told: Told) -> None:
        async with connect(self._url) as other:
            told.ended_ns = time.monotonic_ns()
            await other.request(f"/v1/runs/{told.run_id}", method="DELETE")
            assert (await other.response()).status == 200


async def _connected(url: str) -> RawClient:
    host, _, port = url.removeprefix("http://").partition(":")
    return RawClient(await trio.open_tcp_stream(host, int(port)), patience_s=LONGEST_S)


class RunSocket:
    """A WebSocket with many runs at once."""

    def __init__(
        self, socket: trio_websocket.WebSocketConnection, request_id: str, worker: int
    ) -> None:
        self._socket = socket
        self.request_id = request_id
        self._worker = worker
        self._asked: dict[str, trio.MemorySendChannel[dict[str, Any]]] = {}
        self.strays: list[str] = []

    async def listen(self) -> None:
        """Hand every message to the request that it belongs to, until the socket ends."""
        try:
            while True:
                message = json.loads(await self._socket.get_message())
                channel = self._asked.get(str(message.get("id")))
                if channel is None:
                    self.strays.append(str(message)[:200])
                else:
                    channel.send_nowait(message)
        except trio_websocket.ConnectionClosed:
            for channel in self._asked.values():
                channel.close()

    async def carry(self, ask: Ask) -> Told:
        """Ask, and see it to its end."""
        told = Told(ask, self.request_id, worker=self._worker)
        sender, receiver = trio.open_memory_channel[dict[str, Any]](10_000)
        self._asked[ask.id] = sender
        with trio.move_on_after(LONGEST_S):
            try:
                request = {"id": ask.id, "request": ask.body()}
                await self._socket.send_message(json.dumps(request))
                await self._follow(ask, told, receiver)
            except (trio_websocket.ConnectionClosed, trio.EndOfChannel) as error:
                told.end, told.detail = "cut", type(error).__name__
            except AssertionError as error:
                told.end, told.detail = "wrong", str(error)[:500]
        del self._asked[ask.id]
        told.end = told.end or "wrong"
        told.ended_ns = told.ended_ns or time.monotonic_ns()
        return told

    async def _follow(
        self, ask: Ask, told: Told, receiver: trio.MemoryReceiveChannel[dict[str, Any]]
    ) -> None:
        leaving = trio.CancelScope()
        if ask.kind.leaving:
            leaving.deadline = trio.current_time() + ask.leaves_after_s
        chunks: list[dict[str, Any]] = []
        with leaving:
            await _to_last_word(ask, told, receiver, chunks)
        if leaving.cancelled_caught:
            told.ended_ns = time.monotonic_ns()
            await self._socket.send_message(json.dumps({"id": ask.id, "cancel": True}))
            await _to_last_word(ask, told, receiver, chunks)


async def _to_last_word(
    ask: Ask,
    told: Told,
    receiver: trio.MemoryReceiveChannel[dict[str, Any]],
    chunks: list[dict[str, Any]],
) -> None:
    while True:
        message = await receiver.receive()
        told.got = True
        if "chunk" in message:
            chunks.append(message["chunk"])
            told.run_id = message["chunk"]["id"].removeprefix("chatcmpl-")
        elif "completion" in message:
            _judge_message(ask, told, message["completion"])
        elif "done" in message:
            told.run_id = message["run_id"]
            if ask.kind.stream:
                _judge_message(ask, told, fold_chunks(chunks))
            return
        else:
            told.end = message["error"]["type"]
            return


@asynccontextmanager
async def run_socket(url: str, request_id: str, owner: Owner = nobody) -> AsyncGenerator[RunSocket]:
    """A WebSocket for runs, for the length of the block."""
    host, _, port = url.removeprefix("http://").partition(":")
    async with (
        # Opened here, so that it is closed whatever becomes of the handshake.
        await trio.open_tcp_stream(host, int(port)) as stream,
        trio.open_nursery() as nursery,
    ):
        made = await trio_websocket.wrap_client_stream(
            nursery,
            stream,
            f"{host}:{port}",
            "/v1/chat/completions",
            extra_headers=[(b"x-request-id", request_id.encode())],
        )
        opened = RunSocket(made, request_id, owner(stream))
        nursery.start_soon(opened.listen)
        yield opened
        with trio.move_on_after(CLOSING_S):
            await made.aclose()
        nursery.cancel_scope.cancel()


@dataclass(slots=True)
class Follower:
    """Follows all runs over the mirror, and counts their ends.

    Attributes:
        finished: runs whose end it was told.
        missed: frames it was told that it missed.
        sent_away: why the gateway closed its socket, if it did.
    """

    finished: int = 0
    missed: int = 0
    sent_away: str = ""

    async def follow(
        self, url: str, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow until cancelled."""
        address = f"{url.replace('http:', 'ws:')}/v1/mirror?types=run.started,run.finished"
        try:
            async with trio_websocket.open_websocket_url(address) as socket:
                task_status.started()
                while True:
                    frame = json.loads(await socket.get_message())
                    self.finished += frame["type"] == "run.finished"
                    self.missed += frame.get("missed", 0)
        except trio_websocket.ConnectionClosed as closed:
            self.sent_away = str(closed.reason)


def _judge_stream(ask: Ask, told: Told, stream: bytes) -> None:
    if b'data: {"error"' in stream:
        assert stream.endswith(b"data: [DONE]\n\n"), stream[-200:]
        *_, last, _done = stream.strip().split(b"\n\n")
        told.end = json.loads(last.removeprefix(b"data: "))["error"]["type"]
        return
    _judge_message(ask, told, fold(stream))


def _judge_whole(ask: Ask, told: Told, status: int, body: bytes) -> None:
    tree = json.loads(body)
    if status >= 400:
        told.end = tree["error"]["type"]
    elif ask.kind.path.endswith("/embeddings"):
        assert tree["id"] == ask.id, tree
        told.end = "whole"
    else:
        _judge_message(ask, told, tree)


def _judge_message(ask: Ask, told: Told, completion: dict[str, Any]) -> None:
    """Whether the answer is the one that was ordered, word for word."""
    (choice,) = completion["choices"]
    message, verb = choice["message"], ask.order.verbs[-1]
    if verb in ("call", "written"):
        (call,) = message["tool_calls"]
        assert call["function"]["name"] == "weather", call
        assert json.loads(call["function"]["arguments"]) == ask.order.arguments, call
        assert choice["finish_reason"] == "tool_calls", choice
    else:
        assert message["content"] == ask.order.text, message
        assert choice["finish_reason"] == "stop", choice
    told.end = "whole"


Finish = Callable[[Told], None]
