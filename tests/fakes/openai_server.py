"""A scripted OpenAI-compatible model server on a real socket; it writes down what happens in order.

The nth request is answered by the nth script, and the last one answers all that follow:

    async with openai_server(streams("Hel", "lo")) as upstream:
        ... upstream.base_url ...
        assert upstream.asked[0].body["model"] == "m"

A script is any ``async def script(answer: Answer)``; ready-made ones, and what ``streams`` takes,
are in ``openai_scripts``.

While an answer is given the client is watched, so its leaving is seen at once, also in a pause.
The log (``kinds()``, ``happened(kind)``) knows:

    accepted        a client has connected
    head, body      a request's head and its body have been read
    asked           it is a chat request, or another one with a body (all are in ``upstream.asked``)
    listed          ``GET /v1/models`` has been answered
    started         the head of an answer has been sent
    sent            a piece of an answer has been handed to the kernel (detail: the bytes)
    ended           an answer has been given to its end
    broke           the script closed or reset the connection
    closed, reset   the client has closed or broken the connection
    other words     what a test itself noted with ``upstream.note("client leaves")``

So "the run was given up before anything else was sent" is an order of events, not a time:

    pause = trio.Event()
    async with openai_server(streams("Hel", pause, "lo")) as upstream:
        ... the client reads "Hel" and leaves ...
        await upstream.happened("closed")
        assert "ended" not in upstream.kinds()
"""

import enum
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import trio

from tests.fakes.raw_server import ClientGone, Event, Peer, RawServer, head, raw_server
from tests.fakes.raw_server import chunk as framed

PATIENCE_S = 10.0
CREATED = 1_764_460_800
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DONE = b"data: [DONE]\n\n"


class Break(enum.Enum):
    """How a connection ends in the middle of an answer."""

    CLOSE = enum.auto()
    RESET = enum.auto()


class Broken(Exception):
    """The script has broken the connection; ends the script."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the model server got it; header names in lower case.

    Attributes:
        connection: number of its connection, from 1 in order of acceptance.
        body: the parsed body, ``{}`` where it is no JSON object.
    """

    connection: int
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: dict[str, Any]

    @property
    def attempt(self) -> int:
        """The attempt's number as its header tells it; 1 without one."""
        return int(self.headers.get("x-edge-attempt", 1))


Script: TypeAlias = "Callable[[Answer], Awaitable[None]]"
Part: TypeAlias = "str | dict[str, Any] | bytes | trio.Event | Break"


@dataclass
class OpenAIServer:
    """A running server; see the module's docstring."""

    raw: RawServer
    scripts: Sequence[Script]
    models: Sequence[str]
    asked: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's address without a path."""
        return self.raw.url

    @property
    def base_url(self) -> str:
        """What a provider's ``base_url`` is set to."""
        return f"{self.raw.url}/v1"

    @property
    def answering(self) -> int:
        """Answers that are being given at this moment."""
        given = ("ended", "broke", "closed", "reset")
        last = {e.connection: e.kind for e in self.events if e.kind in ("asked", *given)}
        return list(last.values()).count("asked")

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return self.raw.events

    def kinds(self, connection: int | None = None) -> list[str]:
        """What happened, in order, at one connection or at all."""
        return self.raw.kinds(connection)

    def count(self, kind: str) -> int:
        """How often something has happened."""
        return self.raw.count(kind)

    def note(self, kind: str) -> None:
        """Write down something that the test did or saw."""
        self.raw.log(0, kind)

    async def happened(self, kind: str, times: int = 1) -> Event:
        """Wait until something has happened so many times; the last of these events."""
        with trio.fail_after(PATIENCE_S):
            return await self.raw.happened(kind, times)


