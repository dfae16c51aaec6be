"""The scripted server itself: what it writes down, and that it hides no failure."""

import pytest
import trio

from tests.fakes.raw_server import Peer, answering, each, raw_server, saying, silent


async def _ask(port: int, request: bytes = b"GET / HTTP/1.1\r\n\r\n") -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        return bytes(await stream.receive_some())


async def test_events_are_written_down_in_order() -> None:
    with trio.fail_after(5):
        async with raw_server(each(answering(body=b"hi"), silent)) as server:
            request = b"POST /x HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc"
            answer = await _ask(server.port, request)
            await server.happened("closed")

            assert answer.endswith(b"\r\n\r\nhi")
            assert server.kinds(1) == ["accepted", "head", "body", "sent", "closed"]
            assert [event.detail for event in server.events][1:3] == [b"POST /x HTTP/1.1", b"abc"]
            assert server.connected == 0


async def test_waiting_for_an_event_counts_the_ones_that_were() -> None:
    with trio.fail_after(5):
        async with raw_server(saying(b"x")) as server:
            await _ask(server.port)
            await _ask(server.port)

            assert (await server.happened("finished", 2)).connection == 2
            assert server.count("finished") == 2


async def test_a_client_that_leaves_ends_the_script_and_is_no_failure() -> None:
    with trio.fail_after(5):
        async with raw_server(answering()) as server:
            async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                await stream.send_all(b"GET / HT")
            await server.happened("closed")

            assert server.kinds() == ["accepted", "closed"]


async def test_a_failing_script_fails_the_test() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        raise AssertionError("the request was wrong")

    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError), flatten_subgroups=True):
        async with raw_server(script) as server:
            await _ask(server.port)


async def test_a_failure_beside_the_server_is_not_hidden() -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(AssertionError), flatten_subgroups=True):
        async with raw_server(silent) as server:
            assert server.port == 0
