"""The last attempt, constrained: calls asked for through ``response_format`` instead of ``tools``.

llama.cpp, vLLM, SGLang and Ollama decode under a JSON Schema, so that even a model that was never
trained to call tools must answer with one of

    {"name": "<an offered tool>", "arguments": {…}}       a call
    {"answer": "<text>"}                                  words, where the client allows them

``constrained_request`` takes the tools out of a body, describes them in the system message (the
server no longer does), and puts the schema in; ``ConstrainedReader`` turns the answer back.

The schema is a looser one than the tools': what engines are known to refuse, or to turn into huge
grammars (patterns, formats, lengths), is left out, since the answer is judged by the whole schema
anyway. Local references go on pointing at the same place: a tool that has any is put whole under
``$defs`` and its references are lengthened by that path.

``with_strict_tools`` is the milder form of prevention: it asks the server for constrained arguments
by ``strict: true``.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.contract import Contract, Tool
from edge.core.repair import parse_json, to_json
from edge.core.response_format import without_fence
from edge.core.schema_survey import DATA_KEYWORDS, NAMED_SCHEMAS, REFERENCES
from edge.core.stream_events import ToolCallDelta

ORIGIN = "constrained"
SCHEMA_NAME = "answer"

# Assertions that grammar engines refuse or cannot afford, and annotations that cost tokens.
_LEFT_OUT = frozenset(
    {
        "$schema", "$id", "id", "$comment", "title", "description", "default", "examples",
        "example", "format", "pattern", "minLength", "maxLength", "minItems", "maxItems",
        "uniqueItems", "contains", "minContains", "maxContains", "minProperties", "maxProperties",
        "multipleOf", "propertyNames", "patternProperties", "dependentRequired", "dependentSchemas",
        "dependencies", "if", "then", "else", "not", "unevaluatedItems", "unevaluatedProperties",
        "contentEncoding", "contentMediaType", "contentSchema", "readOnly", "writeOnly",
        "deprecated", "strict",
    }
)  # fmt: skip
# What makes an engine refuse the whole request, when it is asked to keep to a schema with it.
_NOT_STRICT = frozenset(
    {
        "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas",
        "dependencies", "if", "then", "else", "not", "contains", "uniqueItems", "minProperties",
        "maxProperties", "unevaluatedItems", "unevaluatedProperties", "prefixItems", "oneOf",
        "$dynamicRef", "$recursiveRef",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ConstrainedReader:
    """Reads the answer of a constrained attempt.

    Attributes:
        answers: whether words may come in place of a call.
    """

    answers: bool = True

    def read(self, text: str, choice: int = 0) -> ToolCallDelta | str:
        """One answer: a call, or the text that is the answer.

        A text that begins like JSON and is neither is a call with a fault; any other text is taken
        as it is (a server may have ignored ``response_format``).
        """
        inner = without_fence(text).strip()
        if not inner.startswith("{"):
            return text
        parsed = parse_json(inner)
        value = parsed.value
        if parsed.fault or not isinstance(value, dict):
            return ToolCallDelta("", inner, origin=ORIGIN, fault=parsed.fault, choice=choice)
        name = value.get("name")
        if isinstance(name, str) and "arguments" in value:
            arguments = value["arguments"]
            said = arguments if isinstance(arguments, str) else to_json(arguments)
            return ToolCallDelta(name, said, origin=ORIGIN, repairs=parsed.repairs, choice=choice)
        if self.answers and value.keys() == {"answer"}:
            answer = value["answer"]
            return answer if isinstance(answer, str) else to_json(answer)
        return text

    def __call__(self, output: CollectedOutput) -> CollectedOutput:
        """The output with every choice's text read; choices that hold calls stay as they are."""
        return replace(output, choices=tuple(map(self._choice, output.choices)))

    def _choice(self, choice: CollectedChoice) -> CollectedChoice:
        if choice.calls or not choice.content.strip():
            return choice
        read = self.read(choice.content, choice.index)
        if isinstance(read, str):
            return replace(choice, content=read)
        return replace(choice, content="", calls=(read,))


def constrained_request(
    body: Mapping[str, Any], contract: Contract
) -> tuple[dict[str, Any], ConstrainedReader]:
    """The body that asks for the same answer under a JSON Schema, and what reads it back.

    Args:
        body: a provider's body; it is not changed.
        contract: what the answer must keep. Without callable tools the body stays as it is.
    """
    tools = _callable(contract)
    if not tools:
        return dict(body), ConstrainedReader(answers=False)
    answers = contract.tool_choice == "auto"
    schema = _answer_schema(tools, contract, answers=answers)
    result = {key: value for key, value in body.items() if key not in _TOOL_KEYS}
    result["messages"] = _instructed(body.get("messages") or [], _instructions(tools, answers))
    result["response_format"] = {
        "type": "json_schema",
        "json_schema": {"name": SCHEMA_NAME, "schema": schema},
    }
    return result, ConstrainedReader(answers)


