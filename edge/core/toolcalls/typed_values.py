"""Types for values that a model wrote as bare text between tags: the tool's schema decides.

Where only a string is allowed the text stays byte for byte. Else the types are tried in the order
null, boolean, integer, number, array, object, and a string takes what is left. Text that fits no
allowed type stays text, so that the check against the schema names it: nothing is guessed (``yes``
is no boolean, ``2.5`` no integer). A parameter that the schema does not know is text.
"""

import re
from collections.abc import Mapping
from typing import Any

from edge.core import schema_view
from edge.core.repair import parse_json, unstring

_BLANK = " \t\r\n"
_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}\Z")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")


def typed(
    text: str, schema: Any, root: Mapping[str, Any], *, repair: bool = True
) -> tuple[Any, tuple[str, ...]]:
    """The value that ``text`` stands for, and the repairs that reading it took.

    ``schema`` is the parameter's, None where the tool does not know the parameter; ``root`` is the
    tool's whole schema, for local references.
    """
    if schema is None:
        return text, ()
    wanted = schema_view.types(schema, root)
    if wanted == schema_view.ANY or wanted == {"string"}:
        # A schema without a word on types allows a string, and text is what came.
        return text, ()
    word = text.strip(_BLANK)
    if "null" in wanted and word.lower() == "null":
        return None, ()
    if "boolean" in wanted and word.lower() in ("true", "false"):
        return word.lower() == "true", ()
    if wanted & {"integer", "number"}:
        number = _number(word)
        if number is not None and (isinstance(number, int) or "number" in wanted):
            return number, ()
        if number is not None and "string" not in wanted:
            return number, ()  # 2.5 for an integer: the check against the schema names it
    if wanted & {"array", "object"}:
        found = _container(word, wanted, schema, root, repair)
        if found is not None:
            return found
    return text, ()


def _number(word: str) -> int | float | None:
    if _INTEGER.match(word):
        return int(word)
    if _NUMBER.match(word):
        number = float(word)
        return number if abs(number) != float("inf") else None
    return None


def _container(
    word: str, wanted: frozenset[str], schema: Any, root: Mapping[str, Any], repair: bool
) -> tuple[Any, tuple[str, ...]] | None:
    if word[:1] not in ("[", "{", '"'):
        return None
    parsed = parse_json(word, repair=repair)
    value, repairs = parsed.value, parsed.repairs
    if isinstance(value, str):  # the JSON itself was written as a JSON string
        value, more = unstring(value, schema, root)
        repairs += more
    if isinstance(value, list):
        kind = "array"
    elif isinstance(value, dict):
        kind = "object"
    else:
        return None
    return (value, repairs) if kind in wanted else None
