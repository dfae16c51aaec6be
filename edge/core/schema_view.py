"""What a JSON Schema says of a value's type, as far as that can be known without a value.

Only local ``$ref`` (``#/…``) is followed, a bounded number of steps; what cannot be resolved says
nothing, and a schema that says nothing allows every type.
"""

from collections.abc import Mapping
from typing import Any

ANY: frozenset[str] = frozenset(
    {"null", "boolean", "integer", "number", "array", "object", "string"}
)
_MAX_STEPS = 32
_BY_KIND = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string"}


def resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """``schema`` with its local references followed; ``{}`` where it is no usable schema."""
    for _ in range(_MAX_STEPS):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _lookup(reference, root)
    return {}


def branches(schema: Any, root: Mapping[str, Any], depth: int = 0) -> list[Mapping[str, Any]]:
    """The alternatives of a schema, itself first: ``anyOf`` and ``oneOf`` taken apart, bounded."""
    here = resolve(schema, root)
    out = [here]
    if depth < 6:
        for word in ("anyOf", "oneOf", "allOf"):
            options = here.get(word)
            if isinstance(options, list):
                for option in options[:_MAX_STEPS]:
                    out += branches(option, root, depth + 1)
    return out


def types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Names of the JSON types that ``schema`` allows."""
    here = resolve(schema, root)
    allowed = _own_types(here)
    if depth < 6:
        for word in ("anyOf", "oneOf"):
            options = here.get(word)
            if isinstance(options, list) and options:
                each = [types(option, root, depth + 1) for option in options[:_MAX_STEPS]]
                allowed &= frozenset().union(*each)
        parts = here.get("allOf")
        if isinstance(parts, list):
            for part in parts[:_MAX_STEPS]:
                allowed &= types(part, root, depth + 1)
    return allowed


def property_schema(name: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema of property ``name``; None where no branch speaks of it."""
    for branch in branches(schema, root):
        properties = branch.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return properties[name]
    for branch in branches(schema, root):
        rest = branch.get("additionalProperties")
        if isinstance(rest, Mapping):
            return rest
    return None


def item_schema(index: int, schema: Any, root: Mapping[str, Any]) -> Any:
    """The schema of an array's element; None where no branch speaks of it."""
    for branch in branches(schema, root):
        first = branch.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            return first[index]
        if "items" in branch:
            return branch["items"]
    return None


def _own_types(schema: Mapping[str, Any]) -> frozenset[str]:
    """What ``type``, ``const`` and ``enum`` say, branches aside."""
    named = schema.get("type")
    if isinstance(named, str):
        allowed = frozenset({named})
    elif isinstance(named, list):
        allowed = frozenset(word for word in named if isinstance(word, str))
    elif "const" in schema:
        allowed = frozenset({_kind(schema["const"])})
    elif isinstance(schema.get("enum"), list) and schema["enum"]:
        allowed = frozenset(_kind(value) for value in schema["enum"])
    elif isinstance(schema.get("properties"), Mapping):
        allowed = frozenset({"object"})
    else:
        return ANY
    return allowed | {"integer"} if "number" in allowed else allowed


def _kind(value: Any) -> str:
    if isinstance(value, Mapping):
        return "object"
    if isinstance(value, list):
        return "array"
    return _BY_KIND.get(type(value), "string")


def _lookup(reference: str, root: Mapping[str, Any]) -> Any:
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(name)
        elif isinstance(found, list) and name.isdigit() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found
