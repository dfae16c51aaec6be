"""``edge replay``, as somebody at a terminal meets it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edge.cli import cli

REQUEST = {"tools": [{"type": "function", "function": {"name": "look", "parameters": {}}}]}
CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


def recording(tmp_path: Path, content: str, finish: str = "stop") -> Path:
    chunk = {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}]}
    path = tmp_path / "recorded.json"
    path.write_text(json.dumps({"request": REQUEST, "chunks": [chunk]}))
    return path


def replay(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["replay", *map(str, arguments)])


def test_an_accepted_answer_ends_with_status_0(tmp_path: Path) -> None:
    done = replay(recording(tmp_path, CALL))

    assert done.exit_code == 0, done.output
    assert "a call was read as hermes: look({})" in done.output
    assert "accepted" in done.output.splitlines()[-1]


def test_a_refused_answer_ends_with_status_2(tmp_path: Path) -> None:
    done = replay(recording(tmp_path, CALL.replace("look", "peek")))

    assert done.exit_code == 2
    assert "unknown_tool (at tool_calls[0]" in done.output


def test_decisions_are_printed_as_json(tmp_path: Path) -> None:
    done = replay(recording(tmp_path, CALL), "--json")

    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds == ["run", "attempt", "held", "call", "finish", "valid", "retry"]


def test_the_request_may_come_from_a_file_of_its_own(tmp_path: Path) -> None:
    answer = tmp_path / "answer.sse"
    chunk = {"choices": [{"delta": {"content": CALL}, "finish_reason": "stop"}]}
    answer.write_text(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")
    request = tmp_path / "request.json"
    request.write_text(json.dumps(REQUEST))

    assert "look({})" in replay(answer, "--request", request).output


def test_what_a_model_wrote_cannot_command_the_terminal(tmp_path: Path) -> None:
    done = replay(recording(tmp_path, "\x1b[2J" + CALL.replace("look", "\\u001b[2J")))

    assert "\x1b" not in done.output


@pytest.mark.parametrize(
    ("content", "complaint"), [("nothing", "no JSON object"), ("", "holds nothing")]
)
def test_what_cannot_be_replayed_is_told_with_status_1(
    content: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text(content)
    done = replay(path)

    assert done.exit_code == 1
    assert complaint in done.stderr


def test_bad_overrides_are_told(tmp_path: Path) -> None:
    done = replay(recording(tmp_path, CALL), "--output", "bufer=full")

    assert done.exit_code == 1
    assert "bufer" in done.stderr
