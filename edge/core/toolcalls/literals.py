"""Reads call syntax: Python's ``NAME(K=V, …)`` and Gemma's ``NAME{K:V, …}``.

Values are read as data, never evaluated. Python's may be written as JSON would have them (true,
null); tuples become arrays. Gemma's strings stand between delimiters and have no escapes.
"""

import re
from typing import Any

from edge.core.lenient_json import SPACE, FaultKind, JsonFault, LenientReader

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_GEMMA_KEY = re.compile(r"[^\s:={}\[\](),<>\"']+")
_GEMMA_WORD = re.compile(r"[^\s,\]})<>]+")


class PythonReader(LenientReader):
    """Reads calls with keyword arguments out of one text."""

    def call(self) -> tuple[str, dict[str, Any]]:
        """The call at ``position``: name and arguments.

        Raises:
            JsonFault: it is no such call; the path names the argument.
        """
        name = _NAME.match(self.text, self.position)
        if name is None:
            raise self.fault("not_json", "has no name where a call is due")
        self.position = name.end()
        self._expect("(")
        return name.group(), self._arguments()

    def _arguments(self) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while True:
            char = self.skip_space()
            if char == ")":
                self.position += 1
                return out
            key = _KEY.match(self.text, self.position)
            if key is None or SPACE_EQUALS.match(self.text, key.end()) is None:
                raise self._refusal("has an argument without a name")
            self.position = key.end()
            self._expect("=")
            self.enter(key.group())
            if key.group() in out:
                raise self.fault("duplicate_key", f"the argument {key.group()!r} is there twice")
            out[key.group()] = self.value()
            self.leave()
            char = self.skip_space()
            if char == ",":
                self.position += 1
            elif char != ")":
                raise self._refusal("has no ',' or ')' behind an argument")

    def value(self) -> Any:
        """A literal: JSON's or Python's."""
        if self.skip_space() == "(":
            return self._tuple()
        if self.text[self.position : self.position + 1] == "+":
            self.position += 1
        return super().value()

    def _tuple(self) -> list[Any]:
        self.check_depth()
        self.position += 1
        out: list[Any] = []
        while True:
            if self.skip_space() == ")":
                self.position += 1
                return out
            self.enter(len(out))
            out.append(self.value())
            self.leave()
            char = self.skip_space()
            if char == ",":
                self.position += 1
            elif char != ")":
                raise self._refusal("has no ',' or ')' behind an element")

    def _refusal(self, what: str) -> JsonFault:
        rest = self.text[self.position :].strip()
        kind: FaultKind = "not_json" if rest else "unfinished"
        return self.fault(kind, what)


SPACE_EQUALS = re.compile(SPACE.pattern + "=(?!=)")


class GemmaReader(LenientReader):
    """Reads ``{K:V, …}`` with strings between delimiters; brackets may be round, ``:`` be ``=``."""

    def __init__(self, text: str, delimiter: str) -> None:
        super().__init__(text)
        self._delimiter = delimiter

    def arguments(self) -> dict[str, Any]:
        """The whole text as one object.

        Raises:
            JsonFault: it is none; the path names the argument.
        """
        if self.skip_space() not in ("{", "("):
            raise self.fault("not_json", "has no '{' where its arguments start")
        value = self._fields()
        if self.skip_space():
            raise self.fault("not_json", "has text behind its arguments")
        return value

    def value(self) -> Any:
        """A value of this syntax."""
        char = self.skip_space()
        if self.text.startswith(self._delimiter, self.position):
            return self._delimited()
        if char == "{":
            return self._fields()
        if char == "[":
            return self._items()
        if char in ('"', "'") and char:
            return self.string()
        if not char:
            raise self.fault("unfinished", "ends where a value is due")
        return self._word()

    def _delimited(self) -> str:
        start = self.position + len(self._delimiter)
        end = self.text.find(self._delimiter, start)
        if end < 0:
            raise self.fault("unfinished", "has a string that is never closed")
        self.position = end + len(self._delimiter)
        return self.text[start:end]

    def _fields(self) -> dict[str, Any]:
        self.check_depth()
        closer = "}" if self.text[self.position] == "{" else ")"
        self.position += 1
        out: dict[str, Any] = {}
        while True:
            if self.skip_space() == closer:
                self.position += 1
                return out
            key = self._key()
            self.enter(key)
            if self.skip_space() not in (":", "="):
                raise self._missing("':'")
            self.position += 1
            if key in out:
                raise self.fault("duplicate_key", f"the key {key!r} is there twice")
            out[key] = self.value()
            self._next(closer)
            self.leave()

    def _items(self) -> list[Any]:
        self.check_depth()
        self.position += 1
        out: list[Any] = []
        while True:
            if self.skip_space() == "]":
                self.position += 1
                return out
            self.enter(len(out))
            out.append(self.value())
            self._next("]")
            self.leave()

    def _next(self, closer: str) -> None:
        char = self.skip_space()
        if char == ",":
            self.position += 1
        elif char != closer:
            raise self._missing(f"',' or '{closer}'")

    def _missing(self, what: str) -> JsonFault:
        rest = self.text[self.position : self.position + 1]
        return self.fault("not_json" if rest else "unfinished", f"has no {what} where one is due")

    def _key(self) -> str:
        char = self.text[self.position : self.position + 1]
        if self.text.startswith(self._delimiter, self.position):
            return self._delimited()
        if char in ('"', "'") and char:
            return self.string()
        key = _GEMMA_KEY.match(self.text, self.position)
        if key is None:
            raise self._missing("key")
        self.position = key.end()
        return key.group()

    def _word(self) -> Any:
        word = _GEMMA_WORD.match(self.text, self.position)
        if word is None:
            raise self._missing("value")
        reader = LenientReader(word.group())
        try:
            value = reader.value()
            if reader.position < len(word.group()):
                raise self.fault("not_json", "has a malformed value")
        except JsonFault:
            raise self.fault("not_json", "has a bare word for a value") from None
        self.position = word.end()
        return value
