"""Decoding answers: what each framing means, and that the cuts of the input do not matter."""

import gc
import itertools
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.providers.http1 import AnswerParser

LIMIT = 4096


@dataclass(frozen=True)
class Decoded:
    """All that a caller can see of an answer."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes
    complete: bool
    keep_alive: bool
    fault: str | None


def decode(
    pieces: Iterable[bytes], method: str = "POST", *, clean: bool = True, closed: bool = True
) -> Decoded:
    parser = AnswerParser(LIMIT)
    parser.expect(method)
    body = b""
    for piece in pieces:
        parser.feed(piece)
        body += parser.take()
    keep_alive = parser.keep_alive
    if closed:
        parser.finish(clean=clean)
    return Decoded(parser.status, parser.headers, body, parser.complete, keep_alive, parser.fault)


HEAD = b"HTTP/1.1 200 OK\r\n"
SOUND = {
    "length-framed": HEAD + b"Content-Length: 5\r\n\r\nhello",
    "chunked": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n",
    "trailers": HEAD
    + b"Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a\r\n\r\n",
    "informational": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    + HEAD
    + b"Content-Length: 5\r\n\r\nhello",
}
UNTIL_CLOSE = HEAD + b"Server: old\r\n\r\nhello"
BROKEN = {
    "HTML": b"<html><body>Bad gateway</body></html>",
    "HTTP/2": b"HTTP/2.0 200 OK\r\n\r\n",
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "status 0": b"HTTP/1.1 000 OK\r\nContent-Length: 0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    "blank before the colon": HEAD + b"Content-Length : 0\r\n\r\n",
    "folded header": HEAD + b"X: a\r\n b\r\n\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "length that is no number": HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "length and chunks": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "gzip coding": HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "bad chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "chunk longer than said": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n",
    "switching protocols": b"HTTP/1.1 101 S\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "another answer instead": HEAD + b"Content-Length: 5\r\n\r\nhel",
    "half a head": HEAD + b"Content-Le",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "no last chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("wire", SOUND.values(), ids=SOUND)
def test_a_framed_answer_is_complete_before_the_connection_closes(wire: bytes) -> None:
    got = decode([wire], closed=False)

    assert (got.status, got.body) == (200, b"hello")
    assert (got.complete, got.keep_alive, got.fault) == (True, True, None)


def test_header_names_are_lowered_values_stripped_and_repeats_kept_in_order() -> None:
    got = decode([HEAD + b"X-A:  1 \r\nX-B:\r\nx-a: Two\r\nContent-Length: 0\r\n\r\n"])

    assert got.headers[:3] == [(b"x-a", b"1"), (b"x-b", b""), (b"x-a", b"Two")]


def test_informational_heads_and_trailers_leave_no_header_behind() -> None:
    names = [name for kind in SOUND for name, _ in decode([SOUND[kind]]).headers]

    assert set(names) == {b"content-length", b"transfer-encoding"}


def test_a_body_without_framing_ends_with_the_connection_and_cannot_be_reused() -> None:
    got = decode([UNTIL_CLOSE])

    assert (got.body, got.complete, got.keep_alive, got.fault) == (b"hello", True, False, None)


def test_a_reset_does_not_end_a_body_without_framing() -> None:
    got = decode([UNTIL_CLOSE], clean=False)

    assert (got.body, got.complete) == (b"hello", False)
    assert got.fault == "closed the connection before the end of its answer"


@pytest.mark.parametrize("wire", BROKEN.values(), ids=BROKEN)
def test_what_is_not_a_sound_answer_is_a_fault_at_the_latest_when_it_ends(wire: bytes) -> None:
    got = decode([wire] if wire else [])

    assert not got.complete
    assert got.fault is not None


def test_body_bytes_before_a_fault_are_handed_out() -> None:
    got = decode([HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n"])

    assert got.body == b"hello"
    assert got.fault is not None


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body_by_its_status_is_complete_and_reusable(status: int) -> None:
    got = decode([b"HTTP/1.1 %d X\r\nETag: 1\r\n\r\n" % status], closed=False)

    assert (got.status, got.complete, got.keep_alive) == (status, True, True)


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""]
)
def test_the_answer_to_head_is_complete_with_its_head(framing: bytes) -> None:
    got = decode([HEAD + framing + b"\r\n"], "HEAD", closed=False)

    assert (got.body, got.complete, got.fault) == (b"", True, None)


def test_a_body_sent_to_head_all_the_same_is_not_handed_out() -> None:
    got = decode([HEAD + b"Content-Length: 5\r\n\r\nhel", b"lo"], "HEAD", closed=False)

    assert (got.body, got.complete, got.keep_alive, got.fault) == (b"", True, True, None)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n",
        b"HTTP/1.0 200 OK\r\n",
    ],
)
def test_an_answer_that_ends_the_connection_is_complete_and_not_reusable(head: bytes) -> None:
    got = decode([head + b"Content-Length: 5\r\n\r\nhello"], closed=False)

    assert (got.body, got.complete, got.keep_alive) == (b"hello", True, False)


@pytest.mark.parametrize("surplus", [b"HTTP/1.1 200 OK\r\n", b"x", SOUND["length-framed"]])
def test_bytes_after_the_answer_spoil_the_connection_but_not_the_answer(surplus: bytes) -> None:
    got = decode([SOUND["length-framed"] + surplus], closed=False)

    assert (got.status, got.body, len(got.headers)) == (200, b"hello", 1)
    assert (got.complete, got.keep_alive, got.fault) == (True, False, None)


def test_one_parser_decodes_one_answer_after_the_other() -> None:
    parser = AnswerParser(LIMIT)

    for wire in SOUND.values():
        parser.expect("POST")
        parser.feed(wire)

        assert (parser.take(), parser.complete, parser.keep_alive) == (b"hello", True, True)


def test_bytes_that_nobody_took_are_not_part_of_the_next_answer() -> None:
    parser = AnswerParser(LIMIT)
    parser.expect("POST")
    parser.feed(HEAD + b"Content-Length: 5\r\n\r\nfirst")

    parser.expect("POST")
    parser.feed(SOUND["length-framed"])

    assert parser.take() == b"hello"


def _padded_head(size: int) -> bytes:
    fixed = HEAD + b"Content-Length: 0\r\nX: \r\n\r\n"
    return fixed.replace(b"X: ", b"X: " + b"a" * (size - len(fixed)))


@pytest.mark.parametrize("cut", [1, 1000, LIMIT - 1, LIMIT, LIMIT + 1])
def test_a_head_may_be_as_long_as_the_limit_and_not_a_byte_longer(cut: int) -> None:
    fits, too_long = _padded_head(LIMIT), _padded_head(LIMIT + 1)

    assert decode([fits[:cut], fits[cut:] or b"\r\n"]).complete
    assert decode([too_long[:cut], too_long[cut:]]).fault == (
        f"sent a head of more than {LIMIT} bytes"
    )


def test_the_room_for_framing_is_not_what_a_long_head_left() -> None:
    parser = AnswerParser(LIMIT)
    long_head = HEAD + b"Transfer-Encoding: chunked\r\nX: \r\n\r\n"
    parser.feed(long_head.replace(b"X: ", b"X: " + b"a" * (LIMIT - len(long_head))))
    parser.feed(b"5;comment=x\r\n")
    parser.feed(b"hello")

    assert (parser.fault, parser.take()) == (None, b"hello")


def test_a_large_body_right_behind_a_head_is_not_counted_as_head() -> None:
    got = decode([HEAD + b"Content-Length: 9000\r\n\r\n" + b"x" * 9000])

    assert (len(got.body), got.complete) == (9000, True)


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (HEAD + b"X: ", b"a" * 500),
        (HEAD, b"X: a\r\n" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 20),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 500),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: a\r\n" * 100),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5;x=", b"a" * 500),
    ],
    ids=["value", "fields", "informational", "trailer value", "trailers", "chunk extension"],
)
def test_what_never_ends_is_a_fault_soon(start: bytes, more: bytes) -> None:
    parser = AnswerParser(LIMIT)
    if start:
        parser.feed(start)
    fed = 0
    while parser.fault is None and fed < 10 * LIMIT:
        parser.feed(more)
        fed += len(more)

    assert LIMIT - len(start) - len(more) <= fed <= LIMIT + len(more)


def test_a_long_stream_of_small_chunks_is_no_fault() -> None:
    parser = AnswerParser(LIMIT)
    parser.feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    total = 0
    for _ in range(LIMIT):
        for piece in (b"1\r\n", b"x", b"\r\n"):
            parser.feed(piece)
        total += len(parser.take())

    assert (total, parser.fault) == (LIMIT, None)


WIRES = st.sampled_from([*SOUND.values(), UNTIL_CLOSE, *filter(None, BROKEN.values())])


@given(wire=WIRES, data=st.data(), method=st.sampled_from(["POST", "HEAD"]))
def test_the_cuts_of_the_input_do_not_matter(wire: bytes, data: st.DataObject, method: str) -> None:
    cuts = data.draw(st.sets(st.integers(1, max(1, len(wire) - 1))).map(sorted))
    bounds = [0, *cuts, len(wire)]
    pieces = [wire[a:b] for a, b in itertools.pairwise(bounds) if a < b]

    assert decode(pieces, method) == decode([wire], method)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(sorted(SOUND.values())))
def test_any_bytes_end_in_a_sound_answer_or_a_fault(noise: bytes, sound: bytes) -> None:
    for wire in (noise, sound[: len(sound) // 2] + noise, noise + sound):
        got = decode([wire])

        assert got.complete == (got.fault is None)


@given(st.lists(st.binary(min_size=1, max_size=40)))
def test_chunks_come_out_as_they_were_put_in(pieces: list[bytes]) -> None:
    wire = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    wire += b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"

    assert decode([wire]).body == b"".join(pieces)


def test_a_closed_parser_leaves_no_work_to_the_garbage_collector() -> None:
    class Watched(AnswerParser):
        """Has a place for weak references."""

    gc.disable()
    try:
        parser = Watched(LIMIT)
        watch = weakref.ref(parser)
        parser.close()
        del parser

        assert watch() is None
    finally:
        gc.enable()
