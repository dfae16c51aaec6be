"""What a run is called: by us, by its client, and in the trace that it is part of."""

import secrets

from edge.server.exchange import GatewayRequest

MAX_REQUEST_ID = 200

TRACE_HEADERS = ("traceparent", "tracestate")


def new_run_id() -> str:
    """An id that nobody can guess: it lets its owner cancel and mirror the run."""
    return f"run_{secrets.token_hex(12)}"


def request_id(request: GatewayRequest) -> str:
    """The client's ``x-request-id``, if it is one that can be sent back."""
    given = request.headers.get("x-request-id") or ""
    return given if len(given) <= MAX_REQUEST_ID and given.isprintable() else ""


def trace_headers(request: GatewayRequest) -> dict[str, str]:
    """The W3C trace context, which travels to the provider."""
    found = ((name, request.headers.get(name)) for name in TRACE_HEADERS)
    return {name: value for name, value in found if value}
