"""JSON out of a model's text: read strictly, repaired where nothing is lost, else refused.

    parse_json   text → Parsed: a value, or a fault that names the place
    unstring     value, schema → the value, JSON inside strings decoded where the schema wants
                 an array or an object

Repairs are made only where one reading exists and nothing is lost (``lenient_json`` lists them);
every repair is named, so that it can be counted. A repeated key, NaN, a lone surrogate, an
unfinished value and unescaped inner quotes are faults. Integers of any size keep every digit.

Words that faults always hold, so that a reader of the message knows the kind: ``JSON`` for what is
no JSON, ``incomplete`` for what ends too soon, ``surrogate``, the key for a repeated key.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from edge.core import schema_view
from edge.core.lenient_json import MAX_DEPTH, FaultKind, JsonFault, LenientReader

_INVISIBLE = "\ufeff\u200b\u2060\u200c\u200d"
_BLANK = " \t\r\n\f\v"
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_MAX_UNSTRING = 4


class _Refused(Exception):
    """The strict reader met something that its own library would have let pass."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text holds.

    Attributes:
        value: the JSON value, None where there is a fault.
        text: JSON text of ``value``: the source itself where nothing was repaired, without the
            blanks around it. The source where there is a fault.
        repairs: names of the lossless repairs that were needed.
        fault: why this is no sound JSON, with the place; empty where it is.
        kind: the kind of fault, None where there is none.
    """

    value: Any
    text: str
    repairs: tuple[str, ...] = ()
    fault: str = ""
    kind: FaultKind | None = None

    @property
    def is_unfinished(self) -> bool:
        """Whether the text is sound as far as it goes, but ends too soon."""
        return self.kind == "unfinished"


def parse_json(text: str, *, repair: bool = True, outer_closer: bool = False) -> Parsed:
    """Read one JSON value that is the whole text.

    Args:
        text: what the model wrote, blanks around it allowed.
        repair: whether lossless repairs may be made; without it each would be a fault.
        outer_closer: whether the outermost bracket may be missing at the end (a normal stop,
            behind a whole element that is itself an array or an object).
    """
    try:
        return Parsed(_strict(text), text.strip(_BLANK))
    except (ValueError, RecursionError, _Refused):
        pass
    reader = LenientReader(text, outer_closer=outer_closer)
    try:
        value = _whole(reader)
        if reader.repairs and not repair:
            first = next(iter(reader.repairs))
            raise JsonFault("not_json", f"needs a repair ({first}), which is turned off", 0)
    except JsonFault as fault:
        return Parsed(None, text, (), describe(fault, text), fault.kind)
    except RecursionError:
        deep = JsonFault("too_deep", f"is nested deeper than {MAX_DEPTH} levels", 0)
        return Parsed(None, text, (), describe(deep, text), deep.kind)
    return Parsed(value, to_json(value), tuple(reader.repairs))


def to_json(value: Any) -> str:
    """Compact JSON text of a value, integers of any size in full."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, RecursionError):  # more than 64 bits, or deeper than orjson goes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def describe(fault: JsonFault, text: str) -> str:
    """The fault in words: place in the value, line and column, and no text of the model's."""
    line = text.count("\n", 0, fault.position) + 1
    column = fault.position - (text.rfind("\n", 0, fault.position) + 1) + 1
    where = f"{fault.path} " if fault.path else "it "
    kind = "incomplete JSON" if fault.kind == "unfinished" else "not sound JSON"
    return f"{kind}: {where}{fault.what} (line {line}, column {column})"


def unstring(
    value: Any, schema: Any, root: Mapping[str, Any] | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Decode JSON inside strings where the schema wants an array or object, at any level.

    A string stays one where the schema allows a string, or where it holds no such JSON.

    Returns:
        The value (the same object where nothing changed), and ``("json_in_string",)`` if it did.
    """
    if root is None:
        root = schema if isinstance(schema, Mapping) else {}
    changed = _unstring(value, schema, root, 0)
    return (value, ()) if changed is value else (changed, ("json_in_string",))


def _unstring(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """``value`` itself where nothing in it changes, else a changed copy."""
    if schema is None or depth > MAX_DEPTH:
        return value
    if isinstance(value, str):
        return _decoded(value, schema, root, depth)
    if isinstance(value, list) and value:
        items = [
            _unstring(item, schema_view.item_schema(index, schema, root), root, depth + 1)
            for index, item in enumerate(value)
        ]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else items
    if isinstance(value, dict) and value:
        fields = {
            name: _unstring(item, schema_view.property_schema(name, schema, root), root, depth + 1)
            for name, item in value.items()
        }
        return value if all(fields[name] is value[name] for name in value) else fields
    return value


def _decoded(value: str, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    start = value.lstrip(_BLANK)[:1]
    if start not in ("[", "{") or not start:
        return value
    wanted = schema_view.types(schema, root)
    if "string" in wanted or ("array" if start == "[" else "object") not in wanted:
        return value
    parsed = parse_json(value)
    if parsed.fault:
        return value
    return _unstring(parsed.value, schema, root, depth + 1)


def _strict(text: str) -> Any:
    """The value by RFC 8259, and nothing that would be lost on the way to the client."""
    if text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _Refused
    value = _DECODER.decode(text)
    if "\\u" in text or not text.isascii():
        orjson.loads(text)  # refuses lone surrogates, escaped or raw
    return value


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _NESTING.finditer(text):
        char = match.group()[0]
        depth += (char in "[{") - (char in "]}")
        deepest = max(deepest, depth)
    return deepest


def _whole(reader: LenientReader) -> Any:
    text = reader.text
    while text[reader.position : reader.position + 1] in (*_INVISIBLE, *_BLANK):
        if reader.position >= len(text):
            break
        if text[reader.position] in _INVISIBLE:
            reader.forgive("byte_order_mark")
        reader.position += 1
    value = reader.value()
    if reader.skip_space() == "}" and "surplus_brace" not in reader.repairs:
        reader.position += 1
        reader.forgive("surplus_brace")
    if reader.skip_space():
        raise reader.fault("not_json", "has text behind the value")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise _Refused
    return out


def _refuse(_: str) -> Any:
    raise _Refused


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise _Refused
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
