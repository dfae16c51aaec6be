"""A provider that dies at any byte of its answer never passes for one that had finished.

A recorded answer with text and a tool call is cut at each of its bytes in turn, its head included,
whatever frames it and whichever way it travels. Its client must get the whole of it or a typed
error, and never half an answer with a clean end.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import httptools
import orjson
import pytest
import trio

from tests.fakes.gateway import CHAT, chat, gateway, tool, upstream_config
from tests.fakes.raw_client import connect
from tests.fakes.raw_server import Peer, chunk, head, raw_server
from tests.fakes.strict_client import fold, payloads

Death: TypeAlias = Literal["closes", "breaks"]

AT_A_TIME = 8
SSE = {"content-type": "text/event-stream"}
ARGUMENTS = '{"path": "src/main.py", "line": 12}'
TOOLS = [tool("read", "path", path={"type": "string"}, line={"type": "integer"})]
TUNNEL = 'validate = "off"\nbuffer = "off"\nrecover = false'


def event(tree: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(tree) + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def call(arguments: str, **fields: Any) -> bytes:
    function = {"arguments": arguments, **fields.pop("function", {})}
    return delta(tool_calls=[{"index": 0, "function": function, **fields}])


EVENTS = (
    delta(role="assistant", content=""),
    delta(content="I read it."),
    call("", id="call_1", type="function", function={"name": "read"}),
    *(call(ARGUMENTS[at : at + 9]) for at in range(0, len(ARGUMENTS), 9)),
    delta("tool_calls"),
    event({"id": "c", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
    b"data: [DONE]\n\n",
)
CHUNKED = (
    head(200, {**SSE, "transfer-encoding": "chunked"}) + b"".join(map(chunk, EVENTS)) + b"0\r\n\r\n"
)
CLOSING = head(200, SSE) + b"".join(EVENTS)
MEASURED = head(200, {**SSE, "content-length": str(sum(map(len, EVENTS)))}) + b"".join(EVENTS)
COMPLETION = orjson.dumps(
    {
        "id": "c",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "I read it.",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "read", "arguments": ARGUMENTS},
                        }
                    ],
                },
                "finish_reason": "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
)
WHOLE = head(200, {"content-type": "application/json"}) + COMPLETION


@dataclass
class Answered:
    """An answer as a client got it; ``complete`` where HTTP says that it has come to its end."""

    complete: bool = False
    body: bytes = b""
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode().lower()] = value.decode()

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        self.complete = True


@asynccontextmanager
async def mortal(answer: bytes, death: Death) -> AsyncGenerator[str]:
    """A provider that dies behind as many bytes as the model's name says; its address."""

    async def script(peer: Peer) -> None:
        request = await peer.read_request()
        await peer.send(answer[: int(orjson.loads(request.body)["model"])])
        if death == "breaks":
            peer.reset()
        else:
            peer.close()

    async with raw_server(script) as server:
        yield server.url


async def ask(url: str, offset: int, *, stream: bool) -> Answered:
    answered = Answered()
    parser = httptools.HttpResponseParser(answered)
    body = orjson.dumps({**chat(stream=stream, tools=TOOLS), "model": str(offset)})
    async with connect(url) as client:
        await client.request(CHAT, method="POST", headers=[("connection", "close")], body=body)
        parser.feed_data(await client.until_closed())
    answered.status = parser.get_status_code()
    return answered


def judge(answered: Answered, *, tunnelled: bool) -> bool:
    """Whether an answer is whole; if it is not, it has to say so."""
    if answered.headers["content-type"] == "application/json":
        tree = orjson.loads(answered.body) if answered.complete else {}
        if answered.status == 200 and tree:
            return is_whole(tree)
        assert not answered.complete or (answered.status >= 500 and tree["error"]["type"])
        return False
    if not answered.complete:
        return False
    told = whole_events(answered.body)
    errors = [orjson.loads(each)["error"] for each in told if '"error":' in each]
    finishes = [each for each in told if '"finish_reason":"' in each]
    if errors:
        assert told[-1] == "[DONE]"
        assert errors[0]["type"]
        assert tunnelled or not finishes
        return False
    assert finishes, "half an answer with a clean end"
    if tunnelled:
        return b"".join(EVENTS[:-2]) in answered.body
    return is_whole(fold(answered.body))


def whole_events(body: bytes) -> list[str]:
    """The payloads of a stream as clients read it: an event without its blank line is none."""
    return payloads(body[: body.rfind(b"\n\n") + 2])


def is_whole(tree: dict[str, Any]) -> bool:
    (choice,) = tree["choices"]
    (made,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "I read it."
    assert made["function"] == {"name": "read", "arguments": ARGUMENTS}
    assert choice["finish_reason"] == "tool_calls"
    return True


WAYS = {
    "chunked, streamed": (CHUNKED, True, ""),
    "chunked, whole": (CHUNKED, False, ""),
    "measured, held": (MEASURED, True, 'buffer = "full"'),
    "until closed, streamed": (CLOSING, True, ""),
    "until closed, passed on": (CLOSING, True, TUNNEL),
    "chunked, passed on": (CHUNKED, True, TUNNEL),
    "not streamed, whole": (WHOLE, False, ""),
    "not streamed, passed on": (WHOLE, False, TUNNEL),
}


@pytest.mark.parametrize("death", ["closes", "breaks"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_provider_that_dies_at_any_byte(way: str, death: Death) -> None:
    answer, stream, output = WAYS[way]
    offsets = iter(range(0 if death == "closes" else 1, len(answer), 1 if death == "closes" else 7))
    whole: set[int] = set()

    async def die_at_next(url: str) -> None:
        for offset in offsets:
            if judge(await ask(url, offset, stream=stream), tunnelled=output == TUNNEL):
                whole.add(offset)

    async with mortal(answer, death) as upstream:
        config = upstream_config(upstream, output=f"max_attempts = 1\n{output}")
        async with gateway(config) as edge:
            async with trio.open_nursery() as nursery:
                for _ in range(AT_A_TIME):
                    nursery.start_soon(die_at_next, edge.url)
            rows = await edge.settled()

    assert all(offset > 0.8 * len(answer) for offset in whole)
    assert [row.status for row in rows].count("success") == len(whole)
