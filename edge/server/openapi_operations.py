"""What is said of every address: one table, held against the map of what is served.

The shapes of answers are the types that the handlers return. What a handler reads by hand (the
filters of ``/v1/runs``, the header ``x-edge-output``) is taken from the constants that it reads by.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from edge.core.mirror_frames import TYPES
from edge.core.output_keys import OUTPUT_KEYS
from edge.core.overrides import HEADER
from edge.core.run_summary import RunSummary
from edge.errors import (
    Forbidden,
    MethodNotAllowed,
    ModelNotFound,
    NotFound,
    Overloaded,
    Unauthorized,
)
from edge.server.models import Model, ModelList
from edge.server.naming import MAX_REQUEST_ID
from edge.server.openapi_chat import (
    CHAT_EXAMPLES,
    NAME,
    ChatCompletion,
    ChatCompletionChunk,
    chat_request,
    metadata,
)
from edge.server.openapi_parts import ERROR, OF_RUNS, Content, Operation, Socket, reference
from edge.server.openapi_shapes import Schema, Shapes
from edge.server.operations import Health, Readiness
from edge.server.page import FILES
from edge.server.passthrough import USUAL_PATHS
from edge.server.providers import ProviderList
from edge.server.runs import (
    DEFAULT_LIMIT,
    FILTERS,
    MAX_LIMIT,
    STATUSES,
    CancelledRun,
    RunPage,
)

JSON = "application/json"

shapes: Shapes = chat_request()
"""Every schema that the document names."""

CHAT_REQUEST = reference("schemas", "ChatBody")
ERROR_SCHEMA = shapes.name("Error", ERROR)

TAGS: Mapping[str, str] = MappingProxyType(
    {
        "chat": "Answers of models, checked and repaired.",
        "models": "What may be asked.",
        "runs": "What is running and has run.",
        "gateway": "How the gateway does.",
        "page": "A page that shows runs as they happen.",
    }
)

PATH_PARAMETERS: Mapping[str, Schema] = MappingProxyType(
    {
        "model": {"description": "A model's public name; it may hold slashes."},
        "run_id": {"description": "The id of a run, from its answer's `x-edge-run-id`."},
        "rest": {"description": "A path of the provider's API; it may hold slashes."},
        "name": {
            "description": "The name of a file.",
            "schema": {"type": "string", "enum": sorted(FILES)},
        },
    }
)

_PAYLOAD: Schema = {
    "type": "string",
    "contentMediaType": JSON,
    "contentSchema": {"anyOf": [shapes.of(ChatCompletionChunk), ERROR_SCHEMA]},
}
_EVENTS: Schema = {
    "type": "object",
    "description": "One event; comments (`: heartbeat`) come between them while the model thinks.",
    "properties": {"data": {"anyOf": [{"const": "[DONE]"}, _PAYLOAD]}},
    "required": ["data"],
}
_ANYTHING: Schema = {"description": "As the provider answers."}


def _json(annotation: Any) -> Content:
    return {JSON: shapes.of(annotation)}


def _query(name: str, description: str, **schema: Any) -> Schema:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _header(name: str, description: str, **schema: Any) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


OUTPUT = _header(
    HEADER,
    "Changes the route's output policy for this run, within its bounds: pairs `key=value` apart by "
    f"`;`. The keys are {', '.join(f'`{key}`' for key in OUTPUT_KEYS)}.",
    type="string",
)
REQUEST_ID = _header(
    "x-request-id",
    f"Comes back with the answer; one that is longer than {MAX_REQUEST_ID} characters does not.",
    type="string",
)

_FILTERS: Mapping[str, Schema] = MappingProxyType(
    {
        "status": _query("status", "How the last attempt ended.", enum=list(STATUSES)),
        "route": _query("route", "Runs of this route, by its `model`.", type="string"),
        "provider": _query("provider", "Runs for which it was asked.", type="string"),
        "key": _query("key", "Runs of the key with this name.", type="string"),
        "since": _query("since", "Created then or later, in seconds since 1970.", type="number"),
        "limit": _query(
            "limit", "So many.", type="integer", minimum=1, maximum=MAX_LIMIT, default=DEFAULT_LIMIT
        ),
        "after": _query("after", "Those behind the run with this id.", type="string"),
    }
)
_TYPES = _query("types", f"Only these types of frames: {', '.join(sorted(TYPES))}.", type="string")
_BATCH = _query(
    "batch", "One message, a JSON array, for the frames that are due together.", type="boolean"
)

_LISTED = "Only its own page's files are to be had."
_UNCHANGED: tuple[str, Content] = ("The browser has it.", {})

OPERATIONS: Mapping[tuple[str, str], Operation] = MappingProxyType(
    {
        ("POST", "/v1/chat/completions"): Operation(
            summary="Have a model answer a conversation",
            about="chat",
            description="OpenAI's chat completions. What is described here is what the gateway "
            "reads; other keys travel to the provider. Tool calls of the answer keep the schemas "
            "of their tools, or the answer is an error. A request that needs no look at passes "
            "through, and its answer is the provider's own.",
            parameters=(OUTPUT, REQUEST_ID),
            body={JSON: CHAT_REQUEST},
            examples=CHAT_EXAMPLES,
            answers={
                "200": ("The answer.", {**_json(ChatCompletion), "text/event-stream": _EVENTS})
            },
            errors=OF_RUNS,
            is_run=True,
        ),
        ("POST", "/v1/{rest}"): Operation(
            summary="Have a model do something else",
            about="chat",
            description="Passes through to the provider of the model that the body names, bytes "
            "for bytes, as do "
            + ", ".join(f"`{path}`" for path in USUAL_PATHS)
            + " and whatever else a provider serves.",
            parameters=(OUTPUT, REQUEST_ID),
            body={
                JSON: {
                    "type": "object",
                    "properties": {"model": NAME, "metadata": {"anyOf": [metadata(), {}]}},
                    "required": ["model"],
                },
                "multipart/form-data": {
                    "type": "object",
                    "properties": {"model": NAME},
                    "required": ["model"],
                },
            },
            answers={"2XX": ("The provider's answer.", {"*/*": _ANYTHING})},
            errors=(*OF_RUNS, MethodNotAllowed),
            is_run=True,
        ),
        ("GET", "/v1/models"): Operation(
            summary="List the models",
            about="models",
            answers={"200": ("The models that the key may use.", _json(ModelList))},
            errors=(Unauthorized,),
        ),
        ("GET", "/v1/models/{model}"): Operation(
            summary="Show a model",
            about="models",
            answers={"200": ("The model.", _json(Model))},
            errors=(Unauthorized, ModelNotFound),
        ),
        ("GET", "/v1/providers"): Operation(
            summary="List the model servers",
            about="gateway",
            description="As the worker that answers sees them now.",
            asks="observer",
            answers={"200": ("The model servers.", _json(ProviderList))},
            errors=(Unauthorized, Forbidden),
        ),
        ("GET", "/v1/runs"): Operation(
            summary="List runs",
            about="runs",
            description="A page of the live runs and the newest that ended, newest first. Filters "
            "hold together.",
            parameters=tuple(_FILTERS[name] for name in FILTERS),
            answers={"200": ("A page.", _json(RunPage))},
            errors=(Unauthorized,),
        ),
        ("GET", "/v1/runs/{run_id}"): Operation(
            summary="Show a run",
            about="runs",
            answers={"200": ("The run.", _json(RunSummary))},
            errors=(Unauthorized, NotFound),
        ),
        ("DELETE", "/v1/runs/{run_id}"): Operation(
            summary="Cancel a run",
            about="runs",
            description="Its client gets `run_cancelled`, its provider is hung up on.",
            answers={"200": ("It is cancelled, or had ended before.", _json(CancelledRun))},
            errors=(Unauthorized, Forbidden, NotFound),
        ),
        ("GET", "/healthz"): Operation(
            summary="Ask whether the process lives",
            about="gateway",
            asks="nobody",
            answers={"200": ("It does.", _json(Health))},
        ),
        ("GET", "/readyz"): Operation(
            summary="Ask whether work may be given",
            about="gateway",
            asks="nobody",
            answers={"200": ("A route can be served.", _json(Readiness))},
            errors=(Overloaded,),
        ),
        ("GET", "/metrics"): Operation(
            summary="Scrape the metrics",
            about="gateway",
            description="In Prometheus' text format, or OpenMetrics where `Accept` prefers it.",
            asks="observer",
            answers={
                "200": (
                    "The metrics, with several workers those of all.",
                    {
                        "text/plain": {"type": "string"},
                        "application/openmetrics-text": {"type": "string"},
                    },
                )
            },
            errors=(Unauthorized, Forbidden),
        ),
        ("GET", "/openapi.json"): Operation(
            summary="Get this document",
            about="gateway",
            description="The same for everybody, whatever is configured.",
            asks="nobody",
            answers={"200": ("This document.", {JSON: {"type": "object"}}), "304": _UNCHANGED},
        ),
        ("GET", "/ui"): Operation(
            summary="Get the page",
            about="page",
            asks="nobody",
            answers={
                "200": ("The page.", {"text/html": {"type": "string"}}),
                "304": _UNCHANGED,
            },
        ),
        ("GET", "/ui/{name}"): Operation(
            summary="Get a file of the page",
            about="page",
            description=_LISTED,
            asks="nobody",
            answers={
                "200": (
                    "The file.",
                    {
                        media: {"type": "string"}
                        for media in ("text/html", "text/css", "text/javascript")
                    },
                ),
                "304": _UNCHANGED,
            },
            errors=(NotFound,),
        ),
    }
)

SOCKETS: Mapping[str, Socket] = MappingProxyType(
    {
        "/v1/chat/completions": Socket(
            summary="Carry many chat runs at once",
            description='The client sends `{"id", "request"}`, where `request` is a `ChatBody` and '
            '`id` its own, and `{"id", "cancel": true}`. For each request it gets '
            '`{"id", "chunk"}` for every `ChatCompletionChunk` (or one `{"id", "completion"}` '
            'where the request says `"stream": false`), and one last word: '
            '`{"id", "done": true, "run_id"}` or `{"id", "status", "error"}`.',
        ),
        "/v1/runs/{run_id}/mirror": Socket(
            summary="Follow a run",
            description="Every message is one JSON object with `type`, `run_id`, `seq` and `at`. "
            "What a client sends is read and ignored.",
            parameters=(_TYPES, _BATCH),
        ),
        "/v1/mirror": Socket(
            summary="Follow every run that the key may see",
            description="As for one run.",
            parameters=(_TYPES, _BATCH),
        ),
    }
)
