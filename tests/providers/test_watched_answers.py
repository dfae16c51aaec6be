"""Answers that are read for a task that sleeps: the same bytes, ends and faults as ever."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from edge.errors import ProviderProtocolError, ProviderStreamError
from edge.providers.openai import OpenAIOptions, OpenAIProvider
from edge.providers.port import ChunkStream, ProviderRequest
from edge.providers.transport import Exchange, Transport, TransportLimits
from edge.providers.watch import Watch
from edge.wire.openai_chunks import Chunk, whole_chunk
from tests.fakes.certificates import Certificates
from tests.fakes.raw_server import Peer, RawServer, Script, raw_server

PIECES = [b"piece %d\n" % number for number in range(20)]
FORMS = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])


@asynccontextmanager
async def watched(
    script: Script, certificates: Certificates | None = None
) -> AsyncIterator[tuple[RawServer, Transport]]:
    """A scripted server and a transport whose answers are watched."""
    tls = certificates.server_context() if certificates else None
    limits = TransportLimits(ca_file=certificates.ca_file if certificates else "")
    watch = Watch()
    with trio.fail_after(20):
        async with raw_server(script, tls=tls) as server, trio.open_nursery() as nursery:
            await nursery.start(watch.run)
            transport = Transport(f"{server.url}/v1", limits, name="gpu1", watch=watch)
            yield server, transport
            await transport.aclose()
            nursery.cancel_scope.cancel()


async def piece_by_piece(peer: Peer) -> None:
    """Send every piece in a write of its own, when the one before has been read."""
    await peer.read_request()
    await peer.start_sse()
    for piece in PIECES:
        await trio.testing.wait_all_tasks_blocked()
        await peer.send_chunk(piece)


async def read(exchange: Exchange, stops: Callable[[bytes], bool]) -> tuple[list[bytes], int]:
    """All pieces, and how many of them were taken while the task slept."""
    pieces: list[bytes] = []
    asleep = 0

    def take(data: bytes) -> bool:
        nonlocal asleep
        asleep += 1
        pieces.append(data)
        return not stops(data)

    async with exchange as answer:
        while data := await answer.receive():
            pieces.append(data)
            await answer.receive_each(take)
    return pieces, asleep


@FORMS
@pytest.mark.parametrize("stops", [False, True], ids=["goes on", "stops at each"])
async def test_a_long_answer_is_whole_and_its_connection_is_kept(
    secure: bool, stops: bool, certificates: Certificates
) -> None:
    async def script(peer: Peer) -> None:
        for _ in range(2):
            await piece_by_piece(peer)
            await peer.end_chunks()

    async with watched(script, certificates if secure else None) as (server, transport):
        for _ in range(2):
            pieces, asleep = await read(transport.request("POST", "/x"), lambda _: stops)

            assert b"".join(pieces) == b"".join(PIECES)
            assert asleep >= (5 if stops else 10)
        assert server.count("accepted") == 1


@FORMS
@pytest.mark.parametrize("ending", ["closed", "reset", "no chunk"])
async def test_an_answer_that_breaks_off_while_it_is_watched_is_a_fault(
    secure: bool, ending: str, certificates: Certificates
) -> None:
    async def script(peer: Peer) -> None:
        await piece_by_piece(peer)
        await trio.testing.wait_all_tasks_blocked()
        if ending == "no chunk":
            await peer.send(b"nonsense\r\n")
            await peer.wait_closed()
        elif ending == "reset":
            peer.reset()

    async with watched(script, certificates if secure else None) as (_, transport):
        with pytest.raises(ProviderProtocolError, match="gpu1"):
            await read(transport.request("POST", "/x"), lambda _: False)
        assert transport.statistics().open == 0


@FORMS
async def test_leaving_while_asleep_hangs_up(secure: bool, certificates: Certificates) -> None:
    async def script(peer: Peer) -> None:
        await piece_by_piece(peer)
        await peer.wait_closed()

    async with watched(script, certificates if secure else None) as (server, transport):
        with trio.CancelScope() as scope:

            def stops(data: bytes) -> bool:
                if data.endswith(PIECES[-1]):
                    scope.cancel()
                return False

            await read(transport.request("POST", "/x"), stops)
        assert scope.cancelled_caught
        assert transport.statistics().open == 0
        await server.happened("closed")


async def chunks_of(stream: ChunkStream, read_by_itself: bool) -> list[Chunk]:
    chunks: list[Chunk] = []

    def take(more: Sequence[Chunk]) -> bool:
        chunks.extend(more)
        return True

    while more := await stream.receive():
        chunks += more
        if not read_by_itself:
            await stream.receive_each(take)
    return chunks


def event(text: str) -> bytes:
    return b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % text.encode()


@pytest.mark.parametrize("ending", ["done", "error", "no JSON"])
async def test_chunks_are_the_same_whoever_reads(ending: str) -> None:
    last = {
        "done": b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n',
        "error": b'data: {"error":{"message":"out of memory"}}\n\n',
        "no JSON": b"data: {\n\n",
    }[ending]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.start_sse()
        for piece in [
            *(event(f"w{number}") for number in range(12)),
            event("a") + event("b"),
            last,
        ]:
            await trio.testing.wait_all_tasks_blocked()
            await peer.send_chunk(piece)
        await peer.end_chunks()

    told: list[list[Chunk]] = []
    for read_by_itself in (True, False):
        async with watched(script) as (_, transport):
            provider = OpenAIProvider("gpu1", transport, OpenAIOptions())
            async with provider.open(ProviderRequest(body={}, model="m")) as stream:
                if ending == "done":
                    told.append(await chunks_of(stream, read_by_itself))
                    assert stream.complete
                else:
                    kind = ProviderStreamError if ending == "error" else ProviderProtocolError
                    with pytest.raises(kind, match=r"gpu1|memory|JSON"):
                        await chunks_of(stream, read_by_itself)

    if ending == "done":
        assert told[0] == told[1]
        deltas = [whole_chunk(chunk)["choices"][0]["delta"] for chunk in told[1]]
        texts = [delta.get("content", "") for delta in deltas]
        assert texts == [*(f"w{number}" for number in range(12)), "a", "b", ""]
