"""Looks a client's JSON Schema over before anything is compiled from it: nothing may hang later.

A schema comes from outside and is applied to what a model wrote, so both its compiling and its
judging must be bounded:

- **size and depth** are counted first, without recursion;
- **references** may only point into the schema itself (``#…``): nothing is ever fetched, and since
  embedded ``$id``s are taken out, a pointer always means the one document;
- **expansion**: references that are shared, but not recursive, are judged once for every way that
  leads to them, so a chain of definitions that each name the next one twice would double with
  every link. The number of ways is counted and bounded. (Recursive references are remembered by
  the validator and cost one look.) A schema that applies itself to the same value is refused;
- **patterns** are collected, for the caller to choose a regular-expression engine.

What is not an assertion in any model server is taken out: ``format`` is not asserted anyway,
``contentEncoding`` and ``contentMediaType`` are dropped, and so is a ``$schema`` that names no
known draft.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from edge.core.json_path import child
from edge.errors import InvalidRequest

MAX_DEPTH = 100
MAX_NODES = 60_000
MAX_WAYS = 100_000
MAX_CHAIN = 300
MAX_PATTERN_CHARS = 2_000

# Values of these are data, not schemas, whatever they look like.
DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples", "example", "required", "type"})
# Values of these are schemas by name.
NAMED_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
# Schemas under these are applied to the same value as the schema they stand in.
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_DROPPED = frozenset({"contentEncoding", "contentMediaType", "contentSchema"})
_DRAFTS = ("draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12")


@dataclass(frozen=True, slots=True)
class Survey:
    """A schema that is safe to compile.

    Attributes:
        schema: the schema without what is not asserted.
        ways: how many schema nodes one value may be held against, an upper bound.
        patterns: its regular expressions, ``patternProperties`` included, each once.
    """

    schema: dict[str, Any] | bool
    ways: int
    patterns: tuple[str, ...]


def survey(schema: object, param: str) -> Survey:
    """Look ``schema`` over; ``param`` is its place in the request.

    Raises:
        InvalidRequest: it is no schema at all, too large, too deep, refers to something outside
            itself, or would have to be applied too often.
    """
    if isinstance(schema, bool):
        return Survey(schema, 1, ())
    if not isinstance(schema, dict):
        raise InvalidRequest("a JSON Schema must be an object", param=param)
    nodes = _bounded_size(schema, param)
    cleaned = _cleaned(schema, _own_id(schema))
    if not known_draft(schema.get("$schema")):
        cleaned.pop("$schema", None)
    patterns, has_references = _check(cleaned, param)
    if not has_references:
        return Survey(cleaned, nodes, patterns)
    _refuse_loops(cleaned, param)
    return Survey(cleaned, _Ways(cleaned, param).of(cleaned), patterns)


def known_draft(uri: object) -> str:
    """The part of a ``$schema`` that names a draft we know, or nothing."""
    if not isinstance(uri, str):
        return ""
    return next((draft for draft in _DRAFTS if f"json-schema.org/{draft}/schema" in uri), "")


class References:
    """Finds what the references of one cleaned schema point at."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._anchors: dict[str, dict[str, Any]] | None = None

    def resolve(self, reference: str) -> Any:
        """What a local reference (``#``, ``#/a/b``, ``#anchor``) points at, or None."""
        pointer = reference[1:]
        if not pointer:
            return self._root
        if not pointer.startswith("/"):
            if self._anchors is None:
                self._anchors = _anchors(self._root)
            return self._anchors.get(pointer)
        found: Any = self._root
        for token in map(_unescape, pointer[1:].split("/")):
            if isinstance(found, dict):
                found = found.get(token)
            elif isinstance(found, list) and token.isdecimal() and int(token[:9]) < len(found):
                found = found[int(token)]
            else:
                return None
        return found

    def targets(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """What the references that stand directly in ``schema`` point at."""
        for keyword in REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                yield self.resolve(reference)


def _bounded_size(schema: Mapping[str, Any], param: str) -> int:
    """How many values the schema holds, within the bounds of size and depth."""
    nodes = 0
    stack: list[tuple[Any, int]] = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise InvalidRequest(
                f"the JSON Schema is nested more than {MAX_DEPTH} levels deep", param=param
            )
        if nodes + len(stack) > MAX_NODES:
            raise InvalidRequest(
                f"the JSON Schema is too large (more than {MAX_NODES} values)", param=param
            )
        if isinstance(value, dict):
            stack += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            stack += [(item, depth + 1) for item in value]
    return nodes


def _own_id(schema: Mapping[str, Any]) -> str:
    own = schema.get("$id") or schema.get("id")
    return own.rstrip("#") if isinstance(own, str) else ""


def _cleaned(schema: Mapping[str, Any], own_id: str) -> dict[str, Any]:
    """A copy without ``$id``s and what is not asserted; references to its own id made local."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _DROPPED or (key in {"$id", "id"} and isinstance(value, str)):
            continue
        if key in REFERENCES and isinstance(value, str):
            local = value.removeprefix(own_id) if own_id and value.startswith(own_id) else value
            result[key] = local or "#"
        elif key in DATA_KEYWORDS:
            result[key] = value
        elif key in NAMED_SCHEMAS and isinstance(value, dict):
            result[key] = {name: _cleaned_value(item, own_id) for name, item in value.items()}
        else:
            result[key] = _cleaned_value(value, own_id)
    return result


def _cleaned_value(value: Any, own_id: str) -> Any:
    if isinstance(value, dict):
        return _cleaned(value, own_id)
    if isinstance(value, list):
        return [_cleaned_value(item, own_id) for item in value]
    return value


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema directly below one, as its relative place and itself.

    Unknown keywords count as schemas, since a reference may point into them.
    """
    for key, value in schema.items():
        if key in DATA_KEYWORDS:
            continue
        if isinstance(value, dict):
            if key in NAMED_SCHEMAS:
                for name, item in value.items():
                    if isinstance(item, dict):
                        yield child(key, name), item
            else:
                yield key, value
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield f"{key}[{index}]", item


def _check(cleaned: dict[str, Any], param: str) -> tuple[tuple[str, ...], bool]:
    """Refuse references that lead outside; return the patterns, and whether any refer."""
    has_references = False
    patterns: dict[str, None] = {}
    stack = [(param, cleaned)]
    while stack:
        place, schema = stack.pop()
        for keyword in REFERENCES:
            target = schema.get(keyword)
            if not isinstance(target, str):
                continue
            has_references = True
            if not target.startswith("#"):
                raise InvalidRequest(
                    f"the JSON Schema refers to {target[:80]!r}; only references into the schema "
                    "itself (#…) are followed",
                    param=f"{place}.{keyword}",
                )
        for pattern in _patterns(schema):
            if len(pattern) > MAX_PATTERN_CHARS:
                raise InvalidRequest(
                    f"a pattern is longer than {MAX_PATTERN_CHARS} characters", param=place
                )
            patterns[pattern] = None
        stack += ((f"{place}.{below}", item) for below, item in subschemas(schema))
    return tuple(patterns), has_references


def _patterns(schema: Mapping[str, Any]) -> Iterator[str]:
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        yield pattern
    by_pattern = schema.get("patternProperties")
    if isinstance(by_pattern, dict):
        yield from by_pattern


class _Ways:
    """Counts how many schema nodes lie below a node when shared references are written out."""

    def __init__(self, root: dict[str, Any], param: str) -> None:
        self._references = References(root)
        self._param = param
        self._known: dict[int, int] = {}

    def of(self, schema: dict[str, Any], depth: int = 0) -> int:
        """The count below ``schema``; a reference back to what is being counted costs one."""
        known = self._known.get(id(schema))
        if known is not None:
            return known
        if depth > MAX_CHAIN:
            raise InvalidRequest(
                "the JSON Schema's references lead on for too many steps", param=self._param
            )
        self._known[id(schema)] = 1
        ways = 1
        for place, item in subschemas(schema):
            if not place.startswith(("$defs.", "definitions.")):
                ways += self.of(item, depth + 1)
        for target in self._references.targets(schema):
            if isinstance(target, dict):
                ways += self.of(target, depth + 1)
        if ways > MAX_WAYS:
            raise InvalidRequest(
                "the JSON Schema multiplies through its references until it is too large",
                param=self._param,
            )
        self._known[id(schema)] = ways
        return ways


def _refuse_loops(root: dict[str, Any], param: str) -> None:
    """Refuse a schema that leads back to itself without stepping into the value."""
    references = References(root)
    done: set[int] = set()
    entered: set[int] = set()
    stack = [(schema, False) for schema in _all(root)]
    while stack:
        schema, leaving = stack.pop()
        here = id(schema)
        if leaving:
            entered.discard(here)
            done.add(here)
        elif here not in done:
            entered.add(here)
            stack.append((schema, True))
            for below in _applied(schema, references):
                if id(below) in entered:
                    raise InvalidRequest(
                        "the JSON Schema refers to itself without end", param=param
                    )
                stack.append((below, False))


def _applied(schema: dict[str, Any], references: References) -> Iterator[dict[str, Any]]:
    """The schemas that ``schema`` applies to the very value it is applied to."""
    for keyword in _IN_PLACE:
        value = schema.get(keyword)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, dict):
                yield item
    for keyword in ("dependentSchemas", "dependencies"):
        value = schema.get(keyword)
        if isinstance(value, dict):
            yield from (item for item in value.values() if isinstance(item, dict))
    yield from (target for target in references.targets(schema) if isinstance(target, dict))


def _all(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    stack = [root]
    while stack:
        schema = stack.pop()
        yield schema
        stack += (item for _, item in subschemas(schema))


def _anchors(root: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for schema in _all(root):
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                found.setdefault(name, schema)
    return found


def _unescape(token: str) -> str:
    return unquote(token).replace("~1", "/").replace("~0", "~")
