"""Where errors become bytes, and nowhere else.

An error leaves either as a whole answer, while the head is still unsent, or as one SSE event and
``[DONE]`` behind what was streamed. Both carry the same object,
``{"error": {"message", "type", "param", "code"}}``.

A provider's refusal is told as it is where it speaks about the client's request (its 4xx status,
its own error object). Where it speaks about us it is translated: 401, 403 and 407 mean that the
gateway's credentials are wrong, which is a 502 that shows nothing of them; 429 stays 429 and 408
becomes 503, both with ``Retry-After``; a 5xx is a 502.
"""

import json
from collections.abc import Sequence
from math import ceil
from typing import Any

import orjson

from edge.errors import (
    EdgeError,
    InvalidRequest,
    Overloaded,
    ProviderError,
    ProviderRefused,
    RateLimited,
)
from edge.runs.reply import Reply
from edge.wire.strict_json import MalformedJson, parse

HeaderPairs = Sequence[tuple[bytes, bytes]]

_OURS = frozenset({401, 403, 407})
_DEFAULT_RETRY_AFTER_S = 1.0


def error_response(
    error: EdgeError, headers: HeaderPairs = ()
) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """The whole answer an error makes.

    Args:
        error: what went wrong.
        headers: more headers for the answer (request id, run id).

    Returns:
        Status, headers without framing, body.
    """
    told = _told(error)
    fields = [(b"content-type", b"application/json"), *headers]
    if told.retry_after_s is not None:
        fields.append((b"retry-after", b"%d" % max(1, ceil(told.retry_after_s))))
    if error.spent:
        fields.append((b"x-should-retry", b"false"))
    return told.status, fields, _own_bytes(told) or _dump(told.body())


def error_event(error: EdgeError) -> bytes:
    """What ends a stream that has begun: one SSE error event, then ``[DONE]``."""
    return b"data: " + _dump(_told(error).body()) + b"\n\ndata: [DONE]\n\n"


def told_object(error: EdgeError) -> tuple[int, dict[str, Any]]:
    """The status that HTTP would have, and the error object itself."""
    told = _told(error)
    tree: dict[str, Any] = told.body()["error"]
    return told.status, tree


async def send_error(reply: Reply, error: EdgeError, headers: HeaderPairs = ()) -> None:
    """Send an error as the whole answer; the reply must not have been started.

    Raises:
        ClientGone: as the reply does.
    """
    status, fields, body = error_response(error, headers)
    await reply.start(status, fields, content_length=len(body))
    await reply.finish(body)


def _told(error: EdgeError) -> EdgeError:
    """The error as the client is to see it."""
    if not isinstance(error, ProviderRefused):
        return error
    status = error.upstream_status
    if status == 429:
        return RateLimited(error.message, retry_after_s=_retry_after(error))
    if status == 408:
        return Overloaded(error.message, retry_after_s=_retry_after(error))
    if status in _OURS:
        return ProviderError("The provider refused the gateway's own credentials.")
    return error if not 400 <= status < 500 else _Refusal(error)


def _retry_after(error: EdgeError) -> float:
    return _DEFAULT_RETRY_AFTER_S if error.retry_after_s is None else error.retry_after_s


class _Refusal(EdgeError):
    """A provider's own 4xx, in its own words where they have our shape."""

    def __init__(self, refused: ProviderRefused) -> None:
        super().__init__(refused.message, retry_after_s=refused.retry_after_s)
        self.status = refused.upstream_status
        self.type = InvalidRequest.type
        self._came = refused.upstream_body
        self._upstream = _object(refused.upstream_body)
        for key in ("error", "message", "detail"):
            words = self._upstream.get(key)
            if isinstance(words, str):
                self.message = words
                break

    def own_bytes(self) -> bytes:
        """The provider's body as it came, if it has our shape."""
        return self._came if isinstance(self._upstream.get("error"), dict) else b""

    def body(self) -> dict[str, Any]:
        """The provider's body, or ours with the provider's words in it."""
        if isinstance(self._upstream.get("error"), dict):
            return self._upstream
        return super().body()


def _own_bytes(error: EdgeError) -> bytes:
    return error.own_bytes() if isinstance(error, _Refusal) else b""


def _object(body: bytes) -> dict[str, Any]:
    try:
        tree = parse(body)
    except MalformedJson:
        return {}
    return tree if isinstance(tree, dict) else {}


def _dump(tree: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(tree)
    except orjson.JSONEncodeError:
        # A lone surrogate out of a model's text, or an integer beyond 64 bits.
        return json.dumps(tree).encode("ascii")
