"""Large requests are read beside the event loop, small ones where they are."""

import threading

import pytest
import trio

from edge.errors import InvalidRequest
from edge.runs.apart import AT_A_TIME, LARGE_BYTES, apart
from edge.wire.strict_json import decode
from edge.wire.tunnelled import JsonBody
from tests.fakes.gateway import ask_once, chat, gateway, upstream_config
from tests.fakes.openai_scripts import streams
from tests.fakes.openai_server import openai_server


async def test_only_what_is_large_goes_to_a_thread() -> None:
    here = threading.get_ident()

    assert await apart(LARGE_BYTES - 1, threading.get_ident) == here
    assert await apart(LARGE_BYTES, threading.get_ident) != here


async def test_what_is_wrong_with_a_request_is_raised_here() -> None:
    def fault(what: str) -> None:
        raise InvalidRequest(what)

    with pytest.raises(InvalidRequest, match="at fault"):
        await apart(LARGE_BYTES, fault, "at fault")


async def test_few_are_read_at_a_time_and_whoever_leaves_is_not_waited_for() -> None:
    begun, let_go = threading.Semaphore(0), threading.Event()

    def slow() -> None:
        begun.release()
        let_go.wait(10)

    try:
        async with trio.open_nursery() as nursery:
            for _ in range(AT_A_TIME):
                nursery.start_soon(apart, LARGE_BYTES, slow)
            for _ in range(AT_A_TIME):
                await trio.to_thread.run_sync(begun.acquire)
            nursery.start_soon(apart, LARGE_BYTES, slow)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert not begun.acquire(blocking=False)
    finally:
        let_go.set()


async def test_a_large_body_that_passes_through_is_changed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[int] = []

    def noted(body: JsonBody, model: str, *, ask_usage: bool) -> bytes:
        threads.append(threading.get_ident())
        return real(body, model, ask_usage=ask_usage)

    real = JsonBody.for_provider
    monkeypatch.setattr(JsonBody, "for_provider", noted)
    tunnelled = 'validate = "off"\nbuffer = "off"\nrecover = false'
    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url, output=tunnelled)) as edge,
    ):
        small = await ask_once(edge.url, chat("x"))
        large = await ask_once(edge.url, chat("x" * LARGE_BYTES))
        rows = await edge.settled(2)

    assert [small.status, large.status] == [200, 200]
    assert [row.path for row in rows] == ["tunnel", "tunnel"]
    assert [thread == threading.get_ident() for thread in threads] == [True, False]


async def test_a_large_request_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, let_go, real = threading.Event(), threading.Event(), decode

    def slow_if_large(data: bytes, *, what: str) -> object:
        if len(data) >= LARGE_BYTES:
            begun.set()
            let_go.wait(10)
        return real(data, what=what)

    monkeypatch.setattr("edge.server.chat.decode", slow_if_large)
    statuses: list[int] = []

    async def ask_large() -> None:
        answer = await ask_once(edge.url, chat("x" * LARGE_BYTES))
        statuses.append(answer.status)

    async with (
        openai_server(streams("Hello")) as upstream,
        gateway(upstream_config(upstream.base_url)) as edge,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(ask_large)
        await trio.to_thread.run_sync(begun.wait, 10)
        assert (await ask_once(edge.url, chat())).status == 200
        assert statuses == []
        let_go.set()

    assert statuses == [200]
