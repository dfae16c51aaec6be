"""Finds out why a value does not fit its JSON Schema, in words and with the place.

The verdict is already known; this only explains it. The library's own error lists grow
exponentially with nested alternatives, so the schema is walked here, next to the value, and each
pair of the two is looked at once. What a single node asserts by itself (type, enum, bounds,
required…) is asked of the library, whose words are used; of ``anyOf`` and ``oneOf`` the branch
that comes nearest is explained.

The walk is bounded: at most ``MAX_FAULTS`` faults, ``_MAX_LOOKS`` pairs. Where it finds nothing
(``unevaluatedProperties``, say) a general fault without a place stands in.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jsonschema_rs

from edge.core.schema_patterns import Engine
from edge.core.schema_survey import References

MAX_FAULTS = 6
_MAX_LOOKS = 4_000
_MAX_MESSAGE = 200
_MAX_SHOWN = 60

Path: TypeAlias = tuple[str | int, ...]

# What a node asserts without looking into other schemas.
_OWN = frozenset(
    {
        "type", "enum", "const", "required", "minimum", "maximum", "exclusiveMinimum",
        "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems",
        "maxItems", "uniqueItems", "minProperties", "maxProperties", "dependentRequired",
    }
)  # fmt: skip
# Our own words go on from the place; the library's name the value once more.
_VERBS = ("is ", "does ", "holds ", "fits ")
# Faults of these say that a branch was not meant at all.
_TELLING = frozenset({"type", "const", "enum"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One way in which a value breaks its schema.

    Attributes:
        path: from the value's root to what is wrong (``("steps", 0, "state")``).
        message: what is wrong with it, without the place; at most about 200 characters.
        keyword: the schema keyword that is broken, empty where none is known.
    """

    path: Path
    message: str
    keyword: str = ""

    def told_of(self, place: str) -> str:
        """The fault of what stands at ``place``, as a sentence without a full stop."""
        return f"{place}{' ' if self.message.startswith(_VERBS) else ': '}{self.message}"


def find_faults(
    schema: dict[str, Any] | bool,
    value: Any,
    draft: type[jsonschema_rs.Validator],
    engine: Engine | None,
) -> tuple[Fault, ...]:
    """Why ``value``, which breaks ``schema``, breaks it; at least one fault.

    Args:
        schema: the cleaned schema.
        value: the value.
        draft: the class of what judged it.
        engine: what its patterns ran on; None where they were left out.
    """
    if isinstance(schema, bool):
        return (Fault((), "is not allowed"),)
    found = _Walk(schema, draft, engine).faults(schema, value, ())
    return tuple(found) or (Fault((), "does not fit its JSON Schema"),)


