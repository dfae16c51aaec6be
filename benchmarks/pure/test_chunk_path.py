"""What each pure stage of the chunk path costs; every round takes a stream of 2,000 chunks.

    python -m pytest benchmarks/pure

So a millisecond in the table is half a microsecond a chunk. The floor is ``json.loads`` of the same
chunks: what any program pays that looks at them with the standard library.
"""

import json

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks import wire_text
from edge.core.collect import Collector
from edge.core.contract import Contract, Tool
from edge.core.emit import ChunkEmitter, Identity
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.schemas import compile_contract
from edge.core.stream_events import StreamEvent
from edge.core.validate import judge
from edge.core.verdict import Valid
from edge.wire.openai_chunks import decode_chunk
from edge.wire.same_text import SameText
from edge.wire.sse import SseDecoder

CHUNKS = 2000
POLICY = OutputPolicy()
IDENTITY = Identity("chatcmpl-run_0123456789abcdef", 1_700_000_000, "model")
[SPEC] = json.loads(wire_text.TOOLS)
OFFERED = Contract(tools={"note": Tool("note", SPEC["function"]["parameters"], "Write a note.")})
NOTHING_OFFERED = Contract()


def _events(script: wire_text.Script) -> list[bytes]:
    stamped = [script.before + wire_text.stamp() + script.after for _ in range(CHUNKS)]
    return [script.opening, *stamped, script.ending_with_usage]


TEXT = _events(wire_text.TEXT)
CALL = _events(wire_text.CALL)
READS_OF_64K = [b"".join(TEXT)[at : at + 65536] for at in range(0, sum(map(len, TEXT)), 65536)]


def _payloads(events: list[bytes]) -> list[bytes]:
    return [payload for payload in SseDecoder().feed(b"".join(events)) if payload != b"[DONE]"]


TEXT_PAYLOADS, CALL_PAYLOADS = _payloads(TEXT), _payloads(CALL)


def _normalize(payloads: list[bytes], contract: Contract) -> list[list[StreamEvent]]:
    normalizer = Normalizer(contract, POLICY)
    batches = [normalizer.feed(decode_chunk(payload)) for payload in payloads]
    return [*batches, normalizer.finish()]


def _decode(reads: list[bytes]) -> int:
    decoder = SseDecoder()
    return sum(len(decoder.feed(read)) for read in reads)


def test_floor_json_loads(benchmark: BenchmarkFixture) -> None:
    benchmark(lambda: [json.loads(payload) for payload in TEXT_PAYLOADS])


@pytest.mark.parametrize("reads", [TEXT, READS_OF_64K], ids=["an event a read", "64 KiB a read"])
def test_decode_events(benchmark: BenchmarkFixture, reads: list[bytes]) -> None:
    assert benchmark(_decode, reads) == CHUNKS + 4


def test_decode_json(benchmark: BenchmarkFixture) -> None:
    benchmark(lambda: [decode_chunk(payload) for payload in TEXT_PAYLOADS])


@pytest.mark.parametrize(
    ("payloads", "contract"),
    [
        (TEXT_PAYLOADS, NOTHING_OFFERED),
        (TEXT_PAYLOADS, OFFERED),
        (CALL_PAYLOADS, OFFERED),
    ],
    ids=["text", "text scanned for calls", "native call"],
)
def test_normalize_with_decoding(
    benchmark: BenchmarkFixture, payloads: list[bytes], contract: Contract
) -> None:
    assert any(benchmark(_normalize, payloads, contract))


def test_collect(benchmark: BenchmarkFixture) -> None:
    batches = _normalize(TEXT_PAYLOADS, NOTHING_OFFERED)

    def collect() -> int:
        collector = Collector()
        for events in batches:
            collector.feed(events)
        return len(collector.output().choices[0].content)

    assert benchmark(collect) > CHUNKS


def test_emit(benchmark: BenchmarkFixture) -> None:
    batches = _normalize(TEXT_PAYLOADS, NOTHING_OFFERED)

    def emit() -> int:
        emitter = ChunkEmitter(IDENTITY)
        return sum(len(emitter.feed(events)) for events in batches)

    assert benchmark(emit) > CHUNKS


def test_validate(benchmark: BenchmarkFixture) -> None:
    collector = Collector()
    for events in _normalize(CALL_PAYLOADS, OFFERED):
        collector.feed(events)
    output, compiled = collector.output(), compile_contract(OFFERED)
    assert isinstance(benchmark(judge, output, compiled, POLICY), Valid)


@pytest.mark.parametrize("contract", [NOTHING_OFFERED, OFFERED], ids=["live", "calls-held"])
def test_whole_path(benchmark: BenchmarkFixture, contract: Contract) -> None:
    """Bytes in, bytes out: decoding, normalizing, collecting, emitting, an event a read."""

    def carry() -> int:
        decoder, normalizer = SseDecoder(), Normalizer(contract, POLICY)
        collector, emitter = Collector(), ChunkEmitter(IDENTITY)
        sent = 0
        for read in TEXT:
            for payload in decoder.feed(read):
                if payload != b"[DONE]":
                    events = normalizer.feed(decode_chunk(payload))
                    collector.feed(events)
                    sent += len(emitter.feed(events))
        return sent

    assert benchmark(carry) > CHUNKS


@pytest.mark.parametrize("contract", [NOTHING_OFFERED, OFFERED], ids=["live", "calls-held"])
def test_short_way(benchmark: BenchmarkFixture, contract: Contract) -> None:
    """The same as a run does it: a chunk that is new in its text alone makes no event."""

    def carry() -> int:
        decoder, same_text, normalizer = SseDecoder(), SameText(), Normalizer(contract, POLICY)
        collector, emitter = Collector(), ChunkEmitter(IDENTITY)
        sent = 0
        for read in TEXT:
            for payload in decoder.feed(read):
                text = same_text.text_of(payload)
                passed = None if text is None else normalizer.pass_on(text)
                if passed is not None:
                    collector.feed_texts([passed])
                    sent += len(emitter.feed_texts([passed]))
                elif payload != b"[DONE]":
                    chunk = decode_chunk(payload)
                    same_text.learn(payload, chunk)
                    events = normalizer.feed(chunk)
                    collector.feed(events)
                    sent += len(emitter.feed(events))
        return sent

    assert benchmark(carry) > CHUNKS
