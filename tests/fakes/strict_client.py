"""A client that rebuilds an answer from its stream and forgives nothing.

It joins repeated strings as the official SDK does, so that a role, id or name sent twice shows,
and asserts the order of the chunks.
"""

import json
from typing import Any

CONSTANT = ("id", "object", "created", "model")


def payloads(stream: bytes) -> list[str]:
    """The data of every event; comments are dropped."""
    found = []
    for block in stream.decode().split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        assert all(line.startswith("data: ") for line in lines), block
        if lines:
            found.append("\n".join(line.removeprefix("data: ") for line in lines))
    return found


def fold(stream: bytes) -> dict[str, Any]:
    """The ``chat.completion`` that the chunks of a whole stream fold to."""
    *chunks, done = payloads(stream)
    assert done == "[DONE]"
    return fold_chunks([json.loads(chunk) for chunk in chunks])


def fold_chunks(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """As :func:`fold`, of parsed chunks."""
    first = chunks[0]
    body: dict[str, Any] = {name: first[name] for name in CONSTANT} | {"choices": {}}
    usage_seen = False
    for chunk in chunks:
        assert "error" not in chunk, chunk
        assert not usage_seen, "a chunk follows the usage chunk"
        assert {name: chunk[name] for name in CONSTANT} == {name: first[name] for name in CONSTANT}
        for name in set(chunk) - {*CONSTANT, "choices", "usage"}:
            body[name] = chunk[name]
        if chunk.get("usage"):
            assert chunk["choices"] == []
            body["usage"], usage_seen = chunk["usage"], True
        for entry in chunk["choices"]:
            _take(body["choices"].setdefault(entry["index"], _new(entry["index"])), entry)
    body["object"] = "chat.completion"
    body["choices"] = [_closed(choice) for _, choice in sorted(body["choices"].items())]
    return body


def _new(index: int) -> dict[str, Any]:
    return {"index": index, "message": {}, "finish_reason": None, "order": 0}


def _take(choice: dict[str, Any], entry: dict[str, Any]) -> None:
    message, delta = choice["message"], entry["delta"]
    assert choice["finish_reason"] is None, "a delta follows the finish chunk"
    assert ("role" in delta) == (not message), "the role comes first, and once"
    for name, value in delta.items():
        _order(choice, name, value)
        if name == "tool_calls":
            _take_calls(message.setdefault("tool_calls", []), value)
        else:
            message[name] = _joined(message.get(name), value)
    if entry["finish_reason"] is not None:
        assert delta == {}, "the finish chunk is empty"
        choice["finish_reason"] = entry["finish_reason"]
    for name in set(entry) - {"index", "delta", "finish_reason"}:
        choice[name] = _joined(choice.get(name), entry[name])


def _joined(before: Any, more: Any) -> Any:
    """Strings and lists grow, objects merge, anything else replaces what was there."""
    if isinstance(before, dict) and isinstance(more, dict):
        return before | {name: _joined(before.get(name), value) for name, value in more.items()}
    if isinstance(before, str) and isinstance(more, str):
        return before + more
    if isinstance(before, list) and isinstance(more, list):
        return before + more
    return more


def _order(choice: dict[str, Any], name: str, value: Any) -> None:
    """Calls come last; text may be live, so reasoning and content may alternate."""
    place = 2 if name == "tool_calls" else 1
    assert place >= choice["order"] or name not in ("content", "reasoning_content")
    if value:
        choice["order"] = max(place, choice["order"])


def _take_calls(calls: list[dict[str, Any]], entries: list[dict[str, Any]]) -> None:
    for entry in entries:
        assert entry["index"] == len(calls), "indexes count up, one whole entry per call"
        call = {name: value for name, value in entry.items() if name != "index"}
        assert call["id"]
        assert call["id"] not in {other["id"] for other in calls}
        assert call["type"] == "function"
        assert isinstance(call["function"]["arguments"], str)
        calls.append(call)


def _closed(choice: dict[str, Any]) -> dict[str, Any]:
    assert choice["finish_reason"] in ("stop", "length", "tool_calls", "content_filter")
    message = choice["message"]
    assert message["role"] == "assistant"
    if "tool_calls" in message:
        message["content"] = message["content"] or None
    del choice["order"]
    return choice
