"""What a person sees of runs."""

import io
from typing import Any

import pytest
from rich.console import Console, RenderableType

from edge.tail.screen import MAX_ROWS, Board, RunText
from edge.tail.shown import line, plain


def frame(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "run_id": "run_1", "seq": 1, "at": 100.0, **fields}


def delta(index: int = 0, **fields: Any) -> dict[str, Any]:
    return frame("chunk", chunk={"choices": [{"index": index, "delta": fields}]})


STARTED = frame("run.started", model="coder", key="team-a", stream=True)
ATTEMPT = frame(
    "attempt.started", attempt=1, provider="gpu1", model="m", path="normalized", constrained=False
)
FAILED = frame("attempt.failed", attempt=1, category="schema", reason="limit: 'x' is no integer")
FINISHED = frame(
    "run.finished",
    status="success",
    error_type=None,
    attempts=[{}, {}],
    usage={"input_tokens": 12, "output_tokens": 34, "reported": True},
    timings={"total_s": 1.5, "first_token_s": 0.25, "held_s": 0.0},
)


def printed(*told: RenderableType, end: str = "") -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    for each in told:
        console.print(each, end=end, soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def read(*frames: dict[str, Any]) -> str:
    text = RunText()
    return printed(*[text.feed(each) for each in frames])


def test_a_run_reads_as_its_text_with_what_happened_on_lines_of_their_own() -> None:
    assert read(
        STARTED, ATTEMPT, delta(content="Hel"), delta(content="lo"), FAILED, FINISHED
    ).splitlines() == [
        "run_1  coder, streamed for team-a",
        "── attempt 1: gpu1 m (normalized)",
        "Hello",
        "✗ attempt 1 schema: limit: 'x' is no integer",
        "✓ success: 2 attempts, 12 → 34 tokens, first token 0.25s, total 1.50s",
    ]


def test_reasoning_and_answer_are_kept_apart() -> None:
    assert read(delta(reasoning_content="hm"), delta(content="yes")) == "hm\nyes"


def test_choices_are_told_apart() -> None:
    assert read(delta(content="a"), delta(index=1, content="b")) == "a\n[choice 1] b"


def test_a_call_is_shown_with_its_arguments() -> None:
    call = {"index": 0, "function": {"name": "look", "arguments": '{"n": 1}'}}

    assert read(delta(content="so"), delta(tool_calls=[call])) == 'so\n→ look({"n": 1})\n'


def test_what_is_held_is_shown_with_the_form_it_was_read_from_and_its_fault() -> None:
    call = {"kind": "tool_call", "name": "look", "arguments": "{", "origin": "hermes", "fault": "!"}
    text = {"kind": "content", "text": "hm"}

    assert read(frame("held", attempt=1, held=[text, call])) == (
        "hm\nheld → look({) as hermes\n  !\n"
    )


def test_an_answer_that_is_not_streamed_is_shown() -> None:
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "whole"}}]}

    assert read(frame("answer", answer=body)) == "whole"


def test_the_error_that_the_client_was_told_is_shown() -> None:
    chunk = {"error": {"message": "no luck", "type": "run_error"}}

    assert read(frame("chunk", chunk=chunk)) == "✗ the client was told: no luck\n"


@pytest.mark.parametrize("shown", [RunText, Board])
def test_a_gap_is_shown(shown: type[RunText] | type[Board]) -> None:
    told = shown().feed(frame("gap", missed=7))

    assert told is not None
    assert "… 7 frames were missed" in printed(told)


def test_guessed_tokens_are_called_so() -> None:
    guessed = {**FINISHED, "usage": {"input_tokens": 1, "output_tokens": 2, "reported": False}}

    assert "about 2 tokens" in read(guessed)


HOSTILE = "\x1b]0;gotcha\x07\x1b[2J\x9b31m\u202eevil"


def test_a_model_cannot_command_the_terminal() -> None:
    call = {"function": {"name": HOSTILE, "arguments": HOSTILE}}
    shown = read(
        delta(content=HOSTILE),
        delta(reasoning=HOSTILE),
        delta(tool_calls=[call]),
        frame("attempt.failed", attempt=1, category="schema", reason=HOSTILE),
        frame("run.started", model=HOSTILE, key=HOSTILE),
    )

    assert "evil" in shown
    assert not set(shown) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_markup_of_models_is_text() -> None:
    assert read(delta(content="[red]a[/red] :smile:")) == "[red]a[/red] :smile:"


def test_text_keeps_its_lines_and_lines_have_an_end() -> None:
    assert plain("a\tb\nc") == "a\tb\nc"
    assert line("a\n b", 10) == "a b"
    assert line("x" * 20, 5) == "xxxx…"


def run(number: int, kind: str = "run.started", **fields: Any) -> dict[str, Any]:
    return {**frame(kind, **fields), "run_id": f"run_{number}"}


def test_the_board_lists_what_is_under_way_with_provider_attempt_and_age() -> None:
    board = Board()
    board.feed(STARTED)
    board.feed({**ATTEMPT, "attempt": 2})

    shown = printed(board.table(now=102.5))

    assert "1 run under way" in shown
    assert shown.splitlines()[2].split() == ["run_1", "coder", "team-a", "gpu1", "2", "2.5s"]


def test_a_run_that_ended_leaves_the_table_and_a_line() -> None:
    board = Board()
    board.feed(STARTED)

    told = board.feed(FINISHED)

    assert told is not None
    assert told.plain.startswith("run_1  coder  ✓ success: 2 attempts")
    assert "0 runs under way" in printed(board.table(now=0))


def test_a_failed_attempt_leaves_a_line_and_the_run_stays() -> None:
    board = Board()
    board.feed(STARTED)

    told = board.feed(FAILED)

    assert told is not None
    assert "✗ attempt 1 schema" in told.plain
    assert "1 run under way" in printed(board.table(now=0))


def test_the_table_stays_small_and_says_what_it_leaves_out() -> None:
    board = Board()
    for number in range(MAX_ROWS + 5):
        board.feed(run(number, model="m"))

    shown = printed(board.table(now=0))

    assert "… and 5 more" in shown
    assert f"run_{MAX_ROWS + 4}" in shown
    assert len(shown.splitlines()) <= MAX_ROWS + 4


def test_runs_that_may_have_ended_unseen_do_not_stay_for_ever() -> None:
    board = Board()
    board.feed(STARTED)

    board.note("the connection broke")

    assert "0 runs under way" in printed(board.table(now=0))
