"""Requests that pass through as the bytes they are, and the little of them that is read or changed.

A body is JSON, or a form with files (``multipart/form-data``, as audio is sent). Of either the
model's name is read, since it decides the provider, and put in place of the client's where a target
calls the model otherwise. Of JSON it is also read whether the answer is a stream and whether usage
is to be told, and usage is asked for where the client did not.

Changes are made in the bytes where it is certain that they hit what they should: the one spelling
of a key in the whole body, or its very beginning. Else, and that is rare, the body is written anew.
A body that needs no change is sent as the object that came.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edge.errors import InvalidRequest
from edge.wire import strict_json

MAX_PART_HEAD = 16 * 1024
"""Bytes of the head of a form's part."""

MAX_MODEL = 4096
"""Bytes of a model's name in a form."""

EDGE_METADATA = "edge."
"""Prefix of the metadata keys that speak to the gateway and do not travel."""

_ASKING = b'"stream_options":{"include_usage":true},'
_MODEL_KEY = b'"model"'
_MODEL_VALUE = re.compile(rb'"model"[ \t\r\n]*:[ \t\r\n]*("(?:[^"\\]|\\.)*")', re.DOTALL)
_SPELT_OTHERWISE = b"\\u006"
"""How the letters of the key begin where they are written as escapes."""

_BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,200})"|([^\s;,"]{1,200}))', re.IGNORECASE)
_NAME = re.compile(rb'[;\s]name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)
_FILE = re.compile(rb"[;\s]filename\*?=", re.IGNORECASE)


class TunnelBody(Protocol):
    """A request's body on its way through.

    Attributes:
        data: as it came.
        model: the client's name for the model.
        stream: whether the client asked for a stream.
        include_usage: whether it asked for usage in it.
        edge_metadata: what of its metadata speaks to the gateway.
    """

    @property
    def data(self) -> bytes:
        """See the class."""
        ...

    @property
    def model(self) -> str:
        """See the class."""
        ...

    @property
    def stream(self) -> bool:
        """See the class."""
        ...

    @property
    def include_usage(self) -> bool:
        """See the class."""
        ...

    @property
    def edge_metadata(self) -> Mapping[str, Any]:
        """See the class."""
        ...

    def for_provider(self, model: str, *, ask_usage: bool) -> bytes:
        """The body as a provider gets it.

        Args:
            model: the provider's name for the model.
            ask_usage: ask for usage in the stream; only where the client did not.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonBody:
    """A body that is a JSON object; see :class:`TunnelBody`.

    Attributes:
        has_options: it has a key ``stream_options``, whatever its value.
        edge_metadata: the part of its metadata that speaks to the gateway.
    """

    data: bytes
    model: str
    stream: bool
    include_usage: bool
    has_options: bool
    edge_metadata: Mapping[str, Any]

    def for_provider(self, model: str, *, ask_usage: bool) -> bytes:
        """See :class:`TunnelBody`."""
        data = self.data
        renamed = model != self.model
        if self.edge_metadata or (ask_usage and self.has_options):
            return self._anew(model, ask_usage=ask_usage)
        if not renamed and _only_model(data) is None and _is_named_twice(data):
            # A provider may go by the first of two names: another than the key was judged by.
            return self._anew(model, ask_usage=ask_usage)
        if renamed:
            place = _only_model(data)
            if place is None:
                return self._anew(model, ask_usage=ask_usage)
            begin, end = place
            data = b"".join((data[:begin], strict_json.encode(model), data[end:]))
        if ask_usage:
            # The object has a key at least, that of the model, so the comma is right.
            begin = data.index(b"{") + 1
            data = b"".join((data[:begin], _ASKING, data[begin:]))
        return data

    def _anew(self, model: str, *, ask_usage: bool) -> bytes:
        tree: dict[str, Any] = strict_json.parse(self.data)
        tree["model"] = model
        if ask_usage:
            tree["stream_options"] = {**(tree.get("stream_options") or {}), "include_usage": True}
        metadata = tree.get("metadata")
        if isinstance(metadata, dict):
            kept = {k: v for k, v in metadata.items() if not k.startswith(EDGE_METADATA)}
            tree["metadata"] = kept
            if not kept:
                del tree["metadata"]
        return strict_json.encode(tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormBody:
    """A body that is a form; see :class:`TunnelBody`. ``begin`` and ``end`` enclose the name."""

    data: bytes
    model: str
    begin: int
    end: int
    stream: bool = False
    include_usage: bool = False
    edge_metadata: Mapping[str, Any] = field(default_factory=dict)

    def for_provider(self, model: str, *, ask_usage: bool) -> bytes:  # noqa: ARG002 - forms have no usage to ask for
        """See :class:`TunnelBody`."""
        if model == self.model:
            return self.data
        return b"".join((self.data[: self.begin], model.encode(), self.data[self.end :]))


def json_body(data: bytes, tree: dict[str, Any]) -> JsonBody:
    """What is read of a JSON body that has been parsed.

    Raises:
        InvalidRequest: it names no model.
    """
    model = tree.get("model")
    if not isinstance(model, str) or not model:
        told = "is missing" if model is None else "must be a string that is not empty"
        raise InvalidRequest(f"model {told}.", param="model")
    options = tree.get("stream_options")
    metadata = tree.get("metadata")
    return JsonBody(
        data=data,
        model=model,
        stream=tree.get("stream") is True,
        # Options that are none are the provider's to refuse; nothing is added to them.
        include_usage=options.get("include_usage") is True
        if isinstance(options, dict)
        else options is not None,
        has_options="stream_options" in tree,
        edge_metadata={k: v for k, v in metadata.items() if k.startswith(EDGE_METADATA)}
        if isinstance(metadata, dict)
        else {},
    )


def read_tunnelled(data: bytes, content_type: str) -> TunnelBody:
    """What is read of any body.

    Raises:
        InvalidRequest: it is neither JSON nor a form with files, or names no model.
    """
    if content_type.lstrip().lower().startswith("multipart/form-data"):
        return form_body(data, content_type)
    tree = strict_json.decode(data, what="The body")
    if not isinstance(tree, dict):
        raise InvalidRequest("The body must be an object that names a model.", param="model")
    return json_body(data, tree)


def form_body(data: bytes, content_type: str) -> FormBody:
    """What is read of a form with files (RFC 7578).

    Raises:
        InvalidRequest: it names no model, or no boundary.
    """
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise InvalidRequest("The form's content type names no boundary.", param="model")
    delimiter = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    places = _fields(data, delimiter, b"model")
    if len(places) > 1:
        raise InvalidRequest("The form names more than one model.", param="model")
    begin, end = places[0] if places else (0, 0)
    try:
        model = data[begin:end].decode()
    except UnicodeDecodeError:
        model = ""
    if not model or end - begin > MAX_MODEL:
        raise InvalidRequest("The form names no model.", param="model")
    return FormBody(data=data, model=model, begin=begin, end=end)


def _fields(data: bytes, delimiter: bytes, name: bytes) -> list[tuple[int, int]]:
    """Where the values of a form's fields of this name are."""
    at = 0 if data.startswith(delimiter) else data.find(b"\r\n" + delimiter)
    found: list[tuple[int, int]] = []
    between = b"\r\n" + delimiter
    while at >= 0:
        head = data.find(b"\r\n", at + 2)
        head_end = data.find(b"\r\n\r\n", head, head + MAX_PART_HEAD) if head >= 0 else -1
        at = data.find(between, max(head, 0))
        if head < 0 or head_end < 0 or at < 0:
            break
        if head_end < at and _is_field(data[head:head_end], name):
            found.append((head_end + 4, max(at, head_end + 4)))
    return found


def _is_field(head: bytes, name: bytes) -> bool:
    for line in head.split(b"\r\n"):
        if line[:20].lower() == b"content-disposition:":
            named = _NAME.search(line)
            return (
                named is not None
                and (named[1] if named[1] is not None else named[2]) == name
                and not _FILE.search(line)
            )
    return False


def _only_model(data: bytes) -> tuple[int, int] | None:
    """Where the model's name stands, quotes included; None where that is not certain."""
    if data.count(_MODEL_KEY) != 1 or _SPELT_OTHERWISE in data:
        return None
    match = _MODEL_VALUE.search(data)
    return match.span(1) if match else None


def _is_named_twice(data: bytes) -> bool:
    """Whether the outermost object has the key ``model`` more than once."""
    outermost: list[tuple[str, Any]] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        outermost[:] = pairs  # objects are told of from the inside out

    json.loads(data, object_pairs_hook=note)
    return sum(key == "model" for key, _ in outermost) > 1
