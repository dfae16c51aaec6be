"""What ``/openapi.json`` says of answers, held against real ones, as strictly as it can be read.

The document leaves objects open, since fields may come. Here they are closed: a field that is
given and not described is a fault. ``additionalProperties`` that the document itself sets stay.
"""

import json
import re
from typing import Any

import jsonschema_rs

from tests.fakes.raw_client import RawResponse
from tests.fakes.strict_client import payloads


def closed(schema: Any) -> Any:
    """A schema whose objects have no other fields than those described, and no way around it."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "allOf" in schema:  # its parts are about the same object: closing one would shut out others
        return schema
    tight = {name: closed(value) for name, value in schema.items()}
    if "anyOf" in tight:
        tight["anyOf"] = [each for each in tight["anyOf"] if set(each) != {"description"}]
    if isinstance(tight.get("properties"), dict) and tight.get("type") == "object":
        tight.setdefault("additionalProperties", False)
    return tight


class Described:
    """The document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.operations = {
            (method.upper(), path): operation
            for path, item in document["paths"].items()
            for method, operation in item.items()
            if method != "parameters"
        }
        self._components = closed(document["components"])

    def validator(self, schema: Any) -> jsonschema_rs.Validator:
        """Judges by a schema of the document, closed."""
        whole = {"allOf": [closed(schema)], "components": self._components}
        return jsonschema_rs.Draft202012Validator(whole)

    def named(self, name: str) -> jsonschema_rs.Validator:
        """Judges by a named schema, closed."""
        return self.validator({"$ref": f"#/components/schemas/{name}"})

    def check(self, method: str, path: str, answer: RawResponse, *, refused: bool = False) -> None:
        """Assert that an answer is one that is described for ``path``, in the document's words.

        Args:
            method: of the request.
            path: as the document writes it.
            answer: what came.
            refused: it is the provider's own refusal, whose words may be any.
        """
        responses = self.operations[method, path]["responses"]
        status = str(answer.status)
        described = responses.get(status) or responses.get(f"{status[0]}XX")
        assert described, f"{method} {path}: {status} is not described"
        self._check_headers(described["headers"], answer)
        if "content" not in described:
            assert answer.body == b""
            return
        media = answer.headers["content-type"].partition(";")[0]
        told = described["content"].get(media) or described["content"].get("*/*")
        assert told, f"{method} {path}: {status} as {media} is not described"
        if media == "text/event-stream" and media in described["content"]:
            self._check_events(told["schema"], answer.body)
        elif media == "application/json" and not refused:
            self.validator(told["schema"]).validate(json.loads(answer.body))

    def _check_headers(self, described: dict[str, Any], answer: RawResponse) -> None:
        known = self.document["components"]["headers"]
        ours = {name for name in answer.headers if name in known}
        assert ours <= set(described), f"not described: {ours - set(described)}"
        for name in described:
            if known[name].get("required"):
                assert name in answer.headers, f"{name} is missing"

    def _check_events(self, schema: dict[str, Any], stream: bytes) -> None:
        events = payloads(stream)
        assert events[-1] == "[DONE]"
        _, payload = schema["properties"]["data"]["anyOf"]
        judge = self.validator(payload["contentSchema"])
        for event in events[:-1]:
            judge.validate(json.loads(event))


def described_path(template: str) -> re.Pattern[str]:
    """A pattern of the paths that a path of the document stands for."""
    return re.compile(re.sub(r"\\{\w+\\}", ".+", re.escape(template)))
