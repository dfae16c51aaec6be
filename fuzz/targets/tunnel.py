"""What passes through: not a byte is lost or changed that should not be, whatever the cut.

The tap takes out whole usage events and nothing else, the cutter of followed streams loses nothing,
and a key is taken out of an error in every cut. A request is changed in its model's name and in
what asks for usage alone.
"""

import json
from collections.abc import Iterable
from typing import Any

from edge.core.passed_events import EventCutter
from edge.core.usage_tap import BodyTap, StreamTap, Tap
from edge.errors import InvalidRequest
from edge.providers.redaction import Redaction
from edge.wire import strict_json
from edge.wire.sse import DONE, HEARTBEAT, encode_event
from edge.wire.tunnelled import read_tunnelled
from fuzz.draw import Draw, cut, finely
from tests.conformance.cases import CASES, chunks_of

MAX_BYTES = 1500
WORDS = (
    b"data: {", b'"usage":{', b'"choices":[]', b'"choices":[{', b"\n\n", b"\r\n\r\n", b"\n\r\n",
    b'"finish_reason":"stop"', b"data: [DONE]\n\n", b'"model":"m"', b'"model"', b"\\u006d",
    b'"stream_options":{', b'"include_usage":true', b"--b", b"\r\n\r\n", b"sk-secret",
    b'Content-Disposition: form-data; name="model"',
)  # fmt: skip

KEY = "sk-secret"
FORM_TYPE = "multipart/form-data; boundary=b"
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nmodel\r\n--b--\r\n'
)
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    judge, option, seed = draw.pick(JUDGES), draw.flag(), draw.below(65536)
    judge(draw.rest(), seed, option)


def check_tap(stream: bytes, seed: int, option: bool) -> None:
    """Of a stream: what is taken out is whole events that report usage and hold no choice."""
    whole = tapped(StreamTap(cut=option), [stream])
    assert tapped(StreamTap(cut=option), cut(stream, seed)) == whole
    assert tapped(StreamTap(cut=option), finely(stream, seed)) == whole
    passed = whole[0]
    if passed == stream:
        return
    assert option
    assert b'"usage"' in stream
    assert subsequence(passed, stream)
    assert b'"choices":[{' not in stream or b'"choices":[{' in passed


def tapped(tap: Tap, pieces: list[bytes]) -> tuple[bytes, dict[str, Any] | None, bool]:
    """What passed, the usage that was read, and whether the answer has come to its end."""
    passed = b"".join(map(tap.feed, pieces)) + tap.finish()
    return passed, tap.usage, tap.complete


def subsequence(part: bytes, whole: bytes) -> bool:
    """Whether all of a text occurs in another, in order."""
    left = iter(whole)
    return all(byte in left for byte in part)


def check_body_tap(body: bytes, seed: int, _: bool) -> None:
    """Of a JSON body."""
    whole = tapped(BodyTap(), [body])
    assert whole[0] == body
    assert tapped(BodyTap(), cut(body, seed)) == whole


def check_cutter(stream: bytes, seed: int, _: bool) -> None:
    """Of a stream that is followed."""
    for pieces in ([stream], cut(stream, seed), finely(stream, seed)):
        cutter = EventCutter()
        found = [cutter.feed(piece) for piece in pieces if piece]
        passed = b"".join(each.events for each in (*found, cutter.finish()) if each is not None)
        assert passed in (stream, stream + b"\n\n")


def check_redaction(body: bytes, seed: int, _: bool) -> None:
    """Of an error's body: the same in every cut, and without the key."""
    redaction = Redaction(KEY)
    for pieces in (cut(body, seed), finely(body, seed)):
        redactor = redaction.in_pieces()
        told = b"".join(map(redactor.feed, pieces)) + redactor.finish()
        assert told == redaction.body(body)
        assert KEY.encode() not in told


def check_request(body: bytes, _: int, option: bool) -> None:
    """Of a request."""
    content_type = FORM_TYPE if body.startswith(b"--") else "application/json"
    try:
        read = read_tunnelled(body, content_type)
    except InvalidRequest as refused:
        assert refused.message
        return
    ask_usage = option and not read.include_usage
    sent = read.for_provider("theirs", ask_usage=ask_usage)
    assert read_tunnelled(sent, content_type).model == "theirs"
    if content_type == FORM_TYPE:
        assert len(sent) == len(body) - len(read.model.encode()) + len("theirs")
        assert read.for_provider(read.model, ask_usage=ask_usage) is body
        return
    before, after = strict_json.parse(body), strict_json.parse(sent)
    names: list[int] = []
    json.loads(
        sent, object_pairs_hook=lambda pairs: names.append([k for k, _ in pairs].count("model"))
    )
    assert names[-1] == 1, "a provider may go by another of two names"
    for own in ("model", "stream_options", "metadata"):
        before.pop(own, None), after.pop(own, None)
    assert strict_json.encode(after) == strict_json.encode(before)


JUDGES = (check_tap, check_body_tap, check_cutter, check_redaction, check_request)


def seeds() -> Iterable[bytes]:
    """Streams with and without reports of usage, bodies, errors and requests."""
    report = encode_event(strict_json.encode({"choices": [], "usage": USAGE}))
    for number, case in enumerate(CASES[::6]):
        events = b"".join(encode_event(strict_json.encode(each)) for each in chunks_of(case))
        stream = (HEARTBEAT + events)[: MAX_BYTES - 200] + report + DONE
        if number % 3 == 2:
            stream = stream.replace(b"\n", b"\r\n")
        yield bytes((0 if number % 2 else 2, 1, 0, number)) + stream
    yield b"\x01\x00\x00\x01" + strict_json.encode({"choices": [{}], "usage": USAGE})
    yield b"\x03\x00\x00\x01" + b'{"error": "bad key sk-secret, sk-sk-secret"}'
    requests = (
        {"model": "m", "input": ["x"], "stream": True},
        {"messages": [{"model": "x"}], "model": "m", "stream_options": {"a": 1}},
        {"model": "m", "metadata": {"edge.trace": "true", "own": "x"}},
    )
    for request in requests:
        for option in (0, 1):
            yield bytes((4, option, 0, 1)) + strict_json.encode(request)
    yield b'\x04\x01\x00\x01{"model": "a", "model": "b"}'
    yield b"\x04\x00\x00\x01" + FORM
