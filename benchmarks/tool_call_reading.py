"""What reading text for tool calls costs, as ratios to parsing the same chunks' JSON.

    python benchmarks/tool_call_reading.py

First table: a 2,000-chunk answer with four calls, prose, and code, per chunk, beside ``json.loads``
of the chunks that brought it. Second table: one call of every form with a value of 10 KB and of
1 MB, in chunks of four characters; the ratio of the times per chunk shows that time is linear.
"""

import json
import time
from collections.abc import Callable

from edge.core.contract import Contract, Tool
from edge.core.stream_events import ToolCallDelta
from edge.core.toolcalls.reader import TextReader
from tests.core.toolcalls.rendered_forms import RENDERED

SCHEMA = {"type": "object", "properties": {"body": {"type": "string"}}}
CONTRACT = Contract(tools={"save_it": Tool("save_it", SCHEMA), "ping": Tool("ping", {})})
SENTENCE = "The quick brown fox jumps over the lazy dog . It rests , and then it goes on ."
WORDS = SENTENCE.split(" ")
CODE = 'def f(x):\n    return {"a": [1, 2], "b": x < 3}  # `tick` <tag>\n\nprint(f"{f(2)}")\n'
UNIT = 'x = [1, {"k": "v"}] # <b> `y` \\n "quoted" it\'s 5 > 3\n'
REPEATS = 5


def pieces(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def answer_with_calls() -> list[str]:
    """About 2,000 chunks: prose with four calls in it."""
    prose = [f" {word}" for word in WORDS] * 24
    call = pieces(RENDERED["hermes"]([("save_it", {"body": "one two three " * 8})]))
    return (prose + call) * 4


def as_chunk(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return json.dumps({**head, "choices": [delta]}).encode()


def best(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """The shortest of several runs, in seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def read(chunks: list[str]) -> list[ToolCallDelta]:
    reader = TextReader(CONTRACT)
    events = []
    for chunk in chunks:
        events += reader.feed(chunk)
    events += reader.finish(truncated=False)
    return [event for event in events if isinstance(event, ToolCallDelta)]


def main() -> None:
    print(f"{'answer':24}{'chunks':>8}{'µs/chunk':>10}{'json.loads':>12}{'ratio':>8}")
    answers = {
        "prose, four calls": answer_with_calls(),
        "prose": [f" {word}" for word in WORDS] * 120,
        "code": pieces(CODE * 100),
    }
    for name, chunks in answers.items():
        wire = [as_chunk(chunk) for chunk in chunks]
        cost = best(lambda chunks=chunks: read(chunks)) / len(chunks) * 1e6  # type: ignore[misc]
        floor = best(lambda wire=wire: [json.loads(c) for c in wire]) / len(chunks) * 1e6  # type: ignore[misc]
        print(f"{name:24}{len(chunks):8}{cost:10.2f}{floor:12.2f}{cost / floor:8.2f}")
    print(f"\n{'form':18}{'10 KB':>10}{'1 MB':>10}{'ratio':>8}   (µs per chunk of 4 characters)")
    for form, render in RENDERED.items():
        costs = []
        for size in (10_000, 1_000_000):
            body = (UNIT * (size // len(UNIT) + 1))[:size].strip()
            chunks = pieces(render([("save_it", {"body": body})]))
            (call,) = read(chunks)
            assert json.loads(call.arguments) == {"body": body}, form
            repeats = REPEATS if size < 100_000 else 1
            work = lambda chunks=chunks: read(chunks)  # noqa: E731
            costs.append(best(work, repeats) / len(chunks) * 1e6)
        print(f"{form:18}{costs[0]:10.2f}{costs[1]:10.2f}{costs[1] / costs[0]:8.2f}")


if __name__ == "__main__":
    main()
