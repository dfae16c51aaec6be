"""Ten thousand cancelled requests against a real socket; afterwards nothing is astray."""

import os
import random
from collections import Counter

import trio

from edge.errors import ProviderError
from edge.providers.transport import Exchange, Transport, TransportLimits
from tests.fakes.raw_server import Peer, raw_server

CANCELLED = 10_000
WORKERS = 50
LARGE = b"x" * 400_000
MOODS = ("sound", "sound", "sound", "endless", "endless", "silent", "closing", "deaf")


async def _moody(peer: Peer) -> None:
    """Answer whole, half, or not at all; the last part of the target says how."""
    while True:
        _, target, headers = await peer.read_head()
        mood = target.rpartition("/")[2]
        if mood == "deaf":
            # It does not read the body, and looks up only when the client has gone.
            await peer.wait_closed()
        await peer.read_body(int(headers["content-length"]))
        if mood == "silent":
            await peer.wait_closed()
        await peer.start_sse()
        for _ in range(3):
            await peer.send_chunk(b"data: x\n\n")
        if mood == "endless":
            await peer.wait_closed()
        if mood == "closing":
            return
        await peer.end_chunks()


class _Storm:
    """Workers that send requests and cancel them, after some steps or once the body has begun."""

    def __init__(self, transport: Transport, seed: int) -> None:
        self.transport = transport
        self.dice = random.Random(seed)  # noqa: S311 -- chance, no secret
        self.ends: Counter[str] = Counter()

    async def worker(self) -> None:
        while self.ends["cancelled"] < CANCELLED:
            body = LARGE if self.dice.random() < 0.02 else b"{}"
            path = f"/{self.dice.choice(MOODS)}"
            steps = self.dice.randrange(60) if self.dice.random() < 0.8 else 200
            stage, cancelled = await self._cancelled_after(
                steps, self.transport.request("POST", path, (), body)
            )
            self.ends["cancelled"] += cancelled
            self.ends[f"cancelled {stage}" if cancelled else "ended"] += 1

    async def _cancelled_after(self, steps: int, exchange: Exchange) -> tuple[str, bool]:
        stage = "before the head"
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_cancel, scope, steps)
                try:
                    async with exchange as answer:
                        stage = "in the body"
                        while await answer.receive():
                            if self.dice.random() < 0.5:
                                scope.cancel()
                except ProviderError:
                    stage = "failed"
                nursery.cancel_scope.cancel()
        return stage, scope.cancelled_caught


async def _cancel(scope: trio.CancelScope, steps: int) -> None:
    for _ in range(steps):
        await trio.lowlevel.checkpoint()
    scope.cancel()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_after_a_storm_of_cancellations_nothing_is_astray() -> None:
    descriptors = _descriptors()
    tasks = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(300):
        async with raw_server(_moody) as server:
            transport = Transport(server.url, TransportLimits(max_idle=20))
            storm = _Storm(transport, seed=4)
            async with trio.open_nursery() as nursery:
                for _ in range(WORKERS):
                    nursery.start_soon(storm.worker)

            # Each kind of wait was hit, many times.
            assert storm.ends["cancelled before the head"] > 1000
            assert storm.ends["cancelled in the body"] > 1000
            assert storm.ends["ended"] > 100

            statistics = transport.statistics()
            assert (statistics.leased, statistics.connecting) == (0, 0)
            assert statistics.idle <= 20
            while server.connected > statistics.idle:  # it has yet to hear of the last ones
                await trio.lowlevel.checkpoint()
            assert server.connected == statistics.idle

            async with trio.open_nursery() as nursery:
                for _ in range(WORKERS):
                    nursery.start_soon(_sound, transport)
            statistics = transport.statistics()
            assert (statistics.idle, statistics.leased) == (20, 0)

            await transport.aclose()
            while server.connected:
                await trio.lowlevel.checkpoint()

    assert _descriptors() == descriptors
    assert trio.lowlevel.current_statistics().tasks_living == tasks


async def _sound(transport: Transport) -> None:
    body = b""
    async with transport.request("POST", "/sound", (), b"{}") as answer:
        while data := await answer.receive():
            body += data
    assert body == b"data: x\n\n" * 3
