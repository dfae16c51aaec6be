"""A provider's chunks, from JSON to what a client gets of them.

Only a fault of the provider is raised. An answer that is found sound makes a stream that the
strictest client takes, and it folds to the body that is sent where no stream was asked for.
"""

import json
from collections.abc import Iterable
from typing import Any

from edge.core.collect import Collector
from edge.core.collected import CollectedOutput
from edge.core.contract import Contract
from edge.core.emit import ChunkEmitter, Identity, completion_body, events_of
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.schemas import compile_contract
from edge.core.stream_events import StreamEvent
from edge.core.validate import judge
from edge.core.verdict import Invalid
from edge.errors import ProviderError
from edge.wire.openai_chunks import chunk_error, completion_to_chunks, decode_chunk, says_something
from edge.wire.strict_json import encode, parse
from fuzz.draw import KEYS, Draw, edited
from fuzz.targets.tool_calls import TOOLS
from tests.conformance.cases import CASES, chunks_of
from tests.fakes.openai_scripts import call
from tests.fakes.strict_client import fold

MAX_BYTES = 3000
WORDS = (
    *(f'"{key}":'.encode() for key in KEYS if key.isprintable()), b'"stop"', b"null", b"\n",
    b'"length"', b'{"choices":[{"index":0,"delta":{"content":"', b"\\ud800",
    b"123456789012345678901234567890",
)  # fmt: skip

CONTRACT = Contract(tools=TOOLS)
COMPILED = compile_contract(CONTRACT)
IDENTITY = Identity("chatcmpl-run_0123", 1_790_000_000, "coder")
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
LOGPROBS = {"content": [{"token": "Hi", "logprob": -0.5, "bytes": None, "top_logprobs": []}]}


def _chunk(delta: dict[str, Any], finish: str | None = None, **beside: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **beside}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}


COMPLETION = {
    "id": "x",
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi", "tool_calls": None},
            "finish_reason": "stop",
            "logprobs": LOGPROBS,
        },
        {
            "index": 1,
            "message": {"content": None, **call("ping", "{}")},
            "finish_reason": "tool_calls",
        },
    ],
    "usage": USAGE,
}
BASES: tuple[list[dict[str, Any]], ...] = (
    *(chunks_of(case) for case in CASES[::5] if len(chunks_of(case)) < 24),
    [
        _chunk({"role": "assistant", "content": ""}, system_fingerprint="fp"),
        _chunk({"reasoning_content": "hm"}),
        _chunk({"content": "Hi"}, logprobs=LOGPROBS),
        _chunk({"refusal": "no", "annotations": [{"type": "x"}]}),
        _chunk({"content": [{"type": "text", "text": " there"}]}),
        _chunk({"function_call": {"name": "ping", "arguments": "{}"}}),
        {**_chunk({}, "stop"), "system_fingerprint": "fp", "service_tier": "a"},
        {"choices": [], "usage": USAGE},
    ],
    [
        _chunk(call("save_it", '{"body": "x"')),
        _chunk({"tool_calls": [{"index": 0, "function": {"arguments": ', "count": 1}'}}]}),
        _chunk({"tool_calls": [{"function": {"name": "ping", "arguments": {"a": 2**70}}}]}),
        _chunk({}, "tool_calls"),
    ],
    [
        _chunk({"content": "<tool_call>"}),
        _chunk({"content": '{"name": "ping"}</tool_call>'}, "eos"),
    ],
    [{"error": {"message": "no", "code": 500}}],
    [{"object": "error", "message": "no"}, {"detail": ["no"]}, {"error": "no"}],
    [COMPLETION],
)


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    is_text, live, batch = draw.flag(), draw.flag(), draw.below(8) + 1
    if is_text:
        payloads = draw.rest().split(b"\n")
    else:
        tree = edited(draw.pick(BASES), draw)
        payloads = [encode(chunk) for chunk in (tree if isinstance(tree, list) else [tree])]
    events: list[StreamEvent] = []
    try:
        normalizer = Normalizer(CONTRACT, OutputPolicy(), live=live)
        for chunk in read_chunks(payloads):
            events += normalizer.feed(chunk)
        events += normalizer.finish()
    except ProviderError as refused:
        assert refused.message
        return
    show(events, batch)


def read_chunks(payloads: list[bytes]) -> Iterable[dict[str, Any]]:
    """The chunks of events, a whole completion as its chunks."""
    for payload in payloads:
        chunk = decode_chunk(payload)
        assert parse(encode(chunk)) == chunk or b"arguments" not in payload
        says_something(chunk)
        if (told := chunk_error(chunk)) is not None:
            assert isinstance(told.message, str)
            raise told
        if chunk.get("object") == "chat.completion":
            yield from completion_to_chunks(chunk)
        else:
            yield chunk


def show(events: list[StreamEvent], batch: int) -> None:
    """What a client gets once the answer was judged, streamed and in one piece."""
    collector = Collector()
    collector.feed(events)
    output = collector.output()
    verdict = judge(output, COMPILED, OutputPolicy())
    if isinstance(verdict, Invalid):
        assert all(reason.message for reason in verdict.reasons)
        return
    for choice in verdict.output.choices:
        for each in choice.calls:
            assert type(json.loads(each.arguments)) is dict
    body = json.loads(encode(completion_body(verdict.output, IDENTITY)))
    assert fold(streamed(events_of(verdict.output), batch, verdict.output)) == body


def streamed(events: list[StreamEvent], batch: int, output: CollectedOutput) -> bytes:
    """The bytes of a whole stream, its events ``batch`` at a time."""
    emitter = ChunkEmitter(IDENTITY, include_usage=True)
    batches = [events[at : at + batch] for at in range(0, len(events), batch)]
    return b"".join(map(emitter.feed, batches)) + emitter.finish(output.usage)


def seeds() -> Iterable[bytes]:
    """Each base as it is, and as text."""
    for number, base in enumerate(BASES):
        yield bytes((0, number % 2, number % 8, number))
        yield bytes((1, number % 2, number % 8)) + b"\n".join(map(encode, base))[:MAX_BYTES]
