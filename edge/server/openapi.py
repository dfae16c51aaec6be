"""``GET /openapi.json``: the API's description, made of the map of what is served.

Paths and methods come from the app's own routes, what is said of them from
:mod:`edge.server.openapi_operations`; a test holds that neither knows more than the other. The
document says what the program can do, never what is configured, so everybody may have it.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quart_trio.wrappers import TrioResponse
from werkzeug.routing import Map, Rule

from edge import __version__
from edge.server.openapi_operations import (
    OPERATIONS,
    PATH_PARAMETERS,
    SOCKETS,
    TAGS,
    shapes,
)
from edge.server.openapi_parts import (
    HEADERS,
    Operation,
    failures,
    request_body,
    successes,
)
from edge.server.openapi_shapes import Schema
from edge.wire.strict_json import encode

PATH = "/openapi.json"
VERSION = "3.1.1"

_VARIABLE = re.compile(r"<(?:\w+:)?(\w+)>")
_IMPLIED = frozenset({"HEAD", "OPTIONS"})
_ABOUT = """\
A gateway between coding agents and model servers: tool calls are read, checked, repaired and asked
for again before they reach the client, and nothing runs for nobody.

Errors have one shape everywhere, `Error`. Where `GET` is served, so is `HEAD`. A request that is no
sound HTTP/1.1 gets a 400, 431 or 505 before its address is looked at. `x-websockets` tells what is
served as WebSockets, by path.

Where no keys are configured, none is asked for."""


@dataclass(frozen=True, slots=True)
class Document:
    """The document, ready to be sent."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, served: Map) -> "Document":
        """The document of what is served.

        Raises:
            LookupError: something is served that nobody has described.
        """
        body = encode(describe(served))
        return cls(body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def response(self, if_none_match: str | None) -> TrioResponse:
        """The document, or 304 for one who has it."""
        headers = {
            "content-type": "application/json",
            "cache-control": "no-cache",
            "etag": self.etag,
        }
        if if_none_match == self.etag:
            return TrioResponse(b"", 304, headers)
        return TrioResponse(self.body, 200, headers)


def describe(served: Map) -> dict[str, Any]:
    """The OpenAPI document of what is served; raises as :meth:`Document.of`."""
    rules = sorted(served.iter_rules(), key=lambda rule: rule.rule)
    paths: dict[str, dict[str, Schema]] = {}
    for method, path, rule in addresses(rules):
        item = paths.setdefault(path, _path_item(path))
        item[method.lower()] = _operation(OPERATIONS[method, path], rule.endpoint)
    return {
        "openapi": VERSION,
        "info": {"title": "edge", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": shapes.named,
            "headers": dict(HEADERS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "x-websockets": {path: _socket(path) for path in sockets(rules)},
    }


def addresses(rules: list[Rule]) -> list[tuple[str, str, Rule]]:
    """Method and path of everything that is served, but for methods that others imply."""
    return [
        (method, template(rule), rule)
        for rule in rules
        if not rule.websocket
        for method in sorted((rule.methods or set()) - _IMPLIED)
    ]


def sockets(rules: list[Rule]) -> list[str]:
    """The paths that are served as WebSockets."""
    return [template(rule) for rule in rules if rule.websocket]


def template(rule: Rule) -> str:
    """A rule's path as OpenAPI writes it: ``/v1/runs/{run_id}``."""
    return _VARIABLE.sub(r"{\1}", rule.rule)


def _operation(operation: Operation, name: str) -> Schema:
    told: Schema = {
        "operationId": name,
        "summary": operation.summary,
        "tags": [operation.about],
        "security": [] if operation.asks == "nobody" else [{"bearer": []}, {"key": []}],
    }
    description = operation.description
    if operation.asks == "observer":
        description = f"{description} Only for keys with `observe`.".lstrip()
    if description:
        told["description"] = description
    if operation.parameters:
        told["parameters"] = list(operation.parameters)
    if operation.body:
        told["requestBody"] = request_body(operation)
    return {**told, "responses": {**successes(operation), **failures(operation)}}


def _path_item(path: str) -> Schema:
    parameters = _path_parameters(path)
    return {"parameters": parameters} if parameters else {}


def _path_parameters(path: str) -> list[Schema]:
    shape: Mapping[str, Any] = {"in": "path", "required": True, "schema": {"type": "string"}}
    return [
        {"name": name, **shape, **PATH_PARAMETERS[name]} for name in re.findall(r"{(\w+)}", path)
    ]


def _socket(path: str) -> Schema:
    socket = SOCKETS[path]
    return {
        "summary": socket.summary,
        "description": socket.description,
        "parameters": [*_path_parameters(path), *socket.parameters],
    }
