"""Turns a TOML tree into settings, strictly, and tells everything that is wrong with it at once.

cattrs walks the classes of :mod:`edge.settings.sections`; the hooks here make it strict (an integer
is no boolean, a text is no list, nothing is converted) and apply the checks that stand in the
annotations. With detailed validation cattrs gathers the faults of all fields in one tree of
exceptions, which :func:`complaints_of` flattens into places and messages.

``[output]`` is not walked by cattrs: its keys and their checks are the ones a request's overrides
use (:mod:`edge.core.output_keys`), and a route's ``[routes.output]`` is laid over it key by key.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from cattrs import (
    AttributeValidationNote,
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
)
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.gen import make_dict_structure_fn

from edge.core.near_match import did_you_mean, shown
from edge.core.output_keys import OUTPUT_KEYS
from edge.core.output_policy import OutputPolicy
from edge.settings.complaints import Complaint, SettingsError
from edge.settings.cross_checks import cross_complaints
from edge.settings.kinds import Address, Check, Secret
from edge.settings.secrets import find_secret

T = TypeVar("T")
Hook = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a configuration refers to outside itself.

    Attributes:
        environ: where ``env:NAME`` looks.
        folder: where relative paths start: the folder of the configuration file.
    """

    environ: Mapping[str, str]
    folder: Path

    @classmethod
    def of_process(cls, folder: Path | None = None) -> "Surroundings":
        """This process's environment."""
        return cls(environ=os.environ, folder=folder or Path())


def structure(tree: Mapping[str, Any], target: type[T], around: Surroundings) -> T:
    """The settings that ``tree`` describes.

    Args:
        tree: as ``tomllib`` returns it; it is not changed.
        target: the root class.
        around: environment and folder.

    Raises:
        SettingsError: with every complaint, without lines.
    """
    tree = _with_an_output_in_every_route(tree)
    converter = _converter(around, base_output=_sound_part(tree.get("output")))
    across = cross_complaints(tree)
    try:
        settings = converter.structure(tree, target)
    except (ClassValidationError, ValueError) as error:
        raise SettingsError([*complaints_of(error), *across]) from None
    if across:
        raise SettingsError(across)
    return settings


def complaints_of(error: BaseException, place: str = "") -> Iterator[Complaint]:
    """Flattens what cattrs raised; ``place`` is the path that led to ``error``."""
    if isinstance(error, ClassValidationError):
        keyed, bare = error.group_exceptions()
        for inner, note in keyed:
            yield from complaints_of(inner, f"{place}.{note.name}" if place else note.name)
        for inner in bare:
            yield from complaints_of(inner, place)
    elif isinstance(error, IterableValidationError):
        for inner, index in error.group_exceptions()[0]:
            yield from complaints_of(inner, f"{place}[{index.index}]")
    elif isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in fields(error.cl)]
        for key in sorted(error.extra_fields):
            yield Complaint(f"{place}.{key}" if place else key, _unknown(key, known))
    elif isinstance(error, KeyError):
        yield Complaint(place, "is missing")
    else:
        yield Complaint(place, str(error))


def _unknown(key: str, known: list[str]) -> str:
    return f"unknown key{did_you_mean(key, known)}"


def _with_an_output_in_every_route(tree: Mapping[str, Any]) -> dict[str, Any]:
    """So that the hook for ``output`` runs for routes that do not mention it."""
    routes = tree.get("routes")
    if not isinstance(routes, list):
        return dict(tree)
    filled = [{"output": {}} | route if isinstance(route, dict) else route for route in routes]
    return {**tree, "routes": filled}


# ── hooks ─────────────────────────────────────────────────────────────────────────────────────────


def _converter(around: Surroundings, base_output: OutputPolicy) -> Converter:
    converter = Converter(detailed_validation=True, forbid_extra_keys=True)
    _register_plain_types(converter)
    converter.register_structure_hook_factory(is_dataclass, _table_factory(converter))
    converter.register_structure_hook_factory(_is_tuple, _list_factory(converter))
    converter.register_structure_hook_factory(_is_annotated, _checked_factory(converter))
    converter.register_structure_hook(Address, _address)
    converter.register_structure_hook(
        Secret, lambda value, _: find_secret(value, around.environ, around.folder)
    )
    converter.register_structure_hook_func(_is_optional_path, _path_hook(around.folder))
    converter.register_structure_hook(
        OutputPolicy, lambda value, _: _output_over(base_output, _table(value))
    )
    return converter


