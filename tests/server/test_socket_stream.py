"""How a WebSocket's frames are paced."""

from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.events import Event, RawData
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.worker_context import WorkerContext
from hypothesis import given
from hypothesis import strategies as st

from edge.server.socket_stream import BURST_S, SHORT_BYTES, FrameBudget, SocketProtocol
from tests.fakes.socket_bytes import HANDSHAKE, PING, client_frame


@given(
    per_s=st.integers(1, 50),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(0, 2 * SHORT_BYTES)), max_size=200),
)
def test_no_window_sees_more_short_frames_than_a_burst_and_the_rate(
    per_s: int, steps: list[tuple[float, int]]
) -> None:
    budget, now, passed = FrameBudget(per_s, 0.0), 0.0, []
    for pause_s, payload in steps:
        now += pause_s
        if not budget.passes(payload, now):
            break  # the socket is closed
        if payload < SHORT_BYTES:
            passed.append(now)

    for first, began in enumerate(passed):
        for last, ended in enumerate(passed[first:], 1):
            assert last <= per_s * (BURST_S + ended - began) + 1e-6


def test_who_keeps_to_the_rate_is_never_cut_off() -> None:
    budget = FrameBudget(8, 0.0)

    assert all(budget.passes(0, second / 8) for second in range(10_000))


def test_long_frames_are_not_counted() -> None:
    budget = FrameBudget(1, 0.0)

    assert all(budget.passes(SHORT_BYTES, 0.0) for _ in range(1000))


async def test_however_many_frames_came_at_once_others_get_their_turn() -> None:
    written = 0
    most = 0

    async def send(event: Event) -> None:
        nonlocal written
        written += isinstance(event, RawData)

    async def watch() -> None:
        nonlocal most
        before = written
        while True:
            await trio.lowlevel.checkpoint()
            most, before = max(most, written - before), written

    async def app(_scope: Any, receive: Any, reply: Any, *_: Any) -> None:
        await receive()
        await reply({"type": "websocket.accept"})
        accepted.set()
        await trio.sleep_forever()

    accepted = trio.Event()
    async with TaskGroup() as tasks, trio.open_nursery() as nursery:
        protocol = SocketProtocol(
            *(app, Config(), WorkerContext(None), tasks, {}, False, None, None, send),
            frames_per_s=10_000,
        )
        lines = "".join(f"{name}: {value}\r\n" for name, value in HANDSHAKE)
        opening = f"GET / HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n"
        await protocol.handle(RawData(opening.encode()))
        await accepted.wait()
        nursery.start_soon(watch)
        await protocol.handle(RawData(client_frame(PING) * 10_000))
        nursery.cancel_scope.cancel()
        tasks._nursery.cancel_scope.cancel()  # type: ignore[union-attr]

    assert written >= 10_000
    assert most <= 64
