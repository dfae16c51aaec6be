r"""Reads JSON as models write it, and says what it had to forgive.

The strict reader of the standard library is faster, so this one is only asked where the strict one
refused: to find the one lossless reading, or to name the fault and its place. Forgiven, because one
reading exists and nothing is lost (each has a name that ends up in ``repairs``):

    trailing_comma     [1, 2,]   {"a": 1,}
    missing_comma      [{…} {…}], between whole objects only
    surplus_brace      [{…}}] or {…}}, one in the whole text
    python_literal     single quotes, triple quotes, True, False, None, \' and \x41
    raw_newline        line breaks, tabs and other control characters inside strings
    missing_closer     the outermost closer, where the caller allows it

Not forgiven: NaN and infinities, unescaped inner quotes, repeated keys, anything unfinished, a lone
surrogate. Recursion is bounded by ``MAX_DEPTH``; time is linear.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

MAX_DEPTH = 200
"""Deepest nesting that is read; schema checkers and serializers give up at about 255."""

FaultKind: TypeAlias = Literal[
    "not_json", "unfinished", "duplicate_key", "surrogate", "not_finite", "too_deep"
]

SPACE = re.compile(r"[ \t\r\n\f\v]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
CUT_NUMBER = re.compile(r"(?:\.[0-9]*)?(?:[eE][+-]?)?\Z")
WORD = re.compile(r"[-+]?[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = {
    '"': re.compile(r'[^"\\\x00-\x1f]+'),
    "'": re.compile(r"[^'\\\x00-\x1f]+"),
}
_WORDS: dict[str, tuple[Any, bool]] = {  # word → value, whether it is Python's
    "true": (True, False),
    "false": (False, False),
    "null": (None, False),
    "True": (True, True),
    "False": (False, True),
    "None": (None, True),
}
_NOT_FINITE = frozenset({"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "+Infinity"})
_ESCAPES = {
    '"': '"',
    "\\": "\\",
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_HEX2 = re.compile(r"[0-9a-fA-F]{2}")
_HEX8 = re.compile(r"[0-9a-fA-F]{8}")


@dataclass
class JsonFault(Exception):
    """Why a text has no lossless reading.

    Attributes:
        position: offset of the offending character, or the text's length where it ended too soon.
        path: where in the value, as ``arguments.steps[2]``; empty for the whole.
    """

    kind: FaultKind
    what: str
    position: int
    path: str = ""


class LenientReader:
    """Reads values out of one text, from left to right.

    Attributes:
        position: where the next value or character starts.
        repairs: names of what was forgiven, in order, each once.
    """

    def __init__(self, text: str, position: int = 0, *, outer_closer: bool = False) -> None:
        self.text = text
        self.position = position
        self.repairs: dict[str, None] = {}
        self._outer_closer = outer_closer
        self._path: list[str | int] = []

    def value(self) -> Any:
        """The value at ``position``, which is moved behind it.

        Raises:
            JsonFault: no lossless reading.
        """
        self.skip_space()
        char = self.text[self.position : self.position + 1]
        if char in ("{", "["):
            self.check_depth()
            return self._object() if char == "{" else self._array()
        if char in ('"', "'") and char:
            return self.string()
        if not char:
            raise self.fault("unfinished", "ends where a value is due")
        return self._scalar()

    def skip_space(self) -> str:
        """Skip white space; the next character, or empty at the end."""
        match = SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position
        return self.text[self.position : self.position + 1]

    def forgive(self, name: str) -> None:
        """Note a repair."""
        self.repairs[name] = None

    def fault(self, kind: FaultKind, what: str) -> JsonFault:
        """A fault at the current place."""
        return JsonFault(kind, what, self.position, self.path())

    def check_depth(self) -> None:
        """Before a container is read: whether it is not nested too deeply to be."""
        if len(self._path) >= MAX_DEPTH:
            raise self.fault("too_deep", f"is nested deeper than {MAX_DEPTH} levels")

    def path(self) -> str:
        """Where in the value we are, as ``arguments.steps[2]``."""
        out = ""
        for step in self._path:
            out += f"[{step}]" if isinstance(step, int) else f".{step}" if out else step
        return out

    def enter(self, step: str | int) -> None:
        """Go one level down: later faults name it."""
        self._path.append(step)

    def leave(self) -> None:
        """Go back up."""
        self._path.pop()

    def _object(self) -> dict[str, Any]:
        self.position += 1
        out: dict[str, Any] = {}
        while True:
            char = self.skip_space()
            if char == "}":
                self.position += 1
                return out
            if char not in ('"', "'") or not char:
                kind: FaultKind = "not_json" if char else "unfinished"
                raise self.fault(kind, "has no quoted key where one is due")
            key = self.string()
            if key in out:
                self.enter(key)
                raise self.fault("duplicate_key", f"the key {key!r} is there twice")
            self._expect(":")
            self.enter(key)
            out[key] = self.value()
            self.leave()
            if self._ends("}", out[key]):
                return out

    def _array(self) -> list[Any]:
        self.position += 1
        out: list[Any] = []
        while True:
            if self.skip_space() == "]":
                self.position += 1
                return out
            self.enter(len(out))
            out.append(self.value())
            self.leave()
            if self._ends("]", out[-1]):
                return out

    def _ends(self, closer: str, last: Any) -> bool:
        """What follows an element: a comma (go on), or the container's end."""
        char = self.skip_space()
        if closer == "]" and isinstance(last, dict):
            if char == "}" and "surplus_brace" not in self.repairs:
                self.position += 1
                self.forgive("surplus_brace")
                char = self.skip_space()
            if char == "{":
                self.forgive("missing_comma")
                return False
        if char == closer:
            self.position += 1
            return True
        if char == ",":
            self.position += 1
            if self.skip_space() == closer:
                self.forgive("trailing_comma")
            return False
        if char:
            raise self.fault("not_json", f"has {_shown(char)} where ',' or '{closer}' is due")
        if self._outer_closer and not self._path and isinstance(last, dict | list):
            self.forgive("missing_closer")
            return True
        raise self.fault("unfinished", f"ends where ',' or '{closer}' is due")

    def _expect(self, wanted: str) -> None:
        char = self.skip_space()
        if char != wanted:
            kind: FaultKind = "not_json" if char else "unfinished"
            raise self.fault(kind, f"has no '{wanted}' where one is due")
        self.position += 1

    def _scalar(self) -> Any:
        match = NUMBER.match(self.text, self.position)
        if match:
            return self._number(match)
        word = WORD.match(self.text, self.position)
        if word is None:
            if self.text[self.position :] == "-":
                raise self.fault("unfinished", "ends inside a number")
            raise self.fault("not_json", f"has {_shown(self.text[self.position])} for a value")
        known = _WORDS.get(word.group())
        if known is not None:
            self.position = word.end()
            if known[1]:
                self.forgive("python_literal")
            return known[0]
        if word.group() in _NOT_FINITE:
            raise self.fault("not_finite", f"is {word.group()}, which JSON does not have")
        if word.end() == len(self.text) and any(w.startswith(word.group()) for w in _WORDS):
            raise self.fault("unfinished", "ends inside a word")
        raise self.fault("not_json", "has a bare word for a value")

    def _number(self, match: re.Match[str]) -> int | float:
        end = match.end()
        following = self.text[end : end + 1]
        if following and (following.isalnum() or following in "._+-"):
            cut = CUT_NUMBER.match(self.text, end)
            raise self.fault("unfinished" if cut else "not_json", "has a malformed number")
        if match.group(1) is None and match.group(2) is None:
            try:
                whole = int(match.group())
            except ValueError:  # the interpreter refuses to read thousands of digits
                raise self.fault("not_json", "has a number of too many digits") from None
            self.position = end
            return whole
        number = float(match.group())
        if number in (float("inf"), float("-inf")):
            raise self.fault("not_finite", "is too large a number")
        self.position = end
        return number

    def string(self) -> str:
        """The string at ``position``, in JSON's or Python's quotes."""
        text, start = self.text, self.position
        quote = text[start]
        if text.startswith(quote * 3, start):
            return self._triple(quote)
        if quote == "'":
            self.forgive("python_literal")
        plain, parts = _PLAIN[quote], []
        self.position += 1
        while True:
            match = plain.match(text, self.position)
            if match:
                parts.append(match.group())
                self.position = match.end()
            char = text[self.position : self.position + 1]
            if char == quote:
                self.position += 1
                return self._sound("".join(parts), start)
            if char == "\\":
                parts.append(self._escape(quote))
            elif char:
                self.forgive("raw_newline")
                parts.append(char)
                self.position += 1
            else:
                raise self.fault("unfinished", "ends inside a string")

    def _triple(self, quote: str) -> str:
        start = self.position
        self.position += 3
        parts: list[str] = []
        while True:
            end = self.text.find(quote * 3, self.position)
            if end < 0:
                self.position = len(self.text)
                raise self.fault("unfinished", "ends inside a string")
            slash = self.text.find("\\", self.position, end)
            parts.append(self.text[self.position : end if slash < 0 else slash])
            if slash < 0:
                self.position = end + 3
                self.forgive("python_literal")
                return self._sound("".join(parts), start)
            self.position = slash
            parts.append(self._escape(quote))

    def _escape(self, quote: str) -> str:
        """The character written at a backslash; ``position`` moves behind it."""
        at = self.position
        char = self.text[at + 1 : at + 2]
        if char in _ESCAPES and char:
            self.position = at + 2
            return _ESCAPES[char]
        if char == "u":
            return self._unicode_escape(at)
        if not char:
            self.position = len(self.text)
            raise self.fault("unfinished", "ends inside a string")
        if char == "'":
            self.forgive("python_literal")
            self.position = at + 2
            return "'"
        return self._python_escape(at, char, quote)

    def _unicode_escape(self, at: int) -> str:
        match = _HEX4.match(self.text, at + 2)
        if match is None:
            short = len(self.text) < at + 6
            raise self.fault("unfinished" if short else "not_json", "has a malformed \\u escape")
        self.position = at + 6
        code = int(match.group(), 16)
        if 0xD800 <= code < 0xDC00 and self.text.startswith("\\u", at + 6):
            low = _HEX4.match(self.text, at + 8)
            if low and 0xDC00 <= int(low.group(), 16) < 0xE000:
                self.position = at + 12
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low.group(), 16) - 0xDC00)
        return chr(code)

    def _python_escape(self, at: int, char: str, quote: str) -> str:
        for letter, digits in (("x", _HEX2), ("U", _HEX8)):
            match = digits.match(self.text, at + 2) if char == letter else None
            if match and int(match.group(), 16) < 0x110000:
                self.forgive("python_literal")
                self.position = match.end()
                return chr(int(match.group(), 16))
        if quote == '"':
            cut = at + 10 >= len(self.text) and char in "xU"
            kind: FaultKind = "unfinished" if cut else "not_json"
            raise self.fault(kind, f"has the escape \\{char}, which JSON does not have")
        # Python keeps the backslash of an escape it does not know.
        self.position = at + 2
        return "" if char == "\n" else "\\" + char

    def _sound(self, string: str, start: int) -> str:
        if not string.isascii() and any("\ud800" <= char <= "\udfff" for char in string):
            self.position = start
            raise self.fault("surrogate", "has a lone surrogate in a string")
        return string


def _shown(char: str) -> str:
    return f"'{char}'" if char.isprintable() else f"the character U+{ord(char):04X}"
