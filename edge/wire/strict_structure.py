"""A parsed JSON tree to typed values without coercion, with the path of every complaint.

cattrs does the walking and the collecting. Out of the box it coerces (null becomes the text
``None``, ``"yes"`` becomes True, a string is iterated as a list); the hooks here accept exactly the
JSON type that the annotation names. A hook complains by raising :class:`Complaint` or
:class:`Complaints` with paths relative to its own value; where it stood is added on the way out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, TypeVar, get_origin

from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    Converter,
    IterableValidationNote,
)
from cattrs.cols import list_structure_factory
from cattrs.gen import make_dict_structure_fn

from edge.errors import InvalidRequest

T = TypeVar("T")

_MOST_TOLD = 20

MAX_ITEMS = 4096
"""Bound of a list that is structured item by item (tools); each costs ten microseconds or more."""

_JSON_NAMES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    type(None): "null",
}


class Complaint(ValueError):
    """One thing that is wrong, at ``path`` below the value that is looked at."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.path = path


class Complaints(ValueError):
    """Several things that are wrong."""

    def __init__(self, complaints: Sequence[Complaint]) -> None:
        super().__init__("; ".join(complaint.message for complaint in complaints))
        self.complaints = tuple(complaints)


def mismatch(wanted: str, value: object, path: str = "") -> Complaint:
    """The complaint about a value of the wrong JSON type; ``wanted`` reads like ``a string``."""
    return Complaint(f"must be {wanted}, not {_JSON_NAMES.get(type(value), 'this')}", path)


def strict_converter() -> Converter:
    """A converter that takes each JSON type for what it is; unknown keys are passed over."""
    converter = Converter(detailed_validation=True)
    for kind in (str, bool, int):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook_func(_is_a(Literal), _literal)
    converter.register_structure_hook_func(_is_a(dict), _exactly(dict))
    converter.register_structure_hook_factory(_is_a(list), lambda t: _list_hook(t, converter))
    converter.register_structure_hook_factory(is_dataclass, lambda t: _object_hook(t, converter))
    return converter


def structure(converter: Converter, value: object, into: type[T]) -> T:
    """``value`` as an ``into``.

    Raises:
        InvalidRequest: every complaint is in the message, the first one's path in ``param``.
    """
    try:
        return converter.structure(value, into)
    except (BaseValidationError, Complaint, Complaints) as error:
        raise refusal(list(_complaints(error, ""))) from None


def refusal(complaints: Sequence[Complaint]) -> InvalidRequest:
    """The 400 that tells ``complaints``, which must not be empty."""
    told = [f"{c.path}: {c.message}" if c.path else c.message for c in complaints[:_MOST_TOLD]]
    if len(complaints) > _MOST_TOLD:
        told.append("and more")
    return InvalidRequest("; ".join(told), param=complaints[0].path or None)


def _is_a(form: object) -> Callable[[Any], bool]:
    return lambda annotation: annotation is form or get_origin(annotation) is form


def _exactly(kind: type) -> Callable[[object, object], Any]:
    wanted = _JSON_NAMES[kind]

    def structure_exactly(value: object, _: object) -> object:
        if type(value) is not kind:
            raise mismatch(wanted, value)
        return value

    return structure_exactly


def _literal(value: object, into: Any) -> object:
    for allowed in into.__args__:
        if type(value) is type(allowed) and value == allowed:
            return value
    choices = ", ".join(repr(allowed) for allowed in into.__args__)
    raise Complaint(f"must be {choices}, not {shown(value)}")


def shown(value: object) -> str:
    """A value in a complaint: short texts as they are, else the JSON type."""
    if isinstance(value, str):
        return repr(value if len(value) <= 64 else value[:64] + "…")
    return _JSON_NAMES.get(type(value), "this")


def _list_hook(into: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    structure_items = list_structure_factory(into, converter)

    def structure_list(value: object, _: object) -> Any:
        if not isinstance(value, list):
            raise mismatch("an array", value)
        if len(value) > MAX_ITEMS:
            raise Complaint(f"must hold at most {MAX_ITEMS} items, not {len(value)}")
        return structure_items(value, into)

    return structure_list


def _object_hook(into: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    structure_fields = make_dict_structure_fn(into, converter)

    def structure_object(value: Any, _: object) -> Any:
        if not isinstance(value, dict):
            raise mismatch("an object", value)
        return structure_fields(value, into)

    return structure_object


def _complaints(error: BaseException, path: str) -> Iterator[Complaint]:
    """The leaves of cattrs' tree of exceptions, each with its whole path."""
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _complaints(inner, path + _step(inner))
    elif isinstance(error, Complaint):
        yield Complaint(error.message, _joined(path, error.path))
    elif isinstance(error, Complaints):
        for complaint in error.complaints:
            yield Complaint(complaint.message, _joined(path, complaint.path))
    elif isinstance(error, KeyError):
        yield Complaint("is required", path.lstrip("."))
    else:
        raise error


def _step(error: BaseException) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return f".{note.name}"
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]"
    return ""


def _joined(path: str, below: str) -> str:
    dot = "." if below and not below.startswith("[") else ""
    return f"{path}{dot}{below}".lstrip(".")
