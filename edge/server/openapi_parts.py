"""The words in which addresses are described, and the errors and headers that many of them share.

Errors come from the tree in :mod:`edge.errors`: an operation names classes, and their statuses,
types and meanings are taken from there.
"""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from edge.errors import (
    EdgeError,
    Forbidden,
    GatewayFault,
    InvalidRequest,
    ModelNotFound,
    NoPath,
    NotFound,
    OutputValidationError,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    RateLimited,
    RequestTimeout,
    RequestTooLarge,
    RunCancelled,
    RunTimeout,
    ToolValidationError,
    ToolValidationRetryError,
    Unauthorized,
)
from edge.server.openapi_shapes import Schema

ALWAYS: tuple[type[EdgeError], ...] = (InvalidRequest, GatewayFault)
"""What any request may come to: one that is no sound HTTP, and a bug."""

OF_RUNS: tuple[type[EdgeError], ...] = (
    Unauthorized,
    Forbidden,
    ModelNotFound,
    NoPath,
    NotFound,
    RequestTimeout,
    RequestTooLarge,
    RateLimited,
    Overloaded,
    ProviderError,
    ProviderTimeout,
    ToolValidationError,
    ToolValidationRetryError,
    OutputValidationError,
    RunTimeout,
    RunCancelled,
)

Content = Mapping[str, Schema]
"""Schemas by media type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What is said of one method at one address.

    Attributes:
        about: what the address is for, one of ``TAGS``.
        asks: whose key is needed.
        parameters: ready-made parameters, but for those in the path.
        body: what is sent; empty for nothing.
        examples: of JSON that may be sent, by what it is for.
        answers: the answers that are no errors, by status, with what they mean.
        errors: what else may come, besides ``ALWAYS``.
        is_run: it is carried by a run, whose headers the answer has, and a provider's own refusal
            may be the answer.
    """

    summary: str
    about: str
    description: str = ""
    asks: Literal["nobody", "key", "observer"] = "key"
    parameters: tuple[Schema, ...] = ()
    body: Content = field(default_factory=dict)
    examples: Mapping[str, Any] = field(default_factory=dict)
    answers: Mapping[str, tuple[str, Content]]
    errors: tuple[type[EdgeError], ...] = ()
    is_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Socket:
    """What is said of a WebSocket."""

    summary: str
    description: str
    parameters: tuple[Schema, ...] = ()


ERROR: Schema = {
    "type": "object",
    "description": "What went wrong.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {
                    "type": ["string", "null"],
                    "description": "The place of the fault, as `messages[2].tool_calls[0].id`.",
                },
                "code": {"type": ["string", "null"]},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
_OWN_WORDS: Schema = {"description": "The provider's own words, where it refused the request."}

_RUN_ID = {"description": "The run that this was.", "schema": {"type": "string"}}
HEADERS: Mapping[str, Schema] = MappingProxyType(
    {
        "x-request-id": {
            "description": "The request's own, or one that the gateway made.",
            "schema": {"type": "string"},
            "required": True,
        },
        "x-edge-run-id": _RUN_ID,
        "x-edge-attempts": {
            "description": "How often a provider was asked, as far as it is known.",
            "schema": {"type": "integer"},
        },
        "x-edge-provider": {
            "description": "The provider whose answer this is.",
            "schema": {"type": "string"},
        },
        "x-should-retry": {
            "description": "`false` where the gateway has tried again itself, in vain.",
            "schema": {"enum": ["false"]},
        },
        "retry-after": {
            "description": "Seconds until another try may succeed.",
            "schema": {"type": "integer"},
        },
    }
)
_RUN_HEADERS = ("x-edge-run-id", "x-edge-attempts", "x-edge-provider")
_AGAIN = ("retry-after", "x-should-retry")
_LATER = frozenset({"429", "503"})
_OURS_ALONE = frozenset({"401", "403"})
"""Of a run's errors those that no provider can speak for: its own are about our credentials."""


def reference(kind: str, name: str) -> Schema:
    """A reference to a component."""
    return {"$ref": f"#/components/{kind}/{name}"}


def headers(names: Iterable[str]) -> Schema:
    """References to headers of an answer; every answer has ``x-request-id``."""
    return {name: reference("headers", name) for name in ("x-request-id", *names)}


def content(parts: Content) -> dict[str, Any]:
    """Schemas by media type, as the document nests them."""
    return {media: {"schema": schema} for media, schema in parts.items()}


def request_body(operation: Operation) -> Schema:
    """What an operation is sent."""
    told = content(operation.body)
    if operation.examples:
        told["application/json"]["examples"] = {
            name.replace(" ", "-"): {"summary": name, "value": value}
            for name, value in operation.examples.items()
        }
    return {"required": True, "content": told}


def answer(meaning: str, parts: Content, names: Iterable[str] = ()) -> Schema:
    """One answer."""
    told: Schema = {"description": meaning, "headers": headers(names)}
    return {**told, "content": content(parts)} if parts else told


def successes(operation: Operation) -> dict[str, Schema]:
    """The answers of an operation that are no errors, by status."""
    names = _RUN_HEADERS if operation.is_run else ()
    return {
        status: answer(meaning, parts, names)
        for status, (meaning, parts) in operation.answers.items()
    }


def failures(operation: Operation) -> dict[str, Schema]:
    """The answers of an operation that are errors, by status."""
    kinds: dict[int, list[type[EdgeError]]] = {}
    for kind in (*ALWAYS, *operation.errors):
        kinds.setdefault(kind.status, []).append(kind)
    told = {
        str(status): _failure(str(status), kinds[status], operation) for status in sorted(kinds)
    }
    if operation.is_run:
        for others in ("4XX", "5XX"):
            meaning = "The provider refused the request, in its own words."
            told[others] = answer(meaning, {"*/*": _OWN_WORDS}, [*_RUN_HEADERS, *_AGAIN])
    return told


def _failure(status: str, kinds: list[type[EdgeError]], operation: Operation) -> Schema:
    meaning = " ".join(dict.fromkeys(_meaning(kind) for kind in kinds))
    types = sorted({kind.type for kind in kinds})
    typed = {"properties": {"error": {"properties": {"type": {"enum": types}}}}}
    ours: Schema = {"allOf": [reference("schemas", "Error"), typed]}
    if not operation.is_run:
        later = ["retry-after"] if status in _LATER else []
        return answer(meaning, {"application/json": ours}, later)
    names = [*_RUN_HEADERS, *_AGAIN]
    if status in _OURS_ALONE:
        return answer(meaning, {"application/json": ours})
    parts = {"application/json": {"anyOf": [ours, _OWN_WORDS]}, "*/*": _OWN_WORDS}
    return answer(meaning, parts, names)


def _meaning(kind: type[EdgeError]) -> str:
    first = (inspect.getdoc(kind) or "").partition("\n\n")[0]
    return " ".join(first.split()).replace("``", "`")