class _Walk:
    """One explanation."""

    def __init__(
        self, root: dict[str, Any], draft: type[jsonschema_rs.Validator], engine: Engine | None
    ) -> None:
        self._references = References(root)
        self._draft = draft
        self._engine = engine
        self._looks = 0
        self._known: dict[tuple[int, int], list[Fault]] = {}

    def faults(self, schema: Any, value: Any, path: Path) -> list[Fault]:
        """The faults of ``value`` by ``schema``, with paths from the root; empty where it fits."""
        if schema is False:
            return [Fault(path, "is not allowed")]
        if not isinstance(schema, dict):
            return []
        # Both trees stay alive during the walk, so that their ids stand for them.
        key = (id(schema), id(value))
        known = self._known.get(key)
        if known is None:
            self._looks += 1
            self._known[key] = []  # a schema that leads back to itself says nothing more
            known = [] if self._looks > _MAX_LOOKS else self._look(schema, value)
            self._known[key] = known
        return [Fault(path + fault.path, fault.message, fault.keyword) for fault in known]

    def _look(self, schema: dict[str, Any], value: Any) -> list[Fault]:
        found = list(self._own(schema, value))
        for target in self._references.targets(schema):
            found += self.faults(target, value, ())
        found += self._combined(schema, value)
        if isinstance(value, dict):
            found += self._members(schema, value)
        elif isinstance(value, list):
            found += self._items(schema, value)
        return found[:MAX_FAULTS]

    def _own(self, schema: dict[str, Any], value: Any) -> Iterator[Fault]:
        own = {keyword: schema[keyword] for keyword in _OWN & schema.keys()}
        if self._engine is None:
            own.pop("pattern", None)
        if not own:
            return
        try:
            validator = self._draft(
                own, validate_formats=False, mask=shown(value), pattern_options=self._engine
            )
            if validator.is_valid(value):
                return
            for error in validator.iter_errors(value):
                yield _fault_of(error)
        except ValueError:
            return

    def _combined(self, schema: dict[str, Any], value: Any) -> Iterator[Fault]:
        for branch in _list(schema.get("allOf")):
            yield from self.faults(branch, value, ())
        for keyword in ("anyOf", "oneOf"):
            branches = _list(schema.get(keyword))
            if branches:
                yield from self._alternatives(keyword, branches, value)
        if "not" in schema and not self.faults(schema["not"], value, ()):
            yield Fault((), "is what the schema excludes", "not")
        if "if" in schema:
            which = "else" if self.faults(schema["if"], value, ()) else "then"
            yield from self.faults(schema.get(which), value, ())

    def _alternatives(self, keyword: str, branches: list[Any], value: Any) -> Iterator[Fault]:
        each = [self.faults(branch, value, ()) for branch in branches]
        fitting = sum(not faults for faults in each)
        if fitting == 1 or (fitting and keyword == "anyOf"):
            return
        if fitting:
            yield Fault((), f"fits {fitting} alternatives, where one is due", keyword)
            return
        nearest = min(each, key=_distance)
        if _distance(nearest)[0]:
            kinds = _kinds(branches)
            if kinds:
                yield Fault((), f"{shown(value)} is none of the allowed types: {kinds}", keyword)
                return
        yield from nearest

    def _members(self, schema: dict[str, Any], value: dict[str, Any]) -> Iterator[Fault]:
        properties = _dict(schema.get("properties"))
        by_pattern = _dict(schema.get("patternProperties"))
        rest = schema.get("additionalProperties")
        if by_pattern and self._engine is None:
            by_pattern, rest = {}, None
        for name, item in value.items():
            if "propertyNames" in schema and self.faults(schema["propertyNames"], name, ()):
                yield Fault((name,), "is not an allowed name", "propertyNames")
            named = [properties[name]] if name in properties else []
            named += [sub for pattern, sub in by_pattern.items() if self._matches(pattern, name)]
            for sub in named:
                yield from self.faults(sub, item, (name,))
            if not named and rest is False:
                yield Fault((name,), "is not a property that the schema allows", "additional")
            elif not named:
                yield from self.faults(rest, item, (name,))
        for name, sub in _dict(schema.get("dependentSchemas")).items():
            if name in value:
                yield from self.faults(sub, value, ())

    def _matches(self, pattern: str, name: str) -> bool:
        return not list(self._own({"pattern": pattern}, name))

    def _items(self, schema: dict[str, Any], value: list[Any]) -> Iterator[Fault]:
        first = _list(schema.get("prefixItems"))
        rest = schema.get("items")
        if isinstance(rest, list):  # the form before 2020-12
            first, rest = rest, schema.get("additionalItems")
        for index, item in enumerate(value):
            yield from self.faults(first[index] if index < len(first) else rest, item, (index,))
        if "contains" in schema and all(
            self.faults(schema["contains"], item, ()) for item in value
        ):
            yield Fault((), "holds no item of the kind that is due", "contains")


def _fault_of(error: jsonschema_rs.ValidationError) -> Fault:
    keyword = error.kind.name
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return Fault((error.kind.property,), "is required, but missing", keyword)
    return Fault((), _short(error.message), keyword)


def shown(value: Any) -> str:
    """A value as a message shows it: its JSON text, cut after some 60 characters."""
    if isinstance(value, dict | list):
        return "the object" if isinstance(value, dict) else "the array"
    if isinstance(value, str) and len(value) > _MAX_SHOWN:
        return json.dumps(value[:_MAX_SHOWN], ensure_ascii=False)[:-1] + '…"'
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _short(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else f"{message[: _MAX_MESSAGE - 1]}…"


def _distance(faults: list[Fault]) -> tuple[int, int, int]:
    """How far a value is from a branch: of another kind, told apart by a constant, faults."""
    another = any(not fault.path and fault.keyword in _TELLING for fault in faults)
    apart = sum(fault.keyword in {"const", "enum"} for fault in faults)
    return (int(another), apart, len(faults))


def _kinds(branches: list[Any]) -> str:
    """The types that alternatives allow, in words; empty where some say none."""
    kinds: dict[str, None] = {}
    for branch in branches:
        kind = branch.get("type") if isinstance(branch, Mapping) else None
        if not isinstance(kind, str | list):
            return ""
        kinds |= dict.fromkeys([kind] if isinstance(kind, str) else map(str, kind))
    return ", ".join(kinds)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
