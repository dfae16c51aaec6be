"""Compiles the JSON Schemas of a request, once per distinct tool list, and judges values by them.

``survey`` has bounded the schema; here an engine is chosen for its patterns and jsonschema-rs
compiles it:

- Drafts: the one that ``$schema`` names; else 2020-12, and where that refuses, draft 7 and 4, since
  clients send old forms (``items`` as a list, boolean ``exclusiveMinimum``) without saying so.
- Patterns run on an engine that ``schema_patterns`` chose. A text that is too long for it is judged
  without patterns, by a second, looser validator.
- The verdict comes from ``is_valid``, which remembers recursive references; collecting errors does
  not, and can take exponential time. So reasons are found by ``schema_faults``, after the fact.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

import jsonschema_rs

from edge.core.contract import Contract, ResponseFormat, Tool
from edge.core.json_path import below
from edge.core.schema_faults import Fault, find_faults
from edge.core.schema_patterns import Engine, PatternBudget
from edge.core.schema_survey import DATA_KEYWORDS, NAMED_SCHEMAS, known_draft, survey
from edge.errors import InvalidRequest
from edge.wire import strict_json

MAX_TOOLS_BYTES = 2 * 1024 * 1024
CACHED_LISTS = 256

# Schema nodes times values that one judgement may cost.
_MAX_WORK = 50_000_000
_MAX_WALK = 2_000_000

_BY_DRAFT: Mapping[str, type[jsonschema_rs.Validator]] = MappingProxyType(
    {
        "draft/2020-12": jsonschema_rs.Draft202012Validator,
        "draft/2019-09": jsonschema_rs.Draft201909Validator,
        "draft-07": jsonschema_rs.Draft7Validator,
        "draft-06": jsonschema_rs.Draft6Validator,
        "draft-04": jsonschema_rs.Draft4Validator,
    }
)
_UNNAMED = (
    jsonschema_rs.Draft202012Validator,
    jsonschema_rs.Draft7Validator,
    jsonschema_rs.Draft4Validator,
)


class CompiledSchema:
    """One schema, ready to judge values."""

    __slots__ = ("_engine", "_loose", "_pattern_chars", "_ways", "_whole", "schema")

    def __init__(
        self,
        schema: dict[str, Any] | bool,
        *,
        ways: int,
        whole: jsonschema_rs.Validator,
        loose: jsonschema_rs.Validator,
        engine: Engine,
        pattern_chars: int,
    ) -> None:
        self.schema = schema
        self._ways = ways
        self._whole = whole
        self._loose = loose
        self._engine = engine
        self._pattern_chars = pattern_chars

    def faults(self, value: Any, text_length: int) -> tuple[Fault, ...]:
        """Why ``value`` does not fit; empty where it does.

        Args:
            value: a parsed JSON value.
            text_length: characters of its JSON text, an upper bound of what judging costs.
        """
        # A text has fewer values than characters; they are only counted where that says too little.
        if self._ways * text_length > _MAX_WORK and self._ways * _count(value) > _MAX_WORK:
            return (Fault((), "is too large to be held against its JSON Schema"),)
        with_patterns = text_length <= self._pattern_chars
        validator = self._whole if with_patterns else self._loose
        try:
            if validator.is_valid(value):
                return ()
        except ValueError:
            return (Fault((), "is nested too deeply to be held against its JSON Schema"),)
        engine = self._engine if with_patterns else None
        return find_faults(self.schema, value, type(validator), engine)

    def is_walkable(self, value: Any) -> bool:
        """Whether walking the schema beside ``value`` in Python ends soon."""
        return self._ways * _count(value) <= _MAX_WALK


@dataclass(frozen=True, slots=True)
class CompiledContract:
    """A contract with its schemas compiled.

    Attributes:
        tools: the compiled parameters of every offered tool, by name.
        response: the compiled schema of ``response_format``, where it has one.
    """

    contract: Contract
    tools: Mapping[str, CompiledSchema]
    response: CompiledSchema | None = None


class SchemaCache:
    """Remembers the compiled schemas of the most recent distinct tool lists.

    Agents send the same list with every turn, so a lookup costs one serialisation of the list.
    """

    def __init__(self, size: int = CACHED_LISTS) -> None:
        self._size = size
        self._lists: OrderedDict[bytes, Mapping[str, CompiledSchema]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lists)

    def compile(self, contract: Contract) -> CompiledContract:
        """``contract`` with its schemas compiled; see :func:`compile_contract`."""
        tools = self._of(contract.tools)
        return CompiledContract(contract, tools, self._response(contract.response_format))

    def _of(self, tools: Mapping[str, Tool]) -> Mapping[str, CompiledSchema]:
        key = _key([(tool.name, dict(tool.parameters)) for tool in tools.values()], "tools")
        found = self._lists.get(key)
        if found is None:
            budget = PatternBudget()
            found = MappingProxyType(
                {
                    tool.name: compile_schema(
                        tool.parameters, f"tools[{at}].function.parameters", budget
                    )
                    for at, tool in enumerate(tools.values())
                }
            )
            self._keep(key, found)
        else:
            self._lists.move_to_end(key)
        return found

    def _response(self, wanted: ResponseFormat | None) -> CompiledSchema | None:
        if wanted is None or wanted.schema is None:
            return None
        param = "response_format.json_schema.schema"
        key = _key(dict(wanted.schema), param)
        found = self._lists.get(key)
        if found is None:
            found = {"": compile_schema(wanted.schema, param)}
            self._keep(key, found)
        return found[""]

    def _keep(self, key: bytes, compiled: Mapping[str, CompiledSchema]) -> None:
        self._lists[key] = compiled
        while len(self._lists) > self._size:
            self._lists.popitem(last=False)


_CACHE = SchemaCache()


def compile_contract(contract: Contract) -> CompiledContract:
    """Compile what ``contract`` offers and demands, or take it from the cache.

    Raises:
        InvalidRequest: a schema is invalid, too large, too deep, refers to something outside
            itself or carries a pattern that no engine takes; ``param`` names the place, as
            ``tools[3].function.parameters.properties.a``.
    """
    return _CACHE.compile(contract)


def compile_schema(
    schema: object, param: str, budget: PatternBudget | None = None
) -> CompiledSchema:
    """Compile one schema, uncached; ``param`` is its place in the request.

    ``budget`` is what the patterns of the whole request may cost.

    Raises:
        InvalidRequest: as :func:`compile_contract`.
    """
    plain = dict(schema) if isinstance(schema, Mapping) else schema
    seen = survey(plain, param)
    engine, pattern_chars = (budget or PatternBudget()).engine(seen.patterns, param)
    if seen.patterns:
        loose = _compile(_without_patterns(seen.schema), engine, param)
        whole = loose if pattern_chars < 0 else _compile(seen.schema, engine, param)
    else:
        whole = loose = _compile(seen.schema, engine, param)
    return CompiledSchema(
        seen.schema,
        ways=seen.ways,
        whole=whole,
        loose=loose,
        engine=engine,
        pattern_chars=pattern_chars,
    )


def _key(value: object, param: str) -> bytes:
    try:
        text = strict_json.encode(value)
    except RecursionError:
        raise InvalidRequest("the JSON Schemas are nested too deeply", param=param) from None
    if len(text) > MAX_TOOLS_BYTES:
        raise InvalidRequest(
            f"the JSON Schemas are larger than {MAX_TOOLS_BYTES} bytes together", param=param
        )
    return blake2b(text, digest_size=24).digest()


def _compile(schema: dict[str, Any] | bool, engine: Engine, param: str) -> jsonschema_rs.Validator:
    draft = known_draft(schema.get("$schema")) if isinstance(schema, dict) else ""
    classes = (_BY_DRAFT[draft],) if draft else _UNNAMED
    first: ValueError | None = None
    for cls in classes:
        try:
            return cls(schema, validate_formats=False, pattern_options=engine, offline=True)
        except ValueError as error:
            first = first or error
    raise _refusal(first, param)


def _refusal(error: ValueError | None, param: str) -> InvalidRequest:
    if not isinstance(error, jsonschema_rs.ValidationError):
        return InvalidRequest(f"the JSON Schema cannot be compiled: {error}", param=param)
    message = error.message if len(error.message) <= 200 else f"{error.message[:200]}…"
    return InvalidRequest(
        f"not a valid JSON Schema: {message}", param=below(param, error.instance_path)
    )


def _without_patterns(schema: Any) -> Any:
    """The schema with no pattern asserted.

    Where ``patternProperties`` go, so does what is said about the members they do not match.
    """
    if not isinstance(schema, dict):
        return [_without_patterns(item) for item in schema] if isinstance(schema, list) else schema
    dropped = {"pattern", "patternProperties"}
    if "patternProperties" in schema:
        dropped |= {"additionalProperties", "unevaluatedProperties"}
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in dropped:
            continue
        if key in DATA_KEYWORDS:
            result[key] = value
        elif key in NAMED_SCHEMAS and isinstance(value, dict):
            result[key] = {name: _without_patterns(item) for name, item in value.items()}
        else:
            result[key] = _without_patterns(value)
    return result


def _count(value: Any) -> int:
    """How many values a JSON value holds."""
    count = 0
    stack = [value]
    while stack:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            count += len(item)
            stack += item.values()
        elif isinstance(item, list):
            stack += item
    return count
