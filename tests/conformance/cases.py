"""The conformance cases: what a client must get for what a model server sent.

Each case in ``given.jsonl`` was made from a public report, which it names. How answers are compared
is the corpus's own rule: calls exactly (numbers by value), text in negatives byte for byte and
elsewhere by its words, since white space around calls is layout.
"""

import json
import re
from pathlib import Path
from typing import Any

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in Path(__file__).with_name("given.jsonl").read_text("utf-8").splitlines()
]
IDS = [case["id"] for case in CASES]

MARKUP_TAKEN_OFF = {"harmony-010", "command-r-002"}
"""Negatives in which channel or block markup is no text of the answer."""

_THINK_OPEN = re.compile(r"<(?:\w+:)?think(?:ing)?>|\[THINK\]|<\|START_THINKING\|>|<\|channel")
_THINK_CLOSE = re.compile(
    r"</(?:\w+:)?think(?:ing)?>|\[/THINK\]|<\|END_THINKING\|>|\[BEGIN FINAL RESPONSE\]"
)


def request_of(case: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The client's request."""
    asked = [{"role": "user", "content": "go"}]
    return {**case["request"], "model": case["id"], "messages": asked, **fields}


def chunks_of(case: dict[str, Any], cut: int = 0) -> list[dict[str, Any]]:
    """The provider's chunks; with ``cut`` every text is cut anew into pieces of that length."""
    deltas = case["upstream"]["deltas"]
    if cut:
        deltas = [piece for delta in deltas for piece in _cut(delta, cut)]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": case["upstream"]["finish_reason"]}
    return [{"choices": [choice]} for choice in [*choices, end]]


def _cut(delta: dict[str, Any], length: int) -> list[dict[str, Any]]:
    texts = [name for name in ("reasoning_content", "reasoning", "content") if delta.get(name)]
    rest = {name: value for name, value in delta.items() if name not in texts}
    pieces: list[dict[str, Any]] = [rest] if rest else []
    for name in texts:
        text = delta[name]
        pieces += [{name: text[at : at + length]} for at in range(0, len(text), length)]
    return pieces


def closes_unopened_reasoning(case: dict[str, Any]) -> bool:
    """Whether the text ends a reasoning block it never began: then live text cannot be told."""
    text = "".join(delta.get("content") or "" for delta in case["upstream"]["deltas"])
    close, opening = _THINK_CLOSE.search(text), _THINK_OPEN.search(text)
    return bool(close and (not opening or opening.start() > close.start()))


def squeeze(text: str | None) -> str:
    return " ".join((text or "").split())


def assert_answer(case: dict[str, Any], got: dict[str, Any], *, live: bool = False) -> None:
    """``got`` has content, reasoning, calls (name and parsed arguments) and finish."""
    want = case["expect"]
    assert got["calls"] == [(call["name"], call["arguments"]) for call in want["tool_calls"]]
    assert got["finish"] == want["finish_reason"]
    if live and closes_unopened_reasoning(case):
        sides = [f"{want['reasoning_content'] or ''} {want['content'] or ''}"]
        sides.append(f"{got['reasoning'] or ''} {got['content'] or ''}")
        assert squeeze(sides[1]) == squeeze(sides[0])
        return
    if case["kind"] == "negative" and case["id"] not in MARKUP_TAKEN_OFF:
        assert (got["content"] or "") == (want["content"] or "")
    else:
        assert squeeze(got["content"]) == squeeze(want["content"])
    assert squeeze(got["reasoning"]) == squeeze(want["reasoning_content"])


def assert_names_the_fault(case: dict[str, Any], message: str) -> None:
    word = case["expect"].get("error_contains") or ""
    assert word.lower() in message.lower()
