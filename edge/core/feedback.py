"""Tells the model what was wrong with its answer, as two messages behind the conversation.

The failed answer comes back as text of the assistant, its calls written out in words, and the
reasons as a user message. A malformed call never goes into the history as a call: several model
servers answer such a history with an error for the rest of the conversation. Both messages are
bounded, since a long failed answer would only crowd the conversation out.
"""

from collections.abc import Sequence
from typing import Any

from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.stream_events import ToolCallDelta
from edge.core.verdict import Reason

MAX_TEXT = 4_000
MAX_ARGUMENTS = 2_000
MAX_CALLS = 8
_NOTHING = "(no answer)"
_AGAIN = {
    "truncated": "It was cut off before its end. Answer again, and make it shorter.",
    "incomplete": "It stopped in the middle. Answer again, to the end.",
    "response_format": "Answer again with the demanded JSON alone, no text around it.",
    "empty": "Answer again, with text or with a tool call.",
    "xml_tool": "Answer again, with every tool's tags opened, filled and closed as described.",
}
_AGAIN_WITH_CALLS = "Answer again. Keep to the offered tools and to their parameters' JSON Schemas."


def retry_messages(output: CollectedOutput, reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """The messages to put behind the conversation when the model is asked again.

    Args:
        output: the answer that failed.
        reasons: what is wrong with it, at least one.

    Returns:
        An assistant message and a user message, so that roles go on alternating.
    """
    said = _written_out(_blamed(output, reasons))
    return [
        {"role": "assistant", "content": said or _NOTHING},
        {"role": "user", "content": _complaint(reasons)},
    ]


def _blamed(output: CollectedOutput, reasons: Sequence[Reason]) -> CollectedChoice | None:
    """The choice that the first reason speaks of."""
    place = reasons[0].param or "" if reasons else ""
    for choice in output.choices:
        if choice.index and place.startswith(f"choices[{choice.index}]."):
            return choice
    return output.choices[0] if output.choices else None


def _written_out(choice: CollectedChoice | None) -> str:
    if choice is None:
        return ""
    parts = [_middle_out(choice.content.strip(), MAX_TEXT)]
    parts += [_in_words(call) for call in choice.calls[:MAX_CALLS]]
    left_out = len(choice.calls) - MAX_CALLS
    if left_out > 0:
        parts.append(f"({left_out} more calls)")
    return "\n\n".join(part for part in parts if part)


def _in_words(call: ToolCallDelta) -> str:
    """A call as plain text that no reader takes for a call."""
    name = _middle_out(call.name, 100) or "a tool without a name"
    arguments = _middle_out(call.arguments.strip(), MAX_ARGUMENTS)
    return f"I called {name} with these arguments: {arguments or '(none)'}"


def _complaint(reasons: Sequence[Reason]) -> str:
    lines = ["That answer cannot be used:", *(f"- {reason.message}" for reason in reasons)]
    category = reasons[0].category if reasons else ""
    lines.append(_AGAIN.get(category, _AGAIN_WITH_CALLS))
    return "\n".join(lines)


def _middle_out(text: str, limit: int) -> str:
    """The text, or its head and tail where it is longer than ``limit``."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]} … ({len(text) - limit} characters left out) … {text[head - limit :]}"
