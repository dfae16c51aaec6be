"""A model server that does what each request tells it (``orders``), and keeps a journal.

    python -m benchmarks.endurance.provider --port 9000 --journal FILE

``/NAME/v1/…`` is the provider called NAME, so that one process can be several. The journal is
appended to with one write a line, so that what happened is there also when this process is killed.
Times are of the monotonic clock, which all processes share:

    o CONNECTION TIME                                       a client has connected
    + NUMBER TIME CONNECTION NAME ID RUN ATTEMPT VERB FRESH a request has been read; RUN is "-" and
                                                            ATTEMPT 0 where it does not say; FRESH
                                                            is 1 for a connection's first one
    h NUMBER TIME                                           the head of its answer is about to leave
    - NUMBER TIME HOW                                       its answer is over: whole, gone (the
                                                            client left) or broke (as ordered)
    x CONNECTION TIME                                       a connection is closed
"""

import argparse
import json
import os
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import trio

from benchmarks.endurance.orders import Order

REMEMBERED = 10_000
MAX_ENDLESS = 100_000
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
DONE = b"data: [DONE]\n\n"


class Broke(Exception):
    """The connection was ended as ordered."""


class Gone(Exception):
    """The client has left."""


class Journal:
    """The file; every line is there once it is written, whatever becomes of this process."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, kind: str, number: int, *more: object) -> None:
        """Write a line, with the time of now."""
        words = " ".join(map(str, (kind, number, time.monotonic_ns(), *more)))
        os.write(self._file, f"{words}\n".encode())


class Provider:
    """What all connections share."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.numbers = count(1)
        self._connections = count(1)
        self._asked: OrderedDict[str, int] = OrderedDict()

    def times_asked(self, ask: str) -> int:
        """How often a request has come, this time included; for those that do not say."""
        times = self._asked.pop(ask, 0) + 1
        self._asked[ask] = times
        if len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
        return times

    async def serve(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end."""
        number = next(self._connections)
        self.journal.note("o", number)
        connection = Connection(self, number, stream)
        try:
            while await connection.serve_one():
                pass
        except (Gone, Broke, trio.BrokenResourceError):
            pass
        finally:
            stream.socket.close()
            self.journal.note("x", number)


class Connection:
    """One client's connection."""

    def __init__(self, provider: Provider, number: int, stream: trio.SocketStream) -> None:
        self._provider = provider
        self._number = number
        self._stream = stream
        self._unread = b""
        self._fresh = 1

    async def serve_one(self) -> bool:
        """Read a request and answer it; False where the client has closed between requests."""
        while b"\r\n\r\n" not in self._unread:
            if not await self._more():
                return False
        head, _, self._unread = self._unread.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        headers = dict(_header(field) for field in fields)
        length = int(headers.get("content-length", 0))
        while len(self._unread) < length:
            if not await self._more():
                return False
        body, self._unread = self._unread[:length], self._unread[length:]
        if line.startswith("GET"):
            await self._stream.send_all(_whole(b'{"object":"list","data":[]}'))
            return True
        await self._answer(line.split(" ")[1], headers, json.loads(body))
        return True

    async def _answer(self, target: str, headers: dict[str, str], body: dict[str, Any]) -> None:
        order = Order.parse(body["user"])
        provider, number = self._provider, next(self._provider.numbers)
        attempt = int(headers.get("x-edge-attempt", 0))
        verb = order.verb(attempt or provider.times_asked(order.id))
        run = headers.get("x-edge-run-id", "-")
        about = (self._number, target.split("/")[1], order.id, run, attempt, verb, self._fresh)
        provider.journal.note("+", number, *about)
        self._fresh = 0
        answer = Answer(provider.journal, number, order, body, self._stream)
        how = "gone"
        try:
            await self._watched(answer, verb)
            how = "whole"
        except Broke:
            how = "broke"
            raise
        finally:
            provider.journal.note("-", number, how)

    async def _watched(self, answer: "Answer", verb: str) -> None:
        """Give an answer and, meanwhile, look out for the client's leaving."""
        end: Exception | None = None
        async with trio.open_nursery() as nursery:

            async def give() -> None:
                nonlocal end
                try:
                    await answer.give(verb)
                except Broke as broke:
                    end = broke
                except (OSError, trio.BrokenResourceError):
                    end = Gone()
                nursery.cancel_scope.cancel()

            nursery.start_soon(give)
            more = False  # bytes of the next request: the client has its answer
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                more = await self._more()
            if not more:
                end = end or Gone()
                nursery.cancel_scope.cancel()
        if end is not None:
            raise end

    async def _more(self) -> bool:
        data = await self._stream.receive_some(65536)
        self._unread += data
        return bool(data)


class Answer:
    """One answer, as it is ordered."""

    def __init__(
        self,
        journal: Journal,
        number: int,
        order: Order,
        body: dict[str, Any],
        stream: trio.SocketStream,
    ) -> None:
        self._journal = journal
        self._number = number
        self._order = order
        self._body = body
        self._stream = stream

    async def give(self, verb: str) -> None:
        """Do what the verb says."""
        order = self._order
        if verb == "mute":
            await trio.sleep_forever()
        if verb == "drop":
            self._end()
        if verb == "refuse":
            await self._send_whole(
                {"error": {"message": "as ordered", "type": "server_error"}}, 500
            )
        elif "messages" not in self._body:
            await self._pause(order.words)
            await self._send_whole({"object": "list", "data": [], "id": order.id, "usage": USAGE})
        elif self._body.get("stream"):
            await self._stream_out(verb)
        else:
            await self._pause(order.words)
            await self._send_whole(self._completion(), cut=verb in ("cut", "reset"))

    async def _stream_out(self, verb: str) -> None:
        self._journal.note("h", self._number)
        await self._stream.send_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        await self._chunk({"role": "assistant", "content": ""})
        for delta in self._deltas(verb):
            await self._chunk(delta)
            await self._pause(1)
        if verb == "hush":
            await trio.sleep_forever()
        if verb in ("cut", "reset"):
            self._end(reset=verb == "reset")
        await self._chunk({}, "tool_calls" if verb in ("call", "badcall") else "stop")
        rest = DONE
        if (self._body.get("stream_options") or {}).get("include_usage"):
            rest = _event(self._frame([], usage=USAGE)) + rest
        await self._stream.send_all(_framed(rest) + b"0\r\n\r\n")

    def _deltas(self, verb: str) -> Iterator[dict[str, Any]]:
        order = self._order
        bad = verb.startswith("bad")
        arguments = json.dumps(order.bad_arguments if bad else order.arguments)
        if verb in ("call", "badcall"):
            name = {"name": "weather", "arguments": ""}
            entry = {"index": 0, "id": f"call_{order.id}", "type": "function", "function": name}
            yield {"tool_calls": [entry]}
            middle = len(arguments) // 2
            for piece in (arguments[:middle], arguments[middle:]):
                yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        elif verb in ("written", "badwritten"):
            written = f'<tool_call>\n{{"name": "weather", "arguments": {arguments}}}\n</tool_call>'
            for at in range(0, len(written), 16):
                yield {"content": written[at : at + 16]}
        else:
            for number in range(MAX_ENDLESS if verb == "endless" else order.words):
                yield {"content": order.word(number)}

    def _completion(self) -> dict[str, Any]:
        message = {"role": "assistant", "content": self._order.text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return self._frame([choice], object="chat.completion", usage=USAGE)

    def _frame(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._order.id}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": self._body["model"],
            "choices": choices,
            **more,
        }

    async def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        await self._stream.send_all(_framed(_event(self._frame([choice]))))

    async def _send_whole(
        self, tree: dict[str, Any], status: int = 200, *, cut: bool = False
    ) -> None:
        data = _whole(json.dumps(tree).encode(), status)
        self._journal.note("h", self._number)
        if cut:
            await self._stream.send_all(data[: len(data) // 2])
            self._end()
        await self._stream.send_all(data)

    async def _pause(self, words: int) -> None:
        await trio.sleep(words * self._order.gap_ms / 1000)

    def _end(self, *, reset: bool = False) -> None:
        if reset:
            linger_for_nothing = struct.pack("ii", 1, 0)
            self._stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_for_nothing)
            self._stream.socket.close()
        else:
            self._stream.socket.shutdown(socket.SHUT_WR)
        raise Broke


def _header(field: str) -> tuple[str, str]:
    name, _, value = field.partition(":")
    return name.strip().lower(), value.strip()


def _event(tree: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(tree).encode() + b"\n\n"


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _whole(body: bytes, status: int = 200) -> bytes:
    head = b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % (status, len(body)) + body


async def serve(port: int, journal: Path, max_seconds: float) -> None:
    """Serve on loopback, for so long at most."""
    provider = Provider(Journal(journal))
    with trio.move_on_after(max_seconds):
        await trio.serve_tcp(provider.serve, port, host="127.0.0.1", backlog=1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--max-seconds", type=float, default=7200)
    options = parser.parse_args()
    trio.run(partial(serve, options.port, options.journal, options.max_seconds))


if __name__ == "__main__":
    main()
