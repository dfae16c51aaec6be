"""JSON as the standard has it (RFC 8259), fast, exact, and with the place of every complaint.

orjson does the work. What it leaves to us:

- it turns integers beyond 64 bits into floats. Runs of that many digits are looked for at C speed,
  and only a text that has one is read again by the standard library, which is exact;
- it reads 1,024 levels but writes 254. What is read must be writable, so a text with brackets
  enough to be deeper is written once, which costs less than counting its levels would;
- it refuses to write lone surrogates and big integers; the standard library writes those.

NaN, Infinity, lone surrogates, bad UTF-8 and a second value behind the first are refused. So is a
client's text with more than a million values: the time to read one goes by their number, and
nothing else runs meanwhile.
"""

import json
import math
import re
from typing import Any

import orjson

from edge.errors import InvalidRequest

MAX_DEPTH = 254
"""Levels of arrays and objects, which is what orjson writes. Real requests have some ten."""

MAX_VALUES = 1_000_000
"""Of a client's text. A full context has some tens of thousands, or as many numbers as tokens."""

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)

# Every digit to "0", "-" to itself, all else to " ": runs of digits can then be found.
_DIGITS = bytes(ord("0") if c in b"0123456789" else c if c == ord("-") else 32 for c in range(256))
_BEYOND_UINT64 = b"0" * 20
_BEYOND_INT64 = b"-" + b"0" * 19


class MalformedJson(ValueError):
    """The text is no JSON; the message ends with the place."""


def parse(data: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises:
        MalformedJson: see the module's docstring.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise MalformedJson(_complaint(data, error)) from None
    if len(data) > 2 * MAX_DEPTH:  # a level takes two brackets
        _check_depth(data, value)
    digits = data.translate(_DIGITS)
    if _BEYOND_UINT64 in digits or _BEYOND_INT64 in digits:
        return _parse_exactly(data)
    return value


def decode(data: bytes, *, what: str) -> Any:
    """The value of a client's JSON text; ``what`` names it in the complaint (``"The body"``).

    Raises:
        InvalidRequest: the text is no JSON, or has more values than ``MAX_VALUES``.
    """
    if _marks(data, 0, len(data)) > MAX_VALUES and _has_too_many_values(data):
        raise InvalidRequest(f"{what} has more than {MAX_VALUES} values.")
    try:
        return parse(data)
    except MalformedJson as error:
        raise InvalidRequest(f"{what} is not valid JSON: {error}.", code="invalid_json") from None


def encode(value: Any) -> bytes:
    """The JSON text of ``value``, in UTF-8, without white space or line ends.

    Total on what a parsed answer can hold: a lone surrogate becomes U+FFFD, two halves of a pair
    become their character, a big integer keeps its digits, NaN and infinities become null.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return _encode_anything(value)


def _complaint(data: bytes, error: orjson.JSONDecodeError) -> str:
    try:
        data.decode()
    except UnicodeDecodeError as fault:
        return f"byte {fault.start} is not UTF-8"
    reason = error.msg.partition(": line ")[0]
    return f"{reason} (line {error.lineno}, column {error.colno})"


def _marks(data: bytes, start: int, end: int) -> int:
    """What begins values, as far as one can tell without reading: text has commas too."""
    return (
        data.count(b",", start, end) + data.count(b"[", start, end) + data.count(b"{", start, end)
    )


def _has_too_many_values(data: bytes) -> bool:
    values = end = 0
    for string in _STRING.finditer(data):
        values += _marks(data, end, string.start())
        if values > MAX_VALUES:
            return True
        end = string.end()
    return values + _marks(data, end, len(data)) > MAX_VALUES


def _check_depth(data: bytes, value: Any) -> None:
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise MalformedJson(f"nested more than {MAX_DEPTH} levels deep") from None


def _parse_exactly(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:  # Python bounds the digits of an integer, since reading them is quadratic
        raise MalformedJson("a number has too many digits") from None


def _encode_anything(value: Any) -> bytes:
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
