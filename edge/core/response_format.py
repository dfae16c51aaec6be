"""Holds a text against ``response_format``: is it the JSON that was demanded?

A code fence around the whole JSON is taken off, and lossless repairs are made as in arguments;
text before or behind the JSON makes it invalid, since no client can tell where the JSON starts.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge.core.contract import ResponseFormat
from edge.core.json_path import below
from edge.core.repair import parse_json, to_json, unstring
from edge.core.schemas import CompiledSchema
from edge.core.verdict import Reason

_FENCE = re.compile(r"\s*```(?:json[c5l]?|JSON)?[ \t]*\n?(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A text that was demanded to be JSON.

    Attributes:
        text: what may leave.
        repairs: names of what was repaired (``fence`` for one that was taken off).
        reasons: why it may not leave; empty where it may.
    """

    text: str
    repairs: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()


def without_fence(text: str) -> str:
    """The inside of a code fence that encloses the whole text, else the text."""
    stripped = text.strip()
    if not stripped.startswith("```") or not stripped.endswith("```"):
        return text
    match = _FENCE.match(stripped)
    return match.group(1) if match else text


def judge_text(
    text: str,
    wanted: ResponseFormat,
    schema: CompiledSchema | None,
    *,
    repair: bool,
    cut: str,
    place: str = "content",
) -> JudgedText:
    """Hold ``text`` against ``wanted``.

    Args:
        text: the answer's text, without reasoning.
        wanted: the demand.
        schema: its compiled schema, None where it has none.
        repair: whether lossless repairs may be made.
        cut: why the provider ended the answer early, in words; empty where it did not.
        place: the text's place in the answer.
    """

    def refused(message: str, at: str = place) -> JudgedText:
        told = f"{message}; the answer was {cut}" if cut else message
        return JudgedText(text, (), (Reason("response_format", told, at),))

    inner = without_fence(text)
    fence = ("fence",) if inner is not text else ()
    if not inner.strip():
        return refused("the answer is empty, where response_format demands JSON")
    parsed = parse_json(inner, repair=repair and not cut)
    if parsed.fault:
        return refused(f"{place} is no JSON as response_format demands: {parsed.fault}")
    if wanted.kind == "json_object" and not isinstance(parsed.value, dict):
        return refused(f"{place} is JSON, but not an object as response_format demands")
    judged = JudgedText(parsed.text, fence + parsed.repairs)
    if schema is None:
        return judged
    return _by_schema(judged, parsed.value, schema, place, repair, refused)


def _by_schema(
    judged: JudgedText,
    value: Any,
    schema: CompiledSchema,
    place: str,
    repair: bool,
    refused: Callable[[str, str], JudgedText],
) -> JudgedText:
    length = len(judged.text)
    faults = schema.faults(value, length)
    if not faults:
        return judged
    may_change = repair and schema.is_walkable(value)
    changed, repairs = unstring(value, schema.schema) if may_change else (value, ())
    if repairs and not schema.faults(changed, length):
        return JudgedText(to_json(changed), judged.repairs + repairs)
    reasons: list[Reason] = []
    for fault in faults:
        at = below(place, fault.path)
        reasons += refused(f"response_format: {fault.told_of(at)}", at).reasons
    return JudgedText(judged.text, (), tuple(reasons))
