"""A blocking request to a server on this machine, for statistics and readiness."""

import json
from contextlib import closing
from http.client import HTTPConnection
from typing import Any


def exchange(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """One request over its own connection; the status and the body."""
    with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, response.read()


def get_json(port: int, path: str) -> Any:
    """GET ``path`` and decode its JSON."""
    return json.loads(exchange(port, "GET", path)[1])
