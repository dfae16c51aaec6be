"""The bytes of an answer, and what happens where the client does not take them."""

import socket
from collections.abc import Iterator

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from edge.runs.reply import ClientGone, Reply
from edge.server.client_reply import ClientReply, SocketWriter, closing_answer

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Our end and the client's, both non-blocking, with small buffers."""
    ours, theirs = make_pair()
    with ours, theirs:
        yield ours, theirs


def make_pair() -> Pair:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return ours, theirs


def read_all(client: socket.socket) -> bytes:
    """Everything that has arrived so far."""
    data = b""
    while True:
        try:
            piece = client.recv(1 << 20)
        except BlockingIOError:
            return data
        if not piece:
            return data
        data += piece


class Answer:
    """A reply on one end of a pair, and how often it reported its end."""

    def __init__(
        self,
        pair: Pair,
        *,
        method: str = "GET",
        chunks: bool = True,
        closes: bool = False,
        write_timeout_s: float = 30,
    ) -> None:
        self.completions = 0
        self.starts = 0
        self.closes = closes
        self.client = pair[1]
        self.writer = SocketWriter(pair[0], write_timeout_s=write_timeout_s)
        self.reply = ClientReply(
            self.writer,
            method=method,
            chunks=chunks,
            on_start=self._started,
            on_complete=self._completed,
            request_id=lambda: "req_test",
        )

    def _started(self) -> bool:
        self.starts += 1
        return self.closes

    def _completed(self) -> None:
        self.completions += 1

    def sent(self) -> tuple[bytes, bytes]:
        """What has arrived: the head without its date and its request id, and the body."""
        head, _, body = read_all(self.client).partition(b"\r\n\r\n")
        given = (b"date: ", b"x-request-id: ")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(given)]
        return b"\r\n".join(lines), body


async def answer_with(answer: Answer, status: int, length: int | None, *pieces: bytes) -> None:
    reply: Reply = answer.reply
    await reply.start(status, [(b"x-a", b"1")], content_length=length)
    for piece in pieces:
        await reply.write(piece)
    await reply.finish()


# Framing


async def test_a_body_of_unknown_length_goes_in_chunks(pair: Pair) -> None:
    answer = Answer(pair)
    await answer_with(answer, 200, None, b"abc", b"", b"x" * 17)
    head, body = answer.sent()

    assert head == b"HTTP/1.1 200 OK\r\nx-a: 1\r\ntransfer-encoding: chunked"
    assert body == b"3\r\nabc\r\n11\r\n" + b"x" * 17 + b"\r\n0\r\n\r\n"
    assert (answer.reply.complete, answer.reply.closes, answer.completions) == (True, False, 1)


async def test_a_body_of_known_length_is_counted(pair: Pair) -> None:
    answer = Answer(pair)
    await answer_with(answer, 404, 5, b"ab", b"cde")

    assert answer.sent() == (
        b"HTTP/1.1 404 Not Found\r\nx-a: 1\r\ncontent-length: 5",
        b"abcde",
    )
    assert answer.reply.complete


async def test_the_last_piece_and_the_end_leave_together(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    await answer.reply.write(b"")
    answer.sent()
    await answer.reply.finish(b"abc")

    assert read_all(answer.client) == b"3\r\nabc\r\n0\r\n\r\n"


async def test_a_head_with_a_known_length_leaves_with_the_body(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [], content_length=3)
    assert answer.reply.started
    assert read_all(answer.client) == b""
    await answer.reply.finish(b"abc")

    assert answer.sent()[1] == b"abc"


@pytest.mark.parametrize("length", [None, 3])
async def test_a_head_leaves_with_the_first_write_though_that_is_empty(
    pair: Pair, length: int | None
) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [], content_length=length)
    await answer.reply.write(b"")
    framing = b"content-length: 3" if length else b"transfer-encoding: chunked"
    assert answer.sent() == (b"HTTP/1.1 200 OK\r\n" + framing, b"")

    await answer.reply.finish(b"abc")
    assert read_all(answer.client) == (b"abc" if length else b"3\r\nabc\r\n0\r\n\r\n")


