"""The SSE decoder: any bytes, in any cut, give what the standard says, within the bound.

The standard's own algorithm, line by line and without a thought for speed, is the judge.
"""

from collections.abc import Iterable

from edge.errors import ProviderProtocolError
from edge.wire.sse import DONE, HEARTBEAT, SseDecoder, encode_event
from edge.wire.strict_json import encode
from fuzz.draw import Draw, cut, finely
from tests.conformance.cases import CASES, chunks_of

MAX_BYTES = 2000
WORDS = (
    b"data: ", b"data:", b"error: ", b"event: ", b"\n\n", b"\r\n\r\n", b"\r", b"\xef\xbb\xbf",
)  # fmt: skip

BOUNDS = (16, 64, 1000, 8 * 1024 * 1024)


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    bound, seed = draw.pick(BOUNDS), draw.below(65536)
    stream = draw.rest()
    whole = decoded([stream], bound)
    assert decoded(cut(stream, seed), bound) == whole
    assert decoded(finely(stream, seed), bound) == whole
    if None not in whole:
        told = [payload for payload in whole if payload is not None]
        assert told == by_the_standard(stream)
        assert all(len(payload) <= bound for payload in told)
        again = [payload for payload in told if b"\n" not in payload]
        assert decoded([b"".join(map(encode_event, again))], bound + 6) == again


def decoded(pieces: list[bytes], bound: int) -> list[bytes | None]:
    """All payloads, and None where the decoder refused to go on."""
    decoder = SseDecoder(max_event_bytes=bound)
    payloads: list[bytes | None] = []
    try:
        for piece in pieces:
            payloads += decoder.feed(piece)
        payloads += decoder.finish()
    except ProviderProtocolError:
        payloads.append(None)
    return payloads


def by_the_standard(stream: bytes) -> list[bytes]:
    """WHATWG HTML, "Interpreting an event stream", with the two liberties the decoder takes."""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    payloads: list[bytes] = []
    lines: list[bytes] = []
    for line in [*text.split(b"\n"), b""]:
        field, _, value = line.partition(b":")
        if not line:
            payloads += [payload] if (payload := b"\n".join(lines)) else []
            lines = []
        elif field in (b"data", b"error"):
            lines.append(value.removeprefix(b" "))
    return payloads


def seeds() -> Iterable[bytes]:
    """Recorded answers as streams, with every kind of line end."""
    for number, case in enumerate(CASES[::3]):
        events = b"".join(encode_event(encode(chunk)) for chunk in chunks_of(case))
        stream = HEARTBEAT + events + DONE
        for line_end in (b"\n", b"\r\n", b"\r")[: 1 if number % 8 else 3]:
            yield bytes((number % 4, 0, number % 256)) + stream.replace(b"\n", line_end)[:MAX_BYTES]
    yield b"\x00\x00\x01\xef\xbb\xbf: c\n\ndata:a\ndata: b\ndata\n\nerror: {}\r\rdata: end"
