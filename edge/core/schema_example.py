"""One value that a JSON Schema allows, made from the schema alone and the same every time.

It covers what tool schemas are made of: types, enum and const, objects with required properties,
arrays with bounds and unique items, numbers with bounds and ``multipleOf``, strings with bounds,
formats and plain patterns, local references, ``allOf``, ``anyOf``, ``oneOf``. What cannot be met
without search (``not``, ``if``, a pattern no sample fits) is passed over, so the value is then only
near. Work is bounded for any schema: by depth, by the number of values, by size.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs

from edge.core.schema_view import resolve

MAX_DEPTH = 24
MAX_VALUES = 2000
MAX_ITEMS = 32
MAX_TEXT = 4096

_ENGINE = jsonschema_rs.FancyRegexOptions(backtrack_limit=20_000, size_limit=200_000)
_SAMPLES = (
    "example",
    "2025-01-31",
    "12:30:00Z",
    "2025-01-31T12:30:00Z",
    "someone@example.com",
    "https://example.com/",
    "example.com",
    "192.0.2.1",
    "2001:db8::1",
    "00000000-0000-4000-8000-000000000000",
    "P1D",
    "/example",
    "*/5 * * * *",
    "#336699",
    "1.0.0",
    "US",
    "USD",
    "en-US",
    "A1",
    "EXAMPLE",
    "12345",
    "+15555550100",
    "1",
    "a",
    "",
)
_FORMATS = {
    "date": "2025-01-31",
    "time": "12:30:00Z",
    "date-time": "2025-01-31T12:30:00Z",
    "duration": "P1D",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "url": "https://example.com/",
    "uri-reference": "/example",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "regex": ".*",
    "json-pointer": "/example",
}
_BY_KEYWORD = {
    "properties": "object",
    "required": "object",
    "additionalProperties": "object",
    "minProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "minItems": "array",
    "minimum": "number",
    "maximum": "number",
    "exclusiveMinimum": "number",
    "exclusiveMaximum": "number",
    "multipleOf": "number",
}


def schema_example(schema: object) -> Any:
    """A value for ``schema`` (a mapping, or True for anything)."""
    return _Maker(schema if isinstance(schema, Mapping) else {}).make(schema, 0, 0)


class _Maker:
    """Makes one value; ``nth`` asks for the nth of several that should differ."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_VALUES

    def make(self, schema: object, depth: int, nth: int) -> Any:
        if depth > MAX_DEPTH or self._left < 0:
            return None
        view = self._whole(schema, depth)
        if "const" in view:
            return view["const"]
        for key in ("enum", "examples"):
            given = view.get(key)
            if isinstance(given, list) and given:
                return given[nth % len(given)]
        if "default" in view and not nth:
            return view["default"]
        return self._of_type(_type(view), view, depth, nth)

    def _of_type(self, kind: str, view: Mapping[str, Any], depth: int, nth: int) -> Any:
        match kind:
            case "object":
                return self._object(view, depth, nth)
            case "array":
                return self._array(view, depth, nth)
            case "integer" | "number":
                return _number(view, nth, whole=kind == "integer")
            case "boolean":
                return nth % 2 == 0
            case "null":
                return None
            case _:
                return _text(view, nth)

    def _whole(self, schema: object, depth: int) -> dict[str, Any]:
        """``schema`` with references followed, ``allOf`` merged and one alternative chosen."""
        self._left -= 1
        view = dict(resolve(schema, self._root))
        parts = list(_list(view.pop("allOf", None)))
        for key in ("anyOf", "oneOf"):
            parts += self._chosen(view.pop(key, None))
        if depth > MAX_DEPTH or self._left < 0:
            return view
        for part in parts:
            _merge(view, self._whole(part, depth + 1))
        return view

    def _chosen(self, alternatives: object) -> list[Any]:
        """The first alternative that is not just null."""
        offered = list(_list(alternatives))
        useful = [a for a in offered if resolve(a, self._root).get("type") != "null"]
        return (useful or offered)[:1]

    def _object(self, view: Mapping[str, Any], depth: int, nth: int) -> dict[str, Any]:
        properties = _mapping(view.get("properties"))
        rest = view.get("additionalProperties", True)
        value: dict[str, Any] = {}
        for name in self._names(view, properties, depth):
            value[name] = self.make(properties.get(name, rest), depth + 1, nth)
        least = _count(view.get("minProperties"), 0)
        for number in range(1, min(least, MAX_ITEMS) - len(value) + 1):
            value[f"key{number}"] = self.make(rest, depth + 1, nth)
        return value

    def _names(
        self, view: Mapping[str, Any], properties: Mapping[str, Any], depth: int
    ) -> Iterator[str]:
        """The required properties; at the top of a schema that requires none, all of them."""
        required = {name for name in _list(view.get("required")) if isinstance(name, str)}
        least = _count(view.get("minProperties"), 0)
        most = _count(view.get("maxProperties"), MAX_VALUES)
        wanted = [name for name in properties if name in required]
        wanted += sorted(required - properties.keys())
        if depth == 0 and not required:
            least = max(least, len(properties))
        optional = (name for name in properties if name not in required)
        for name in optional:
            if len(wanted) >= min(least, most):
                break
            wanted.append(name)
        yield from wanted

    def _array(self, view: Mapping[str, Any], depth: int, nth: int) -> list[Any]:
        first = list(_list(view.get("prefixItems")))
        items = view.get("items", True)
        if isinstance(items, list):  # the form of drafts before 2020-12
            first, items = items, view.get("additionalItems", True)
        most = min(_count(view.get("maxItems"), MAX_ITEMS), MAX_ITEMS)
        least = min(_count(view.get("minItems"), 1 if depth < 3 and items else 0), most)
        size = max(least, min(len(first), most))
        apart = view.get("uniqueItems") is True
        return [
            self.make(
                first[place] if place < len(first) else items,
                depth + 1,
                nth + place if apart else nth,
            )
            for place in range(size)
        ]


