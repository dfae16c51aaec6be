"""The conformance cases, as the reader of text alone can be judged by them."""

import json
from pathlib import Path
from typing import Any

from edge.core.contract import Contract, Tool, ToolChoice
from edge.core.stream_events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from edge.core.toolcalls.reader import TextReader

CASES_FILE = Path(__file__).parents[2] / "conformance" / "given.jsonl"
CASES: list[dict[str, Any]] = [
    json.loads(line) for line in CASES_FILE.read_text("utf-8").splitlines()
]
Delta = tuple[str, str]  # the field and its text


def is_text_only(case: dict[str, Any]) -> bool:
    """Whether no native call occurs, and there is text to read."""
    deltas = case["upstream"]["deltas"]
    native = any(delta.get("tool_calls") or delta.get("function_call") for delta in deltas)
    return not native and bool(pieces_of(case))


def contract_of(case: dict[str, Any]) -> Contract:
    """The case's request as a contract (tools and tool_choice only)."""
    request = case["request"]
    tools = {
        entry["function"]["name"]: Tool(
            entry["function"]["name"], entry["function"].get("parameters") or {}
        )
        for entry in request.get("tools", ())
    }
    choice = request.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        return Contract(
            tools=tools, tool_choice="named", allowed=frozenset({choice["function"]["name"]})
        )
    words: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}
    return Contract(tools=tools, tool_choice=words[choice])


def pieces_of(case: dict[str, Any]) -> list[Delta]:
    """The text deltas of a case: field and text."""
    out: list[Delta] = []
    for delta in case["upstream"]["deltas"]:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            out.append(("reasoning", reasoning))
        if delta.get("content"):
            out.append(("content", delta["content"]))
    return out


def joined(pieces: list[Delta]) -> list[Delta]:
    """The same text with neighbours of one field made one piece."""
    out: list[Delta] = []
    for field, text in pieces:
        if out and out[-1][0] == field:
            out[-1] = (field, out[-1][1] + text)
        else:
            out.append((field, text))
    return out


def read(
    contract: Contract, pieces: list[Delta], *, truncated: bool = False, live: bool = True
) -> list[StreamEvent]:
    """All events of a text that comes in these pieces."""
    reader = TextReader(contract, live=live)
    events: list[StreamEvent] = []
    for field, text in pieces:
        events += reader.feed(text) if field == "content" else reader.feed_reasoning(text)
    return events + reader.finish(truncated=truncated)


def content_of(events: list[StreamEvent]) -> str:
    """The answer's text."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def reasoning_of(events: list[StreamEvent]) -> str:
    """The reasoning."""
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def calls_of(events: list[StreamEvent]) -> list[ToolCallDelta]:
    """The calls."""
    return [event for event in events if isinstance(event, ToolCallDelta)]


def summary(events: list[StreamEvent]) -> tuple[str, str, list[ToolCallDelta]]:
    """What a cut must not change."""
    return content_of(events), reasoning_of(events), calls_of(events)
