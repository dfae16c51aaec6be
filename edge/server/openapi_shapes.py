"""JSON Schemas of the shapes that the code itself goes by.

Dataclasses, typed dictionaries, literals and unions become what they say; a shape with a name is
written once and referred to. Text in ``Annotated`` describes a field, a docstring's first paragraph
its class. What a hook of its own reads (``edge.wire``) has a schema of its own, handed in.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

Schema: TypeAlias = dict[str, Any]

_SIMPLE: Mapping[object, str] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    dict: "object",
    NoneType: "null",
}


class Shapes:
    """Makes schemas of annotations.

    Attributes:
        named: the schemas of classes, by name, gathered as they are met.
    """

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}
        self._special: dict[object, Schema] = {}
        self._list_bound: dict[str, int] = {}

    def read_as(self, annotation: object, schema: Schema) -> None:
        """Values of ``annotation`` are what ``schema`` says, and not what their type looks like."""
        self._special[annotation] = schema

    def bound_lists(self, max_items: int) -> None:
        """A list, of those met from here on, holds at most so many items."""
        self._list_bound = {"maxItems": max_items}

    def name(self, name: str, schema: Schema) -> Schema:
        """A reference to a schema that has no class."""
        self.named[name] = schema
        return {"$ref": f"#/components/schemas/{name}"}

    def of(self, annotation: Any) -> Schema:
        """The schema of an annotation.

        Raises:
            TypeError: nobody has said how such a thing looks.
        """
        if annotation in self._special:
            return self._special[annotation]
        if annotation in _SIMPLE:
            return {"type": _SIMPLE[annotation]}
        if annotation is Any:
            return {}
        if isinstance(annotation, type) and (is_typeddict(annotation) or is_dataclass(annotation)):
            return self._reference(annotation)
        origin, arguments = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            return {**self.of(arguments[0]), "description": arguments[1]}
        if origin is NotRequired:
            return self.of(arguments[0])
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin is Union or origin is UnionType:
            return self._union(arguments)
        if origin is list:
            return {"type": "array", "items": self.of(arguments[0]), **self._list_bound}
        if origin is dict:
            return {"type": "object"}
        raise TypeError(f"{annotation!r} has no JSON Schema")

    def _reference(self, shape: type) -> Schema:
        if shape.__name__ not in self.named:
            self.named[shape.__name__] = {}  # it may hold itself
            self.named[shape.__name__] = self._object(shape)
        return {"$ref": f"#/components/schemas/{shape.__name__}"}

    def _object(self, shape: type) -> Schema:
        annotations = get_type_hints(shape, include_extras=True)
        properties = {name: self.of(annotation) for name, annotation in annotations.items()}
        return {
            "type": "object",
            "description": _first_paragraph(shape),
            "properties": properties,
            "required": [name for name in properties if name in _required(shape)],
        }

    def _union(self, arguments: Iterable[Any]) -> Schema:
        parts = [self.of(each) for each in arguments]
        words = [word for part in parts if list(part) == ["enum"] for word in part["enum"]]
        others = [part for part in parts if list(part) != ["enum"]]
        if words and {"type": "null"} in others:
            words.append(None)
            others.remove({"type": "null"})
        if words:
            others.insert(0, {"enum": words})
        if all(list(part) == ["type"] for part in others):
            return {"type": [part["type"] for part in others]}
        return others[0] if len(others) == 1 else {"anyOf": others}


def _required(shape: type) -> frozenset[str]:
    if is_typeddict(shape):
        found: frozenset[str] = shape.__required_keys__  # type: ignore[attr-defined]  # is_typeddict
        return found
    return frozenset(
        each.name
        for each in fields(shape)
        if each.default is MISSING and each.default_factory is MISSING
    )


def _first_paragraph(shape: type) -> str:
    text = inspect.getdoc(shape) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
