"""The document tells of everything that is served, of nothing else, and in sound OpenAPI."""

import json
import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from quart_trio import QuartTrio
from werkzeug.routing import Map

from edge.core.run_events import Usage
from edge.core.run_summary import UsageSummary
from edge.errors import EdgeError
from edge.server import cors
from edge.server.openapi import addresses, describe, sockets
from edge.server.openapi_operations import OPERATIONS, PATH_PARAMETERS, SOCKETS, TAGS
from edge.server.openapi_parts import HEADERS, Operation, failures
from edge.server.openapi_shapes import Shapes
from edge.server.passthrough import OWN
from edge.server.routing import Handlers, build_app, direct_routes
from tests.fakes.described import described_path


def nobody() -> Handlers:
    raise AssertionError("no request is made here")


@pytest.fixture(scope="module")
def app() -> QuartTrio:
    return build_app(nobody)


@pytest.fixture(scope="module")
def document(app: QuartTrio) -> dict[str, Any]:
    return describe(app.url_map)


def served(url_map: Map) -> set[tuple[str, str]]:
    return {(method, path) for method, path, _ in addresses(list(url_map.iter_rules()))}


def test_what_is_served_is_described_and_what_is_described_is_served(app: QuartTrio) -> None:
    assert served(app.url_map) == set(OPERATIONS)
    assert set(sockets(list(app.url_map.iter_rules()))) == set(SOCKETS)


def test_nothing_is_served_that_nobody_has_described() -> None:
    app = build_app(nobody)
    app.add_url_rule("/v1/secret", "secret", lambda: "")

    with pytest.raises(LookupError):
        describe(app.url_map)


def test_the_short_cuts_are_described_too(document: dict[str, Any]) -> None:
    shortest = [
        [path for path in document["paths"] if described_path(path).fullmatch(address)]
        for _, address in direct_routes(nobody)
    ]

    assert all(shortest)


def test_the_gateways_own_paths_are_known_where_requests_pass_through(app: QuartTrio) -> None:
    """A path that is added to the API would else be a provider's for POST."""
    first = {rule.rule.split("/")[2] for rule in app.url_map.iter_rules() if "/v1/" in rule.rule}

    assert {part for part in first if part.isalpha()} - {"chat"} == OWN


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in references(document):
        part: Any = document
        for step in reference.removeprefix("#/").split("/"):
            part = part[step]


def references(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if "$ref" in tree:
            yield tree["$ref"]
        for value in tree.values():
            yield from references(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from references(value)


def test_every_schema_is_sound_and_used(document: dict[str, Any]) -> None:
    named = document["components"]["schemas"]
    for name in named:
        schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": named}}
        jsonschema_rs.meta.validate(named[name])
        jsonschema_rs.Draft202012Validator(schema)

    assert {f"#/components/schemas/{name}" for name in named} <= set(references(document)) | {
        "#/components/schemas/Message"
    }


def test_parameters_tags_and_ids_are_whole(document: dict[str, Any]) -> None:
    variables = {name for path in document["paths"] for name in re.findall(r"{(\w+)}", path)}
    told = [
        operation
        for item in document["paths"].values()
        for method, operation in item.items()
        if method != "parameters"
    ]

    assert variables == set(PATH_PARAMETERS)
    assert {tag for operation in told for tag in operation["tags"]} == set(TAGS)
    assert len({operation["operationId"] for operation in told}) == len(told)


def test_the_headers_that_pages_may_read_are_those_described() -> None:
    assert {name.strip() for name in cors._EXPOSED.decode().split(",")} == set(HEADERS)


def kinds(tree: type[EdgeError]) -> Iterator[type[EdgeError]]:
    for kind in tree.__subclasses__():
        if kind.__module__ == "edge.errors":
            yield kind
            yield from kinds(kind)


def test_a_run_may_fail_in_every_way_there_is() -> None:
    run = OPERATIONS["POST", "/v1/{rest}"]
    told = json.dumps(failures(run))

    for kind in kinds(EdgeError):
        assert str(kind.status) in failures(run)
        assert kind.type in told


def test_an_error_is_described_by_the_class_that_is_raised() -> None:
    class Spilt(EdgeError):
        """The milk is spilt.

        More of it.
        """

        status = 418
        type = "milk_error"

    told = failures(Operation(summary="", about="", answers={}, errors=(Spilt,)))["418"]

    assert told["description"] == "The milk is spilt."
    assert "milk_error" in json.dumps(told)


def test_the_document_is_small_enough_to_be_asked_for(document: dict[str, Any]) -> None:
    assert len(json.dumps(document)) < 100_000


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (int | None, {"type": ["integer", "null"]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Literal["a"] | Literal["b"] | None, {"enum": ["a", "b", None]}),
        (list[float], {"type": "array", "items": {"type": "number"}}),
        (dict[str, Any], {"type": "object"}),
        (Any, {}),
        (Annotated[bool, "What it is."], {"type": "boolean", "description": "What it is."}),
        (UsageSummary, {"$ref": "#/components/schemas/UsageSummary"}),
    ],
)
def test_an_annotation_says_how_values_look(annotation: Any, schema: dict[str, Any]) -> None:
    assert Shapes().of(annotation) == schema


def test_what_has_no_shape_is_refused() -> None:
    with pytest.raises(TypeError):
        Shapes().of(object)


def test_fields_without_defaults_are_required() -> None:
    shapes = Shapes()
    shapes.of(Usage)
    shapes.of(UsageSummary)

    assert shapes.named["Usage"]["required"] == []
    assert shapes.named["UsageSummary"]["required"] == list(shapes.named["Usage"]["properties"])
