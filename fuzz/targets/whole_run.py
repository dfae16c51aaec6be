"""A whole run in memory: the bytes of a provider's connection to the bytes a client gets.

Everything is real but the sockets and the clock: admission, attempts, the HTTP connection, reading,
judging, retries, emitting. Whatever the provider sends, and however it is cut:

- a streamed answer is one that the strictest client takes, or it ends in one error and ``[DONE]``,
  without a finish reason; an answer in one piece is a body, or an error of a documented type;
- with all of it held back, a streamed answer folds to the one in one piece, whatever the cut;
- every attempt has one row, every slot and every connection is given back, no task is left.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import trio
import trio.testing

from edge import errors
from edge.app import Gateway
from edge.providers.openai import OpenAIOptions, OpenAIProvider
from edge.providers.transport import Transport
from edge.server.connection import carry_out
from edge.server.exchange import GatewayRequest, Headers
from edge.settings import Settings
from edge.wire.sse import DONE, encode_event
from edge.wire.strict_json import encode, parse
from fuzz.draw import KEYS, Draw, as_text, cut, edited
from fuzz.targets.chunks import BASES
from fuzz.targets.tool_calls import CALLS, OWN
from tests.conformance.cases import CASES, chunks_of
from tests.core.toolcalls.rendered_forms import RENDERED
from tests.fakes.channel import FakeChannel
from tests.fakes.memory_reply import MemoryReply
from tests.fakes.strict_client import fold, payloads

MAX_BYTES = 2000
NEXT = b"\n=next=\n"
"""Between the answers of two attempts; the last one answers all that follow."""

WORDS = (
    *(f'"{key}":'.encode() for key in KEYS if key.isprintable()), NEXT, b"data: ", b"\n\n",
    b"data: [DONE]\n\n", b'{"choices":[{"index":0,"delta":{"content":"', b"HTTP/1.1 200 OK\r\n",
    b"Content-Length: ", b"\r\n\r\n", b"<tool_call>", b"</tool_call>", b"<think>", b"</think>",
    b'{"name": "ping", "arguments": {}}', b"HTTP/1.1 500 X\r\n", b"HTTP/1.1 429 X\r\n",
    b"Content-Type: application/json\r\n",
)  # fmt: skip

TOOLS = [
    {"type": "function", "function": {"name": tool.name, "parameters": dict(tool.parameters)}}
    for tool in OWN
]
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
REQUESTS: tuple[dict[str, Any], ...] = (
    ASKED,
    {**ASKED, "tools": TOOLS},
    {**ASKED, "tools": TOOLS, "tool_choice": "required", "stream_options": {"include_usage": True}},
    {**ASKED, "response_format": {"type": "json_object"}},
)
CONFIG = """
[[providers]]
name = "a"
base_url = "http://a.invalid/v1"
path = "normalized"
[[routes]]
model = "*"
targets = [{ provider = "a" }]
[output]
buffer = "%s"
max_attempts = %d
"""
SETTINGS = tuple(
    Settings.from_toml(CONFIG % kind) for kind in (("full", 3), ("tool_calls", 2), ("full", 1))
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
TYPES = frozenset(
    kind.type
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.EdgeError)
)
STATUSES = (500, 400, 200, 404, 429)


@dataclass
class Told:
    """What a client got.

    Attributes:
        body: of the answer, as one that is not streamed; None for an error.
        error: the type of the error; empty without one.
    """

    status: int
    body: dict[str, Any] | None
    error: str


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    settings, request, how = draw.pick(SETTINGS), draw.pick(REQUESTS), draw.below(4)
    seed = draw.below(65536)
    wires = [wire_of(part, how, seed) for part in draw.rest().split(NEXT)]
    streamed = trio.run(
        carry, settings, {**request, "stream": True}, [cut(wire, seed) for wire in wires],
        clock=trio.testing.MockClock(autojump_threshold=0),
    )  # fmt: skip
    whole = trio.run(
        carry, settings, request, [cut(wire, seed + 1, most=20) for wire in wires],
        clock=trio.testing.MockClock(autojump_threshold=0),
    )  # fmt: skip
    if settings.routes[0].output.buffer == "full":
        assert streamed.error == whole.error
        assert plain(streamed.body) == plain(whole.body)


def wire_of(part: bytes, how: int, seed: int) -> bytes:
    """What the provider's connection brings: ``part`` is that, or a body, a text or edits."""
    if how == 0:
        return part
    if how == 1:
        return HEAD + part
    if how == 2:
        deltas = [{"content": piece} for piece in cut(as_text(part), seed)]
        chunks = [{"choices": [{"index": 0, "delta": each}]} for each in deltas]
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        return stream_of([*chunks, end])
    draw = Draw(part)
    base, kind = draw.pick(BASES), draw.below(len(STATUSES) + 1)
    tree = edited(base, draw)
    if kind == 0:
        return stream_of(tree if isinstance(tree, list) else [tree])
    body = encode(tree[0] if isinstance(tree, list) and tree else tree)
    return JSON_HEAD % (STATUSES[kind - 1], len(body)) + body