def with_strict_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The tools, with ``strict: true`` on the functions whose schema engines can keep to.

    A client's own ``strict`` stays. Functions with keywords that engines refuse stay as they are,
    since a refusal would cost the whole request.
    """
    return [_strict(tool) for tool in tools]


_TOOL_KEYS = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"}
)


def _callable(contract: Contract) -> list[Tool]:
    if contract.tool_choice == "none":
        return []
    allowed = contract.allowed or contract.tools.keys()
    return [tool for name, tool in contract.tools.items() if name in allowed]


def _answer_schema(tools: Sequence[Tool], contract: Contract, *, answers: bool) -> dict[str, Any]:
    shared: dict[str, Any] = {}
    forms = [
        _object(
            name={"type": "string", "enum": [tool.name]},
            arguments=_placed(tool.parameters, f"tool_{index}", shared, of_object=True),
        )
        for index, tool in enumerate(tools)
    ]
    if answers:
        wanted = contract.response_format
        words: dict[str, Any] = {"type": "string"}
        if wanted is not None:
            words = _placed(wanted.schema or {}, "answer", shared, of_object=not wanted.schema)
        forms.append(_object(answer=words))
    schema: dict[str, Any] = {"anyOf": forms} if len(forms) > 1 else forms[0]
    return {**schema, "$defs": shared} if shared else schema


def _object(**properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _placed(
    schema: Mapping[str, Any], name: str, shared: dict[str, Any], *, of_object: bool
) -> dict[str, Any]:
    """The schema as it may stand inside another: itself, or a reference to it in ``shared``."""
    moved = _loosened(schema, f"#/$defs/{name}")
    if of_object and not moved.keys() & {"type", "$ref", "anyOf", "oneOf", "allOf"}:
        moved["type"] = "object"
    if not _has_references(moved):
        moved.pop("$defs", None)
        moved.pop("definitions", None)
        return moved
    shared[name] = moved
    return {"$ref": f"#/$defs/{name}"}


def _loosened(schema: Mapping[str, Any], base: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _LEFT_OUT:
            continue
        if key in REFERENCES and isinstance(value, str):
            local = value == "#" or value.startswith("#/")
            result[key] = base + value[1:] if local else value
        elif key in DATA_KEYWORDS:
            result[key] = value
        elif key in NAMED_SCHEMAS and isinstance(value, Mapping):
            result[key] = {name: _loosened_value(item, base) for name, item in value.items()}
        else:
            result[key] = _loosened_value(value, base)
    return result


def _loosened_value(value: Any, base: str) -> Any:
    if isinstance(value, Mapping):
        return _loosened(value, base)
    if isinstance(value, list):
        return [_loosened_value(item, base) for item in value]
    return value


def _keywords(schema: Any) -> set[str]:
    """Every keyword used anywhere in a schema; names of properties are none."""
    found: set[str] = set()
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack += value
        elif isinstance(value, Mapping):
            for key, item in value.items():
                found.add(key)
                if key in NAMED_SCHEMAS and isinstance(item, Mapping):
                    stack += item.values()
                elif key not in DATA_KEYWORDS:
                    stack.append(item)
    return found


def _has_references(schema: Any) -> bool:
    return not _keywords(schema).isdisjoint(REFERENCES)


def _strict(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping) or function.get("strict") is not None:
        return dict(tool)
    if _keywords(function.get("parameters")) & _NOT_STRICT:
        return dict(tool)
    return {**tool, "function": {**function, "strict": True}}


def _instructions(tools: Sequence[Tool], answers: bool) -> str:
    lines = [
        "Answer with one JSON object and nothing else.",
        'To call a tool: {"name": "<tool>", "arguments": {<its parameters>}}',
    ]
    if answers:
        lines.append('To answer without a tool: {"answer": "<your answer>"}')
    lines.append("The tools, each with the JSON Schema of its parameters:")
    for tool in tools:
        about = f": {tool.description}" if tool.description else ""
        parameters = json.dumps(dict(tool.parameters), ensure_ascii=False)
        lines.append(f"- {tool.name}{about}\n  {parameters}")
    return "\n".join(lines)


def _instructed(messages: Sequence[Mapping[str, Any]], text: str) -> list[Mapping[str, Any]]:
    """The messages with ``text`` at the end of the system message, or as one."""
    if not messages or messages[0].get("role") not in ("system", "developer"):
        return [{"role": "system", "content": text}, *messages]
    first = messages[0]
    content = first.get("content")
    joined: Any
    if isinstance(content, list):
        joined = [*content, {"type": "text", "text": text}]
    else:
        joined = f"{content}\n\n{text}" if content else text
    return [{**first, "content": joined}, *messages[1:]]