class Answer:
    """One request and the answer that is being given to it."""

    def __init__(self, server: OpenAIServer, peer: Peer, asked: Asked) -> None:
        self.asked = asked
        self._server = server
        self._peer = peer
        self.watched = True

    async def start(self, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send the head of a chunked answer, an event stream unless ``headers`` say otherwise."""
        fields = {"content-type": "text/event-stream", **(headers or {})}
        await self._send(head(status, {**fields, "transfer-encoding": "chunked"}), "started")

    async def send(self, data: bytes) -> None:
        """Send bytes of the body, in one frame of their own."""
        await self._send(framed(data), "sent", data)

    async def chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> None:
        """Send one ``chat.completion.chunk`` with one choice."""
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self.send(event(self.frame(choices=[choice])))

    async def usage(self, usage: Mapping[str, int] = USAGE) -> None:
        """Send the usage chunk, if the request asked for it."""
        if (self.asked.body.get("stream_options") or {}).get("include_usage"):
            await self.send(event(self.frame(choices=[], usage=usage)))

    async def end(self) -> None:
        """End the chunked body."""
        await self._send(b"0\r\n\r\n", "ended")

    async def whole(
        self, status: int, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole length-framed answer, JSON unless ``headers`` say otherwise."""
        fields = {"content-type": "application/json", **(headers or {})}
        await self._send(head(status, {**fields, "content-length": str(len(body))}), "started")
        await self._send(body, "ended")

    async def break_off(self, how: Break) -> None:
        """Close or break the connection in the middle of the answer."""
        if how is Break.RESET:
            self._peer.reset()
        else:
            self._peer.close()
        self._server.raw.log(self._peer.number, "broke")
        await trio.lowlevel.checkpoint()
        raise Broken

    async def part(self, part: Part) -> None:
        """Send or do one part of a stream."""
        match part:
            case str():
                await self.chunk({"content": part})
            case bytes():
                await self.send(part)
            case Break():
                await self.break_off(part)
            case trio.Event():
                await part.wait()
            case _:
                await self.chunk(part)

    def frame(self, **keys: Any) -> dict[str, Any]:
        """A chunk around ``keys``."""
        return {
            "id": "chatcmpl-upstream",
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": self.asked.body.get("model", ""),
            **keys,
        }

    async def _send(self, data: bytes, kind: str, detail: bytes = b"") -> None:
        """Send, and write it down before any other task can act on what was sent."""
        stream = self._peer.stream
        assert isinstance(stream, trio.SocketStream)
        try:
            rest = data[_written(stream, data) :]
            if rest:
                await stream.send_all(rest)
        except (OSError, trio.BrokenResourceError):
            await self._client_gone()
        self._server.raw.log(self._peer.number, kind, detail)
        await trio.lowlevel.checkpoint()

    async def _client_gone(self) -> NoReturn:
        if self.watched:  # then it is for the watcher to say how the client left
            await trio.sleep_forever()
        self._server.raw.log(self._peer.number, "reset")
        raise ClientGone


def _written(stream: trio.SocketStream, data: bytes) -> int:
    """How many bytes the kernel takes at once."""
    try:
        return os.write(stream.socket.fileno(), data)
    except BlockingIOError:
        return 0


@asynccontextmanager
async def openai_server(
    *scripts: Script, models: Sequence[str] = ()
) -> AsyncIterator[OpenAIServer]:
    """Serve until the block is left; without scripts every request is answered with "ok"."""
    chosen = scripts or (_ok,)

    async def serve(peer: Peer) -> None:
        while True:
            await _one_request(server, peer)

    # The server's tasks begin when this task first waits, and by then ``server`` is there.
    async with raw_server(serve) as raw:
        server = OpenAIServer(raw, chosen, models)
        yield server


async def _ok(answer: Answer) -> None:
    await answer.start()
    await answer.chunk({"role": "assistant", "content": "ok"})
    await answer.chunk({}, "stop")
    await answer.usage()
    await answer.send(DONE)
    await answer.end()


async def _one_request(server: OpenAIServer, peer: Peer) -> None:
    request = await peer.read_request()
    if request.method == "GET":
        await _list_models(server, peer)
        return
    asked = Asked(peer.number, request.target, request.headers, request.body, _object(request.body))
    server.asked.append(asked)
    server.raw.log(peer.number, "asked")
    script = server.scripts[min(len(server.asked), len(server.scripts)) - 1]
    await _watched(peer, script, Answer(server, peer, asked))


async def _watched(peer: Peer, script: Script, answer: Answer) -> None:
    """Give an answer and, meanwhile, look out for the client's leaving."""
    fault: Exception | None = None
    async with trio.open_nursery() as nursery:

        async def give() -> None:
            nonlocal fault
            try:
                await script(answer)
            except (Broken, ClientGone) as broken:
                fault = broken
            nursery.cancel_scope.cancel()

        async def watch() -> None:
            nonlocal fault
            try:
                if data := await peer.receive():
                    peer.put_back(data)  # the next request, before this one is answered
                    answer.watched = False
                    return
                fault = ClientGone()
            except ClientGone as gone:
                fault = gone
            except trio.ClosedResourceError:
                return
            nursery.cancel_scope.cancel()

        nursery.start_soon(give)
        nursery.start_soon(watch)
    if fault is not None:
        raise ClientGone from fault


async def _list_models(server: OpenAIServer, peer: Peer) -> None:
    listed = [
        {"id": model, "object": "model", "created": CREATED, "owned_by": "upstream"}
        for model in server.models
    ]
    body = json.dumps({"object": "list", "data": listed}).encode()
    await peer.send_answer(200, body)
    server.raw.log(peer.number, "listed")


def _object(data: bytes) -> dict[str, Any]:
    try:
        tree = json.loads(data)
    except ValueError:
        return {}
    return tree if isinstance(tree, dict) else {}


def event(tree: object) -> bytes:
    """The bytes of an event that carries ``tree`` as JSON."""
    return b"data: " + json.dumps(tree).encode() + b"\n\n"