def stream_of(chunks: Iterable[object]) -> bytes:
    """An answer of these chunks."""
    return HEAD + b"".join(encode_event(encode(chunk)) for chunk in chunks) + DONE


class Line(FakeChannel):
    """A connection that is never used twice, so that each answer is the one of its attempt."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        super().__init__()
        self.says = [*pieces, b""]
        self.quiet = False

    async def receive_each(self, take: Callable[[bytes], bool]) -> None:
        """Give all but the end at once, as long as it is wanted."""
        await trio.lowlevel.checkpoint()
        while len(self.says) > 1:
            said = self.says.pop(0)
            assert isinstance(said, bytes)
            if not take(said):
                break


async def carry(
    settings: Settings, request: dict[str, Any], answers: Sequence[Sequence[bytes]]
) -> Told:
    """Carry one run to its end; nothing of it is left behind."""
    gateway = Gateway.build(settings)
    lines: list[Line] = []

    async def dial() -> Line:
        await trio.lowlevel.checkpoint()
        lines.append(Line(answers[min(len(lines), len(answers) - 1)]))
        return lines[-1]

    transport = Transport("http://a.invalid/v1", name="a", dial=dial)
    providers: Any = gateway.providers
    providers["a"] = OpenAIProvider("a", transport, OpenAIOptions(can_tunnel=False))
    reply = MemoryReply()
    await ask(gateway, request, reply)
    await gateway.providers["a"].aclose()
    rows = gateway.ledger.rows()
    assert [row.attempt for row in rows] == list(range(1, len(lines) + 1))
    assert all(line.closed for line in lines)
    assert len(gateway.desk.registry) == 0
    assert gateway.desk.observers.failures == 0
    assert [each.busy for each in gateway.desk.dispatcher.statistics().providers] == [0]
    assert gateway.desk.admission.statistics().active == 0
    return told(reply, streamed=request.get("stream") is True)


async def ask(gateway: Gateway, request: dict[str, Any], reply: MemoryReply) -> None:
    """Put a request to the gateway as its server would."""
    body = encode(request)

    async def read() -> bytes:
        await trio.lowlevel.checkpoint()
        return body

    path = "/v1/chat/completions"
    asked = GatewayRequest("POST", path, b"", Headers([]), client=None, body=read)
    await carry_out(await gateway.handlers.chat(asked), reply)


def told(reply: MemoryReply, *, streamed: bool) -> Told:
    """What the client got, if it is an answer at all."""
    assert reply.finished
    headers = dict(reply.headers)
    if headers[b"content-type"] != b"application/json":
        assert streamed
        assert reply.status == 200
        return told_in_a_stream(reply.body)
    tree = parse(reply.body)
    assert ("error" in tree) == (reply.status >= 400), tree
    if reply.status < 400:
        assert not streamed
        return Told(200, tree, "")
    if reply.status >= 500:
        assert tree["error"].keys() >= {"message", "type", "param", "code"}
        assert tree["error"]["type"] in TYPES, tree
    return Told(reply.status, None, kind_of(tree["error"]))


def told_in_a_stream(stream: bytes) -> Told:
    """What a stream tells: an answer, or one error as the last thing but ``[DONE]``."""
    *events, done = payloads(stream)
    assert done == "[DONE]"
    trees = [parse(event.encode()) for event in events]
    if not any("error" in tree for tree in trees):
        return Told(200, fold(stream), "")
    *chunks, failure = trees
    assert not any("error" in chunk for chunk in chunks)
    for chunk in chunks:
        assert all(choice["finish_reason"] is None for choice in chunk["choices"])
    return Told(200, None, kind_of(failure["error"]))


def kind_of(error: Any) -> str:
    """The type of an error object, which may be the provider's own."""
    return str(error.get("type")) if isinstance(error, dict) else repr(error)


def plain(body: dict[str, Any] | None) -> str:
    """An answer without what differs between two runs: its id, its time and the ids of calls."""
    if body is None:
        return ""
    for choice in body["choices"]:
        for call in choice["message"].get("tool_calls") or ():
            del call["id"]
    told = {name: value for name, value in body.items() if name not in ("id", "created", "usage")}
    return json.dumps(told, sort_keys=True)


def seeds() -> Iterable[bytes]:
    """Recorded answers, calls in every form, edits of chunks, and refusals."""
    for number, case in enumerate(CASES[::12]):
        stream = stream_of(chunks_of(case))[len(HEAD) :]
        yield bytes((number % 3, number % 4, 1, 0, number)) + stream[: MAX_BYTES // 2]
    for number, form in enumerate(sorted(RENDERED)[::2]):
        text = RENDERED[form](CALLS).encode()
        yield bytes((number % 3, 1, 2, 0, number)) + text[: len(text) // 2] + NEXT + text
    for number in range(len(BASES)):
        for kind in {0, number % (len(STATUSES) + 1)}:
            yield bytes((number % 3, 1, 3, 0, number)) + bytes((number, kind)) + NEXT + b"\0\0"
    yield b"\0\0\0\0\1" + HEAD + DONE
    yield b"\1\1\0\0\1HTTP/1.1 429 X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n" + NEXT + HEAD
