"""Is an answer what the request obliged it to be? The one judge of tool calls and demanded texts.

``judge`` holds every choice of a collected answer against the compiled contract:

1. calls: forbidden or demanded (``tool_choice``, ``parallel_tool_calls``), named after an offered
   tool, arguments one JSON object that fits the tool's schema. Arguments are repaired where nothing
   is lost (``repair``); JSON inside strings is only decoded where the schema refuses the string.
2. text where no call came: ``response_format``, the completion tool, or simply not empty.
3. ``strict``: no text beside calls.

What the provider cut short (``length``, ``content_filter``) is never repaired: the last call of a
cut answer that does not stand by itself is *truncated*.

One bad call makes the whole answer invalid, since half a set of calls cannot be retried. Every
reason names the tool and the place, in at most a few hundred characters, for the client and for
the model that is asked again. Judging never raises on what a model wrote.
"""

from dataclasses import dataclass, replace
from typing import Any

from edge.core import response_format, xml_completion
from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.contract import Contract
from edge.core.json_path import below
from edge.core.leaked_markers import REPAIR as LEAKED_MARKER
from edge.core.leaked_markers import without_leaked_markers
from edge.core.near_match import did_you_mean, shown
from edge.core.output_policy import OutputPolicy
from edge.core.repair import Parsed, parse_json, to_json, unstring
from edge.core.schemas import CompiledContract, CompiledSchema
from edge.core.stream_events import ToolCallDelta
from edge.core.verdict import Invalid, Reason, Valid, Verdict

MAX_REASONS = 8
_MAX_FAULT = 300
_NO_ARGUMENTS = "empty_arguments"
_UNWRAPPED = "json_in_string"


def judge(output: CollectedOutput, compiled: CompiledContract, policy: OutputPolicy) -> Verdict:
    """The verdict on an answer.

    Returns:
        ``Valid`` with canonical arguments (the model's own JSON text where nothing was repaired),
        repairs named; or ``Invalid`` with at most ``MAX_REASONS`` reasons and the output as it was.
    """
    judged = [_Choice(choice, compiled, policy).judge() for choice in output.choices]
    reasons = [reason for choice in judged for reason in choice.reasons]
    if reasons:
        return Invalid(tuple(reasons[:MAX_REASONS]), output)
    choices = tuple(choice.result for choice in judged)
    repairs = tuple(name for choice in judged for name in choice.repairs)
    return Valid(replace(output, choices=choices), repairs)


def holds_text(compiled: CompiledContract) -> bool:
    """Whether text must not be shown before the whole answer is judged.

    So it is where the text itself is what may be wrong: a demanded shape, a demanded call.
    """
    contract = compiled.contract
    return (
        contract.response_format is not None
        or bool(contract.xml_completion_tool)
        or contract.tool_choice in ("required", "named")
        or (contract.strict and bool(contract.tools))
    )


@dataclass(slots=True)
class _Judged:
    """One choice as it may leave, or the reasons why it may not."""

    result: CollectedChoice
    reasons: list[Reason]
    repairs: tuple[str, ...] = ()