def _merge(into: dict[str, Any], part: Mapping[str, Any]) -> None:
    for key, value in part.items():
        held = into.get(key)
        if key == "properties" and isinstance(held, Mapping) and isinstance(value, Mapping):
            into[key] = {**held, **value}
        elif key == "required" and isinstance(held, list) and isinstance(value, list):
            into[key] = held + value
        else:
            into.setdefault(key, value)


def _type(view: Mapping[str, Any]) -> str:
    named = view.get("type")
    if isinstance(named, list):
        named = next((kind for kind in named if kind != "null"), "null")
    if isinstance(named, str):
        return named
    return next((kind for key, kind in _BY_KEYWORD.items() if key in view), "string")


def _number(view: Mapping[str, Any], nth: int, *, whole: bool) -> int | float:
    """The ``nth`` allowed number: up from the lower bound, else up from 1, else down."""
    step = _step(view, whole=whole)
    low, above = _bound(view, "minimum", "exclusiveMinimum", max)
    high, below = _bound(view, "maximum", "exclusiveMaximum", min)
    if low is not None:
        first = math.ceil(low / step)
        found = step * (first + nth + (above and step * first == low))
        if whole or high is None or found < high or (found == high and not below):
            return _tidy(found)
        return (low + high) / 2
    if high is None:
        return _tidy(step * (1 + nth))
    last = math.floor(high / step)
    last -= below and step * last == high
    return _tidy(step * (1 + nth if nth < last else last - nth))


def _step(view: Mapping[str, Any], *, whole: bool) -> int | float:
    step = _finite(view.get("multipleOf"))
    if step is None or step <= 0:
        return 1
    numerator, denominator = step.as_integer_ratio()
    if whole and denominator > 1:  # the smallest whole multiple, where there is a small one
        return numerator if denominator < 1000 else 1
    return step


def _bound(
    view: Mapping[str, Any], key: str, exclusive: str, tighter: Any
) -> tuple[float | int | None, bool]:
    """The bound and whether it is itself forbidden; draft 4 says the latter with a boolean."""
    plain, other = _finite(view.get(key)), _finite(view.get(exclusive))
    if other is None:
        return plain, plain is not None and view.get(exclusive) is True
    if plain is None or tighter(plain, other) == other:
        return other, True
    return plain, False


def _tidy(number: int | float) -> int | float:
    return int(number) if number == int(number) else number


def _text(view: Mapping[str, Any], nth: int) -> str:
    least = min(_count(view.get("minLength"), 0), MAX_TEXT)
    most = _count(view.get("maxLength"), MAX_TEXT)
    pattern = view.get("pattern")
    if isinstance(pattern, str):
        return _sample(pattern, least, most)
    text = _FORMATS.get(str(view.get("format")), "example")
    if nth:
        text += str(nth + 1)
    if len(text) < least:
        text += "x" * (least - len(text))
    if len(text) > most:
        text = str(nth)[:most] if nth else text[:most]
    return text


def _sample(pattern: str, least: int, most: int) -> str:
    """The first sample that fits ``pattern``, by an engine that gives up in bounded time."""
    try:
        judge = jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=_ENGINE)
    except ValueError:
        return _SAMPLES[0]
    fitting = (s for s in _SAMPLES if least <= len(s) <= most and judge.is_valid(s))
    return next(fitting, _SAMPLES[0])


def _finite(value: object) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) else None


def _count(value: object, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return default
    return max(0, int(value))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
