"""Chunks that differ from one another in their text alone, read without reading the rest again.

Nearly every chunk of an answer is the chunk before it with another piece of text: same id, same
model, same time, one choice, ``{"content": "…"}``. Once one of them has been decoded in full, the
bytes before and behind its text are known. A later payload that begins and ends with the same
bytes, with one JSON string between them, can only be the same object with that string in its
place, since JSON has no context. So only the string is decoded.

What is remembered is checked once by putting another text between the same bytes and decoding
that in full. Anything else (a role, a finish, usage, log probabilities, a call, another choice)
is not remembered and is decoded in full, always.

A read that holds such chunks and nothing else need not even be cut into events: no JSON string
holds a line feed, so if what stands between the known bytes is a string, the events are whole.
"""

from typing import Any

import orjson
from orjson import loads

from edge.wire.openai_chunks import decode_chunk

_KEY = b'"content":'
_PROBE = "?"
_MOST_IN_VAIN = 8
"""Shapes that are learnt without being met again; then it is given up."""


class SameText:
    """Reads the payloads of one stream: ``text_of`` each, and ``learn`` what had to be decoded."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_left")

    def __init__(self) -> None:
        self._before = b""  # of a payload, up to the quote that opens its text; empty: unknown
        self._after = b""  # from the quote that closes it
        self._begin = b""  # the same two as they stand in the stream
        self._end = b""
        self._left = _MOST_IN_VAIN

    def text_of(self, payload: bytes) -> str | None:
        """The text of choice 0, if that is all that is new; never empty."""
        string = _quoted(payload, self._before, self._after)
        if not string:
            return None
        try:
            text: str = loads(string)
        except orjson.JSONDecodeError:
            return None
        self._left = _MOST_IN_VAIN
        return text

    def texts_of(self, data: bytes, max_bytes: int) -> list[str] | None:
        """The texts of a read, behind a whole event, that is made of such payloads alone.

        None where it is not, or is longer than ``max_bytes``, which bound each event: then it is
        to be cut.
        """
        begin, end = self._begin, self._end
        strings = _quoted(data, begin, end)
        if not strings or len(data) > max_bytes:
            return None
        try:
            if b"\n" not in strings:
                texts = [loads(strings)]
            else:
                texts = [loads(b'"%b"' % each) for each in strings[1:-1].split(end + begin)]
        except orjson.JSONDecodeError:
            return None
        if "" in texts:
            return None
        self._left = _MOST_IN_VAIN
        return texts

    def learn(self, payload: bytes, chunk: dict[str, Any]) -> None:
        """Remember the shape of a decoded chunk, if it is one of a piece of text of choice 0."""
        if self._left <= 0 or payload.count(_KEY) != 1:
            return
        text = _only_text(chunk)
        if not text:
            return
        self._left -= 1
        begin = payload.index(_KEY) + len(_KEY)
        begin += payload[begin:].startswith(b" ")
        literal = orjson.dumps(text)
        if not payload.startswith(literal, begin):
            return  # the server escapes otherwise; the next piece will do
        before, after = payload[:begin], payload[begin + len(literal) :]
        if _stands_for_text(before, after, chunk):
            self._before, self._after = before + b'"', b'"' + after
            self._begin, self._end = b"data: " + self._before, self._after + b"\n\n"


def _quoted(data: bytes, before: bytes, after: bytes) -> bytes:
    """What stands between, with a quote on each side: if that is JSON, it is a string, not empty.

    Empty where the bytes are others, or nothing stands between them.
    """
    if not before or len(data) <= len(before) + len(after):
        return b""
    if not (data.startswith(before) and data.endswith(after)):
        return b""
    return data[len(before) - 1 : len(data) - len(after) + 1]


def _only_text(chunk: dict[str, Any]) -> str:
    """The text of a chunk that says nothing else; empty where there is more to it."""
    choices = chunk.get("choices")
    if type(choices) is not list or len(choices) != 1 or chunk.get("usage"):
        return ""
    choice = choices[0]
    if type(choice) is not dict or choice.get("index", 0) != 0:
        return ""
    delta = choice.get("delta")
    if any(value for name, value in choice.items() if name not in ("index", "delta")):
        return ""
    if type(delta) is not dict:
        return ""
    if any(value for name, value in delta.items() if name not in ("role", "content")):
        return ""  # servers repeat the role, and fill other fields with null
    text = delta.get("content")
    return text if type(text) is str else ""


def _stands_for_text(before: bytes, after: bytes, chunk: dict[str, Any]) -> bool:
    """Whether what stands between these bytes is the text, and nothing but the text."""
    probe = decode_chunk(before + orjson.dumps(_PROBE) + after)
    (choice,) = chunk["choices"]
    return probe == {
        **chunk,
        "choices": [{**choice, "delta": {**choice["delta"], "content": _PROBE}}],
    }