async def test_a_head_and_the_first_piece_leave_together(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    assert answer.reply.started
    assert read_all(answer.client) == b""
    assert answer.reply.write_now(b"abc")

    wire = read_all(answer.client)
    assert wire.endswith(b"\r\n\r\n3\r\nabc\r\n")
    assert wire.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_without_chunks_the_body_ends_with_the_connection(pair: Pair) -> None:
    answer = Answer(pair, chunks=False)
    await answer_with(answer, 200, None, b"abc")

    assert answer.sent() == (b"HTTP/1.1 200 OK\r\nx-a: 1\r\nconnection: close", b"abc")
    assert (answer.reply.complete, answer.reply.closes) == (True, True)


@pytest.mark.parametrize(
    ("method", "status", "length", "framing"),
    [
        ("HEAD", 200, None, b""),
        ("HEAD", 200, 3, b"\r\ncontent-length: 3"),
        ("GET", 204, None, b""),
        ("GET", 204, 3, b""),
        ("GET", 304, None, b""),
        ("GET", 200, 0, b"\r\ncontent-length: 0"),
    ],
)
async def test_some_answers_have_no_body(
    pair: Pair, method: str, status: int, length: int | None, framing: bytes
) -> None:
    answer = Answer(pair, method=method)
    await answer_with(answer, status, length, *([b"abc"] if length != 0 else []))
    head, body = answer.sent()

    assert head.split(b"\r\n", 1)[1] == b"x-a: 1" + framing
    assert body == b""
    assert answer.reply.complete


async def test_an_answer_that_ends_the_connection_says_so(pair: Pair) -> None:
    answer = Answer(pair, closes=True)
    await answer_with(answer, 200, 0)

    assert answer.sent()[0].endswith(b"connection: close")
    assert (answer.starts, answer.reply.closes) == (1, True)


@given(st.lists(st.binary(max_size=300), max_size=20), st.binary(max_size=300))
def test_chunks_put_together_are_what_was_written(pieces: list[bytes], last: bytes) -> None:
    async def main(pair: Pair) -> bytes:
        answer = Answer(pair)
        await answer.reply.start(200, [])
        body = b""
        for piece in pieces:
            await answer.reply.write(piece)
            body += read_all(answer.client)
        await answer.reply.finish(last)
        return (body + read_all(answer.client)).partition(b"\r\n\r\n")[2]

    ours, theirs = make_pair()
    with ours, theirs:
        wire = trio.run(main, (ours, theirs))

    assert unchunk(wire) == b"".join(pieces) + last


def unchunk(wire: bytes) -> bytes:
    """A chunked body by the book, which must end exactly where the bytes do."""
    body = b""
    while True:
        size, _, wire = wire.partition(b"\r\n")
        length = int(size, 16)
        body, wire = body + wire[:length], wire[length:]
        assert wire.startswith(b"\r\n")
        wire = wire[2:]
        if not length:
            assert wire == b""
            return body


async def test_every_head_has_a_request_id_and_only_one(pair: Pair) -> None:
    named = Answer(pair)
    await named.reply.start(200, [(b"x-request-id", b"mine")], content_length=0)
    await named.reply.finish()
    theirs = read_all(named.client)
    unnamed = Answer(pair)
    await unnamed.reply.start(200, [], content_length=0)
    await unnamed.reply.finish()

    assert theirs.count(b"x-request-id: mine\r\n") == 1
    assert theirs.count(b"x-request-id") == 1
    assert b"x-request-id: req_test\r\n" in read_all(unnamed.client)


async def test_framing_and_date_of_a_provider_do_not_double_ours(pair: Pair) -> None:
    answer = Answer(pair)
    headers = [(b"content-length", b"7"), (b"transfer-encoding", b"gzip"), (b"date", b"then")]
    await answer.reply.start(200, headers, content_length=0)
    await answer.reply.finish()

    assert read_all(answer.client) == (
        b"HTTP/1.1 200 OK\r\ndate: then\r\nx-request-id: req_test\r\ncontent-length: 0\r\n\r\n"
    )


# Misuse


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
async def test_a_header_cannot_smuggle_a_line_in(pair: Pair, value: bytes) -> None:
    answer = Answer(pair)
    with pytest.raises(ValueError, match="line break"):
        await answer.reply.start(200, [(b"x-a", value)])

    assert read_all(answer.client) == b""
    assert not answer.reply.started


async def test_an_answer_keeps_its_order(pair: Pair) -> None:
    answer = Answer(pair)
    with pytest.raises(RuntimeError):
        await answer.reply.write(b"a")
    with pytest.raises(RuntimeError):
        await answer.reply.finish()
    await answer.reply.start(200, [])
    with pytest.raises(RuntimeError):
        await answer.reply.start(200, [])
    await answer.reply.finish()
    with pytest.raises(RuntimeError):
        await answer.reply.write(b"a")


async def test_finishing_twice_adds_nothing(pair: Pair) -> None:
    answer = Answer(pair)
    await answer_with(answer, 200, None, b"abc")
    await answer.reply.finish(b"more")

    assert answer.sent()[1] == b"3\r\nabc\r\n0\r\n\r\n"
    assert answer.completions == 1


async def test_a_body_longer_than_declared_is_a_bug(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [], content_length=2)
    with pytest.raises(RuntimeError):
        await answer.reply.write(b"abc")


async def test_a_body_shorter_than_declared_is_not_complete(pair: Pair) -> None:
    answer = Answer(pair)
    await answer_with(answer, 200, 5, b"abc")

    assert (answer.reply.finished, answer.reply.complete) == (True, False)


# A client that is slow, or gone


async def test_a_client_that_left_is_told_of_as_client_gone(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    answer.client.close()
    with pytest.raises(ClientGone):
        await answer.reply.write(b"abc")
    with pytest.raises(ClientGone):
        await answer.reply.finish()

    assert answer.writer.gone
    assert answer.completions == 0


BIG = bytes(range(256)) * 4000


async def test_a_write_waits_for_the_client_and_loses_nothing(
    pair: Pair, nursery: trio.Nursery
) -> None:
    answer = Answer(pair)
    written = trio.Event()

    async def write() -> None:
        await answer_with(answer, 200, len(BIG), BIG)
        written.set()

    nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    assert not written.is_set()
    received = await read_until(answer.client, len(BIG))

    assert received == BIG
    await written.wait()


async def read_until(client: socket.socket, length: int) -> bytes:
    """The body, once so much of it has arrived."""
    data = b""
    while len(data.partition(b"\r\n\r\n")[2]) < length:
        data += read_all(client)
        await trio.lowlevel.checkpoint()
    return data.partition(b"\r\n\r\n")[2]


async def test_a_cancelled_write_does_not_tear_its_frame(pair: Pair, nursery: trio.Nursery) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_blocked, scope)
        await answer.reply.write(BIG)
    assert scope.cancelled_caught

    nursery.start_soon(answer.reply.finish, b"the end")
    wire = await read_until(answer.client, len(b"%x\r\n" % len(BIG)) + len(BIG) + 19)

    assert unchunk(wire) == BIG + b"the end"


async def cancel_when_blocked(scope: trio.CancelScope) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


async def test_writers_that_meet_take_turns(pair: Pair, nursery: trio.Nursery) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    nursery.start_soon(answer.reply.write, BIG)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(answer.reply.write, b"heartbeat")
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(answer.reply.finish)
    wire = await read_until(answer.client, len(b"%x\r\n" % len(BIG)) + len(BIG) + 21)

    assert unchunk(wire) == BIG + b"heartbeat"


async def test_a_cancelled_end_is_not_written_behind(pair: Pair, nursery: trio.Nursery) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    with trio.CancelScope() as scope:
        nursery.start_soon(cancel_when_blocked, scope)
        await answer.reply.finish(BIG)
    assert not answer.reply.finished

    nursery.start_soon(answer.reply.finish, b"too late")
    wire = await read_until(answer.client, len(b"%x\r\n" % len(BIG)) + len(BIG) + 7)

    assert unchunk(wire) == BIG


async def test_a_client_that_takes_nothing_has_given_up(
    pair: Pair, autojump_clock: trio.testing.MockClock
) -> None:
    answer = Answer(pair, write_timeout_s=30)
    await answer.reply.start(200, [])
    with pytest.raises(ClientGone, match="30 s"):
        await answer.reply.write(BIG)

    assert trio.current_time() == pytest.approx(30)
    with pytest.raises(ClientGone):
        await answer.reply.write(b"a")


async def test_a_writer_that_is_closed_ends_the_wait(pair: Pair, nursery: trio.Nursery) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    gone = trio.Event()

    async def write() -> None:
        with pytest.raises(ClientGone):
            await answer.reply.write(BIG)
        gone.set()

    nursery.start_soon(write)
    await trio.testing.wait_all_tasks_blocked()
    answer.writer.close()
    answer.client.close()
    await gone.wait()


async def test_many_writes_in_a_row_let_others_run(pair: Pair) -> None:
    answer = Answer(pair)
    await answer.reply.start(200, [])
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(200):
            await answer.reply.write(b"a")
            read_all(answer.client)
        nursery.cancel_scope.cancel()

    assert turns >= 200 // 32 - 2


def test_a_closing_answer_is_a_whole_one() -> None:
    answer = closing_answer(400, [(b"content-type", b"text/plain")], b"no")
    head, _, body = answer.partition(b"\r\n\r\n")

    assert head.startswith(
        b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\n"
        b"content-length: 2\r\nconnection: close\r\ndate: "
    )
    assert body == b"no"


async def test_a_status_without_a_phrase_is_still_a_status_line(pair: Pair) -> None:
    answer = Answer(pair)
    await answer_with(answer, 499, 0)

    assert answer.sent()[0].startswith(b"HTTP/1.1 499 \r\n")
