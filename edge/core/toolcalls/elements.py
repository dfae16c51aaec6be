"""Values written as nested elements: one element a key, ``<item>`` or equal tags for a list.

The schema decides between list and object, and the type of each leaf. MiniMax M3 writes all
arguments so, with a prefix before every tag; agents whose tools are XML nest elements in a value.
"""

import re
from collections.abc import Mapping
from typing import Any

from edge.core import schema_view
from edge.core.lenient_json import MAX_DEPTH
from edge.core.toolcalls.typed_values import typed


class NotElements(Exception):
    """The text is not made of elements alone."""


def nested(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value of elements without a prefix, or ``text`` itself where it is not one."""
    if schema is None:
        return text
    wanted = schema_view.types(schema, root)
    if "string" in wanted or not wanted & {"array", "object"}:
        return text
    try:
        return read_elements(text, schema, root, "")
    except NotElements:
        return text


def read_elements(text: str, schema: Any, root: Mapping[str, Any], prefix: str) -> Any:
    """The list or object that the elements in ``text`` are.

    Raises:
        NotElements: there is text beside the elements, or one is not closed.
    """
    return _Reader(text, root, prefix).children(0, len(text), schema, 0)


class _Reader:
    """Reads elements of one text; every tag carries ``prefix``."""

    def __init__(self, text: str, root: Mapping[str, Any], prefix: str) -> None:
        self._text = text
        self._root = root
        self._prefix = prefix
        self._open = re.compile(r"\s*" + re.escape(prefix) + r"<([A-Za-z_][\w.\-]*)>")

    def children(self, start: int, end: int, schema: Any, depth: int) -> Any:
        """The value of the elements between two offsets."""
        if depth > MAX_DEPTH:
            raise NotElements
        pairs = self._pairs(start, end)
        is_list = "array" in schema_view.types(schema, self._root)
        names = {name for name, _, _ in pairs}
        if is_list and "object" in schema_view.types(schema, self._root):
            is_list = names == {"item"} or (len(pairs) > len(names))
        if is_list:
            return [
                self._value(at, to, schema_view.item_schema(index, schema, self._root), depth + 1)
                for index, (_, at, to) in enumerate(pairs)
            ]
        if len(names) < len(pairs):
            raise NotElements
        return {
            name: self._value(
                at, to, schema_view.property_schema(name, schema, self._root), depth + 1
            )
            for name, at, to in pairs
        }

    def _value(self, start: int, end: int, schema: Any, depth: int) -> Any:
        if self._open.match(self._text, start, end):
            wanted = schema_view.types(schema, self._root) if schema is not None else frozenset()
            if schema is None or wanted & {"array", "object"}:
                try:
                    return self.children(start, end, schema or {}, depth)
                except NotElements:
                    if self._prefix:
                        raise
        text = self._text[start:end]
        if schema is not None and not text.strip():
            wanted = schema_view.types(schema, self._root)
            if "string" not in wanted and wanted & {"array", "object"}:
                return [] if "array" in wanted else {}
        return typed(text, schema, self._root)[0]

    def _pairs(self, start: int, end: int) -> list[tuple[str, int, int]]:
        """The elements side by side: name, and where the content starts and ends."""
        out: list[tuple[str, int, int]] = []
        at = start
        while True:
            opening = self._open.match(self._text, at, end)
            if opening is None:
                if self._text[at:end].strip():
                    raise NotElements
                return out
            name = opening.group(1)
            close = self._closing(name, opening.end(), end)
            out.append((name, opening.end(), close))
            at = close + len(self._tag("/" + name))

    def _closing(self, name: str, start: int, end: int) -> int:
        """Where the element's content ends.

        Elements of the same name may nest, and a close that is not followed by another element or
        the end is part of a value.
        """
        opening, closing = self._tag(name), self._tag("/" + name)
        depth, at = 1, start
        while True:
            close = self._text.find(closing, at, end)
            if close < 0:
                raise NotElements
            depth += self._text.count(opening, at, close) - 1
            if depth > MAX_DEPTH:  # else every level would be looked through for its end
                raise NotElements
            at = close + len(closing)
            if depth == 0:
                if self._open.match(self._text, at, end) or not self._text[at:end].strip():
                    return close
                depth = 1

    def _tag(self, name: str) -> str:
        return f"{self._prefix}<{name}>"