class _Choice:
    """Judges one choice."""

    def __init__(
        self, choice: CollectedChoice, compiled: CompiledContract, policy: OutputPolicy
    ) -> None:
        self._choice = choice
        self._compiled = compiled
        self._contract = compiled.contract
        self._policy = policy
        self._place = f"choices[{choice.index}]." if choice.index else ""
        self._cut = {
            "length": "cut by the length limit",
            "content_filter": "cut by the content filter",
        }.get(choice.finish or "", "")
        self._repairs: tuple[str, ...] = ()

    def judge(self) -> _Judged:
        choice = self._choice
        if not choice.calls:
            choice = self._bare_arguments() or choice
        if not choice.calls:
            return self._judge_text()
        reasons = self._forbidden(choice)
        if reasons and self._contract.tool_choice == "none":
            return _Judged(choice, reasons)
        calls: list[ToolCallDelta] = []
        last = len(choice.calls) - 1
        for index, call in enumerate(choice.calls):
            result = self._call(call, index, last=index == last)
            if isinstance(result, ToolCallDelta):
                calls.append(result)
            else:
                reasons += result
        return _Judged(replace(choice, calls=tuple(calls)), reasons, self._repairs)

    # What may be called at all.

    def _forbidden(self, choice: CollectedChoice) -> list[Reason]:
        contract, calls = self._contract, choice.calls
        reasons: list[Reason] = []
        place = f"{self._place}tool_calls"
        if contract.tool_choice == "none":
            called = shown(calls[0].name) if calls[0].name else "a tool"
            message = f"tool_choice is none, yet {called} was called"
            return [Reason("tool_choice", message, place)]
        if contract.allowed:
            for index, call in enumerate(calls):
                if call.name in contract.tools and call.name not in contract.allowed:
                    message = f"tool_choice does not allow {shown(call.name)}, only {self._due()}"
                    reasons.append(Reason("tool_choice", message, f"{place}[{index}]"))
        if not contract.parallel and len(calls) > 1:
            message = f"parallel_tool_calls is false, yet {len(calls)} tools were called"
            reasons.append(Reason("parallel", message, place))
        if contract.strict and choice.content.strip():
            message = "strict: the answer holds text beside its tool calls"
            reasons.append(Reason("strict", message, f"{self._place}content"))
        return reasons

    def _due(self) -> str:
        """The tools that may be called, in words, a few of them."""
        names = sorted(self._contract.allowed or self._contract.tools)
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        return ", ".join(shown(name) for name in names[:5]) + more

    # One call.

    def _call(self, call: ToolCallDelta, index: int, *, last: bool) -> ToolCallDelta | list[Reason]:
        place = f"{self._place}tool_calls[{index}]"
        cut = self._cut if last else ""
        if call.fault:
            return [self._faulty(call, place, cut)]
        unknown = self._unknown(call, place)
        if unknown:
            return [unknown]
        parsed = self._arguments(call, repair=self._policy.repair and not cut)
        at = f"{place}.arguments"
        if parsed.fault:
            return [self._unreadable(call, parsed, at, cut)]
        if not isinstance(parsed.value, dict):
            message = f"{shown(call.name)}: {at} must be a JSON object, not {_kind(parsed.value)}"
            return [Reason("not_json", message, at)]
        return self._by_schema(call, parsed, at, cut)

    def _faulty(self, call: ToolCallDelta, place: str, cut: str) -> Reason:
        """The reader's own complaint, put into a category."""
        fault = _bounded(call.fault)
        named = not call.name or call.name in fault
        told = f"{place}: {fault}" if named else f"{shown(call.name)}: {place}: {fault}"
        if cut:
            ending = "" if cut in fault else f"; it was {cut}"
            return Reason("truncated", f"{told}{ending}", place)
        incomplete = "incomplete" in call.fault.lower()
        return Reason("incomplete" if incomplete else "not_json", told, place)

    def _unknown(self, call: ToolCallDelta, place: str) -> Reason | None:
        tools = self._contract.tools
        if call.name in tools:
            return None
        at = f"{place}.name"
        if not call.name.strip():
            return Reason("unknown_tool", f"{place} has no name", at)
        hint = did_you_mean(call.name[:200], tools) if tools else "; no tools are offered"
        return Reason("unknown_tool", f"no tool {shown(call.name)} is offered{hint}", at)

    def _arguments(self, call: ToolCallDelta, *, repair: bool) -> Parsed:
        """The arguments read; nothing at all is the empty object, a string of JSON its content."""
        text = call.arguments
        if not text.strip():
            return Parsed({}, "{}", (_NO_ARGUMENTS,))
        parsed = parse_json(text, repair=repair, outer_closer=repair and call.origin == "native")
        if parsed.fault:
            return parsed
        if repair and call.origin == "native":
            freed = without_leaked_markers(parsed.value, parsed.text)
            if freed is not parsed.value:
                parsed = Parsed(freed, to_json(freed), (*parsed.repairs, LEAKED_MARKER))
        if parsed.value is None:
            return Parsed({}, "{}", (*parsed.repairs, _NO_ARGUMENTS))
        if repair and isinstance(parsed.value, str):
            inner = parse_json(parsed.value)
            if isinstance(inner.value, dict) and not inner.fault:
                repairs = (*parsed.repairs, _UNWRAPPED, *inner.repairs)
                return Parsed(inner.value, inner.text, repairs)
        return parsed

    def _unreadable(self, call: ToolCallDelta, parsed: Parsed, at: str, cut: str) -> Reason:
        name, fault = shown(call.name), _bounded(parsed.fault)
        if cut:
            return Reason("truncated", f"{name}: {at} were {cut}: {fault}", at)
        if parsed.is_unfinished:
            return Reason("incomplete", f"{name}: {at}: {fault}", at)
        return Reason("not_json", f"{name}: {at}: {fault}", at)

    def _by_schema(
        self, call: ToolCallDelta, parsed: Parsed, at: str, cut: str
    ) -> ToolCallDelta | list[Reason]:
        schema = self._compiled.tools[call.name]
        length = len(parsed.text)
        faults = schema.faults(parsed.value, length)
        value, text, repairs = parsed.value, parsed.text, parsed.repairs
        if faults and self._policy.repair and schema.is_walkable(parsed.value):
            value, more = unstring(parsed.value, schema.schema)
            if more:
                faults = schema.faults(value, length)
                text, repairs = to_json(value), repairs + more
        if not faults:
            return _settled(call, text, repairs)
        ending = f" (the answer was {cut})" if cut else ""
        reasons = []
        for fault in faults:
            where = below(at, fault.path)
            message = f"{shown(call.name)}: {fault.told_of(where)}{ending}"
            reasons.append(Reason("schema", message, where))
        return reasons

    # Text where no call came.

    def _bare_arguments(self) -> CollectedChoice | None:
        """The call whose arguments alone are the text, where one certain tool was demanded."""
        contract = self._contract
        due = contract.allowed or contract.tools.keys()
        if contract.tool_choice not in ("named", "required") or len(due) != 1 or self._cut:
            return None
        (name,) = due
        schema = self._compiled.tools.get(name)
        text = response_format.without_fence(self._choice.content)
        if schema is None or not text.lstrip().startswith("{") or not self._policy.recover:
            return None
        parsed = parse_json(text, repair=self._policy.repair)
        if not isinstance(parsed.value, dict) or schema.faults(parsed.value, len(text)):
            return None
        call = ToolCallDelta(
            name,
            parsed.text,
            origin="bare_arguments",
            repairs=parsed.repairs,
            choice=self._choice.index,
        )
        return replace(self._choice, content="", calls=(call,))

    def _judge_text(self) -> _Judged:
        choice, contract = self._choice, self._contract
        if contract.tool_choice in ("required", "named"):
            which = "a tool" if contract.tool_choice == "required" else self._due()
            ending = f"; it was {self._cut}" if self._cut else ""
            message = f"tool_choice demands a call of {which}, but the answer calls none{ending}"
            return _Judged(choice, [Reason("tool_choice", message, f"{self._place}tool_calls")])
        if self._refused_by_model():
            return _Judged(choice, [])
        if contract.response_format is not None:
            return self._demanded_json(contract)
        if not choice.content.strip():
            return _Judged(choice, self._empty())
        tool = contract.xml_completion_tool
        return self._completion(tool) if tool else _Judged(choice, [])

    def _refused_by_model(self) -> bool:
        """Whether the model or the provider declined, which is an answer of its own."""
        choice = self._choice
        return bool(choice.delta_extras.get("refusal")) or choice.finish == "content_filter"

    def _empty(self) -> list[Reason]:
        """Nothing at all is no answer, unless the client's own limit or an extra explains it.

        Where nothing was demanded, a model may also simply have nothing to say (``stop``).
        """
        choice = self._choice
        if choice.finish == "length" or choice.delta_extras:
            return []
        if self._contract.demands_nothing and choice.finish == "stop":
            return []
        return [Reason("empty", "the answer is empty: neither text nor a tool call", None)]

    def _demanded_json(self, contract: Contract) -> _Judged:
        choice = self._choice
        assert contract.response_format is not None  # noqa: S101 (the caller asked)
        judged = response_format.judge_text(
            choice.content,
            contract.response_format,
            self._compiled.response,
            repair=self._policy.repair,
            cut=self._cut,
            place=f"{self._place}content",
        )
        return _Judged(replace(choice, content=judged.text), list(judged.reasons), judged.repairs)

    def _completion(self, tool: str) -> _Judged:
        choice = self._choice
        schema = self._compiled.tools.get(tool)
        if schema is not None:
            return _Judged(self._native_completion(tool, schema), [])
        done = xml_completion.complete(choice.content, tool, self._contract.xml_tools)
        if not done.complaint:
            return _Judged(replace(choice, content=done.text), [])
        place = f"{self._place}content"
        if done.shape == "unfinished" and self._cut:
            message = f"the XML tool was {self._cut}: {done.complaint}"
            return _Judged(choice, [Reason("truncated", message, place)])
        return _Judged(choice, [Reason("xml_tool", f"broken XML tool: {done.complaint}", place)])

    def _native_completion(self, tool: str, schema: CompiledSchema) -> CollectedChoice:
        """The text as a call of the completion tool, where that tool is offered as a function."""
        choice = self._choice
        arguments = {"result": choice.content}
        if schema.faults(arguments, len(choice.content)):
            return choice
        call = ToolCallDelta(tool, to_json(arguments), origin="completion", choice=choice.index)
        return replace(choice, content="", calls=(call,))


def _settled(call: ToolCallDelta, text: str, repairs: tuple[str, ...]) -> ToolCallDelta:
    """The call with its canonical arguments; itself where nothing changes."""
    if text == call.arguments and not repairs:
        return call
    return replace(call, arguments=text, repairs=call.repairs + repairs)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "an array"
    return "a string" if isinstance(value, str) else "a bare value"


def _bounded(text: str) -> str:
    return text if len(text) <= _MAX_FAULT else f"{text[:_MAX_FAULT]}…"
