"""Many runs over one WebSocket: any message is read or refused, and any answer is whole frames.

A frame holds one JSON value with the client's own id, whatever cut the answer's bytes come in.
"""

from collections.abc import Iterable

from edge.errors import InvalidRequest
from edge.wire.socket_frames import RunFrames, read_message
from edge.wire.sse import DONE, HEARTBEAT, encode_event
from edge.wire.strict_json import encode, parse
from edge.wire.websocket import PING
from fuzz.draw import Draw, cut, edited, finely

MAX_BYTES = 1500
WORDS = (
    b'"id":', b'"request":', b'"cancel":true', b"{}", b"[]", b"null", b"\\ud83d\\ude00",
    b"\\u0000",
)  # fmt: skip

BASES = (
    {"id": "a", "request": {"model": "m", "messages": [{"role": "user", "content": "go"}]}},
    {"id": 7, "cancel": True},
    {"id": 2**70, "request": {}, "cancel": False},
)


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    is_text, seed = draw.flag(), draw.below(65536)
    if is_text:
        message = draw.rest()
        tree = {"text": message.decode("utf-8", "replace")}
    else:
        tree = edited(draw.pick(BASES), draw)
        message = encode(tree)
    try:
        asked = read_message(message)
    except InvalidRequest as refused:
        assert refused.message
        return
    assert read_message(message.decode()) == asked
    check_frames(asked.id, tree, seed)


def check_frames(asked_id: str | int, tree: object, seed: int) -> None:
    """What the client of that id is told, in three cuts."""
    chunks = [encode(tree), b'{"n":"a\\n\\nb"}', b"{}"]
    events = [encode_event(chunk) for chunk in chunks]
    stream = events[0] + HEARTBEAT + b"".join(events[1:]) + DONE
    expected: list[object] = [{"id": asked_id, "chunk": parse(chunk)} for chunk in chunks]
    expected.insert(1, None)
    for pieces in ([stream], cut(stream, seed), finely(stream, seed)):
        frames = RunFrames(asked_id)
        assert told(b"".join(map(frames.chunks, pieces))) == expected
    frames = RunFrames(asked_id)
    assert told(frames.completion(encode(tree))) == [{"id": asked_id, "completion": tree}]
    assert told(frames.done("run_1")) == [{"id": asked_id, "done": True, "run_id": "run_1"}]
    failed = {"message": "no"}
    assert told(frames.error(502, failed)) == [{"id": asked_id, "status": 502, "error": failed}]


def told(frames: bytes) -> list[object]:
    """The values of whole frames, read by RFC 6455; a ping is None."""
    found: list[object] = []
    while frames:
        if frames.startswith(PING):
            found.append(None)
            frames = frames[len(PING) :]
            continue
        assert frames[0] == 0x81
        size, start = frames[1], 2
        if size == 126:
            size, start = int.from_bytes(frames[2:4], "big"), 4
        elif size == 127:
            size, start = int.from_bytes(frames[2:10], "big"), 10
        payload = frames[start : start + size]
        assert len(payload) == size
        found.append(parse(payload))
        frames = frames[start + size :]
    return found


def seeds() -> Iterable[bytes]:
    """Each base as it is, and as text."""
    for number, base in enumerate(BASES):
        yield bytes((0, 0, number, number))
        yield bytes((1, 0, number)) + encode(base)