def _register_plain_types(converter: Converter) -> None:
    converter.register_structure_hook(bool, _exactly(bool, "true or false"))
    converter.register_structure_hook(int, _exactly(int, "a whole number"))
    converter.register_structure_hook(str, _exactly(str, "a text"))
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook_func(_is_literal, _word)


def _exactly(kind: type, words: str) -> Hook:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(f"must be {words}, not {shown(value)}")
        return value

    return hook


def _number(value: Any, _: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"must be a number, not {shown(value)}")
    return float(value)


def _word(value: Any, kind: Any) -> Any:
    words = get_args(kind)
    if value in words and isinstance(value, str):
        return value
    options = " or ".join(f'"{word}"' for word in words)
    hint = did_you_mean(value, words) if isinstance(value, str) else ""
    raise ValueError(f"must be {options}, not {shown(value)}{hint}")


def _address(value: Any, _: Any) -> Address:
    if not isinstance(value, str):
        raise ValueError(f'must be a text like "127.0.0.1:8080", not {shown(value)}')
    return Address.parse(value)


def _path_hook(folder: Path) -> Hook:
    def hook(value: Any, _: Any) -> Path | None:
        if not isinstance(value, str):
            raise ValueError(f"must be a path, not {shown(value)}")
        return folder / Path(value).expanduser() if value else None

    return hook


def _is_optional_path(kind: Any) -> bool:
    return bool(kind == Path | None)


def _is_literal(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a table, not {shown(value)}")
    return value


def _table_factory(converter: Converter) -> Callable[[Any], Hook]:
    def factory(kind: Any) -> Hook:
        inner = make_dict_structure_fn(kind, converter)
        return lambda value, kind: inner(_table(value), kind)

    return factory


def _list_factory(converter: Converter) -> Callable[[Any], Hook]:
    def factory(kind: Any) -> Hook:
        inner = homogenous_tuple_structure_factory(kind, converter)

        def hook(value: Any, kind: Any) -> Any:
            if not isinstance(value, list):
                raise ValueError(f"must be a list, not {shown(value)}")
            return inner(value, kind)

        return hook

    return factory


def _checked_factory(converter: Converter) -> Callable[[Any], Hook]:
    def factory(kind: Any) -> Hook:
        base, *notes = get_args(kind)
        inner = converter.get_structure_hook(base)
        checks = [note for note in notes if isinstance(note, Check)]

        def hook(value: Any, _: Any) -> Any:
            kept = inner(value, base)
            for check in checks:
                kept = check(kept)
            return kept

        return hook

    return factory


# ── [output] ──────────────────────────────────────────────────────────────────────────────────────


def _output_over(base: OutputPolicy, table: dict[str, Any]) -> OutputPolicy:
    changes, faults = _output_changes(table)
    if faults:
        raise ClassValidationError("output", faults, OutputPolicy)
    return replace(base, **changes)


def _sound_part(table: Any) -> OutputPolicy:
    """``[output]`` without its faults, which are complained about where it is read itself."""
    changes = _output_changes(table)[0] if isinstance(table, dict) else {}
    return replace(OutputPolicy(), **changes)


def _output_changes(table: dict[str, Any]) -> tuple[dict[str, Any], list[Exception]]:
    changes: dict[str, Any] = {}
    faults: list[Exception] = []
    for name, value in table.items():
        try:
            if name not in OUTPUT_KEYS:
                raise ValueError(_unknown(name, list(OUTPUT_KEYS)))
            changes[name] = OUTPUT_KEYS[name].check(value)
        except ValueError as error:
            error.add_note(AttributeValidationNote(name, name, object))
            faults.append(error)
    return changes, faults
