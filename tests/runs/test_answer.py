"""What waits of an answer leaves before what comes after it, and who has gone is told of."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from edge.core.emit import Identity
from edge.core.output_policy import OutputPolicy
from edge.core.stream_events import ReasoningDelta, TextDelta
from edge.runs.answer import StreamedAnswer
from edge.runs.observers import Observers
from tests.fakes.memory_reply import MemoryReply


def streamed(reply: MemoryReply, left: Callable[[], None] | None = None) -> StreamedAnswer:
    run: Any = SimpleNamespace(
        id="run_1",
        request_id="run_1",
        policy=OutputPolicy(),
        identity=Identity("chatcmpl-1", 1, "model"),
        request=SimpleNamespace(include_usage=False),
        mirror=None,
        client_left=left,
    )
    return StreamedAnswer(run, reply, Observers([]))


def record(number: int) -> Any:
    return SimpleNamespace(number=number, provider="", bytes_out=0, released=lambda: None)


async def test_the_last_of_an_attempt_that_failed_leaves_before_the_next_attempts_first() -> None:
    reply = MemoryReply()
    answer = streamed(reply)
    answer.begin(record(1), hold_text=False)
    answer.offer([TextDelta("one")])
    await answer.settle()
    answer.offer([TextDelta("two")], last=True)
    assert b"two" not in reply.body

    answer.begin(record(2), hold_text=False)
    answer.offer([ReasoningDelta("three")])
    await answer.settle()
    places = [reply.body.find(each) for each in (b"one", b"two", b"three")]
    assert places == sorted(places)
    assert places[0] > 0


async def test_a_beat_that_finds_the_client_gone_says_so_and_raises_nothing() -> None:
    told: list[str] = []
    answer = streamed(MemoryReply(leaves_at=1), left=lambda: told.append("left"))
    await answer.beat()

    assert told == ["left"]
