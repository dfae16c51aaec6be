"""The hub: whoever follows a run, from wherever and however slowly, can account for every frame."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.core.output_policy import OutputPolicy
from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunStarted
from edge.runs.mirror import LIVE_BYTES, MirrorHub
from edge.runs.registry import Registry, Run
from edge.runs.subscription import GOING_AWAY, HOPELESS, OVER, MirrorLimits, Subscription
from edge.wire.sse import encode_event

Frame = dict[str, Any]


def everybody(_: str) -> bool:
    return True


def unpacked(wire: bytes) -> list[Frame]:
    """The messages in server frames of any length."""
    found, at = [], 0
    while at < len(wire):
        size, start = wire[at + 1], at + 2
        if size >= 126:
            start = at + (4 if size == 126 else 10)
            size = int.from_bytes(wire[at + 2 : start], "big")
        at = start + size
        found.append(orjson.loads(wire[start:at]))
    return found


@dataclass
class Stage:
    """A hub, and runs that do as the test says."""

    limits: MirrorLimits = field(default_factory=MirrorLimits)
    registry: Registry = field(default_factory=Registry)
    sent: int = 0

    def __post_init__(self) -> None:
        self.hub = MirrorHub(self.registry, self.limits)

    def begin(self, run_id: str = "run_1", key: str = "") -> Run:
        run = Run(
            id=run_id, request_id="", key=key, route="*", model="m", created=1, stream=True,
            policy=OutputPolicy(),
        )  # fmt: skip
        self.registry.add(run)
        self.hub.observe(
            RunStarted(
                run_id=run_id,
                request_id="",
                key=key,
                route="*",
                model="m",
                streamed=True,
                at=0.0,
                time=0.0,
            )
        )
        return run

    def attempt(self, run: Run) -> None:
        self.hub.observe(
            AttemptStarted(
                run_id=run.id, attempt=1, provider="p", model="m", path="normalized", at=0.0
            )
        )

    def write(self, run: Run, chunks: int, size: int = 1) -> None:
        """The run writes so many chunks in one piece."""
        pieces = []
        for _ in range(chunks):
            self.sent += 1
            pieces.append(encode_event(orjson.dumps({"n": self.sent, "x": "x" * size})))
        if run.mirror is not None:
            run.mirror.emitted(b"".join(pieces), trio.current_time())

    def end(self, run: Run) -> None:
        self.registry.remove(run)
        row = AttemptEnded(
            run_id=run.id, attempt=1, time=0.0, key=run.key, route="*", provider="p", model="m",
            path="normalized", response_mode="off", status="success",
        )  # fmt: skip
        self.hub.observe(row)
        self.hub.observe(RunEnded(run_id=run.id, status="success", attempts=1, at=0.0, total_s=0.0))


async def rest(follower: Subscription) -> list[Frame]:
    """Every frame until the subscription's end."""
    frames: list[Frame] = []
    with trio.fail_after(1000):
        while follower.is_open:
            frames += unpacked(await follower.receive())
    return frames


def followed(stage: Stage, run_id: str = "run_1") -> Subscription:
    follower = stage.hub.follow(run_id, everybody)
    assert follower is not None
    return follower


def assert_all_accounted_for(frames: list[Frame], total: int) -> None:
    """Numbers go up by one, but for gaps that say by how much, up to the last one there was."""
    expected = 1
    for frame in frames:
        if frame["type"] == "gap":
            expected += frame["missed"]
            assert frame["seq"] == expected - 1
        else:
            assert frame["seq"] == expected
            expected += 1
    assert expected == total + 1


def staged(scene: Callable[[Stage, trio.Nursery], Awaitable[None]], limits: MirrorLimits) -> None:
    """Play a scene with the hub's own task under way, in virtual time."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            stage = Stage(replace(limits, turn_s=0))
            await nursery.start(stage.hub.run)
            await scene(stage, nursery)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


acts = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 5)),
        st.tuples(st.just("attempt"), st.just(0)),
        st.tuples(st.just("join"), st.just(0)),
        st.tuples(st.just("turn"), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.integers(0, 3)),
    ),
    max_size=30,
)


@given(acts, st.sampled_from([0, 300, 1000, 100_000]), st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_no_frame_is_lost_or_doubled_whenever_one_joins_and_however_one_reads(
    what: list[tuple[str, int]], replay_bytes: int, buffer: int
) -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        followers: list[tuple[Subscription, list[Frame]]] = []
        feed = stage.hub._feeds["run_1"]
        for act, number in what:
            if act == "write":
                stage.write(run, number)
            elif act == "attempt":
                stage.attempt(run)
            elif act == "join":
                followers.append((followed(stage), []))
            elif act == "turn":
                await trio.testing.wait_all_tasks_blocked()
            elif number < len(followers):
                follower, got = followers[number]
                if act == "leave":
                    del followers[number]
                    with follower:
                        pass
                else:
                    with trio.move_on_after(1):
                        got += unpacked(await follower.receive())
        stage.end(run)
        total = feed.replay.frames_so_far()
        for follower, got in followers:
            got += await rest(follower)
            assert_all_accounted_for(got, total)
            assert got[-1]["type"] == "run.finished"
            assert follower.ending == OVER
            chunks = [frame["chunk"]["n"] for frame in got if frame["type"] == "chunk"]
            assert chunks == sorted(set(chunks))

    limits = MirrorLimits(replay_bytes=replay_bytes, subscriber_buffer=buffer, stalled_s=1e9)
    staged(scene, limits)


def test_one_who_keeps_up_misses_nothing_though_much_comes_at_once() -> None:
    async def scene(stage: Stage, nursery: trio.Nursery) -> None:
        run = stage.begin()
        follower = followed(stage)
        got: list[Frame] = []

        async def keep_up() -> None:
            got.extend(await rest(follower))

        nursery.start_soon(keep_up)
        for _ in range(20):
            stage.write(run, 50)
            await trio.testing.wait_all_tasks_blocked()
        stage.end(run)
        await trio.testing.wait_all_tasks_blocked()
        assert [frame["seq"] for frame in got] == list(range(1, 1003))
        assert follower.dropped == 0

    staged(scene, MirrorLimits(subscriber_buffer=2))


def test_what_waits_for_a_follower_is_bounded_in_number_and_in_bytes() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        follower = followed(stage)
        for _turn in range(100):
            stage.write(run, 1, size=1000)
            await trio.testing.wait_all_tasks_blocked()
        assert len(follower._queue) == 4
        assert follower._queued_bytes < 5000
        assert follower.dropped == 96
        assert stage.hub.statistics().dropped == 96

    staged(scene, MirrorLimits(subscriber_buffer=64, subscriber_bytes=4500, stalled_s=1e9))


def test_one_who_takes_nothing_for_too_long_is_sent_away_with_the_gap() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        with followed(stage) as follower:
            await follower.receive()
            for _turn in range(12):
                stage.write(run, 1)
                await trio.sleep(1)
            assert stage.hub.statistics().subscribers == 0
            (gap,) = await rest(follower)
        assert (gap["type"], gap["missed"], gap["seq"]) == ("gap", 12, 13)
        assert follower.ending is HOPELESS
        assert stage.hub.statistics().hopeless == 1

    staged(scene, MirrorLimits(subscriber_buffer=2, stalled_s=10))


def test_nothing_is_told_to_one_that_was_found_hopeless() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        with followed(stage) as follower:
            await follower.receive()
            await trio.sleep(1)
            for _turn in range(20):
                stage.write(run, 1, size=200)
            await trio.testing.wait_all_tasks_blocked()
            frames = await rest(follower)
        assert [frame["type"] for frame in frames] == ["gap"]
        assert follower.ending is HOPELESS

    staged(scene, MirrorLimits(replay_bytes=1000, stalled_s=0.5))


def test_one_who_waits_for_a_quiet_run_is_never_hopeless() -> None:
    async def scene(stage: Stage, nursery: trio.Nursery) -> None:
        run = stage.begin()
        follower = followed(stage)
        got: list[Frame] = []

        async def wait() -> None:
            got.extend(await rest(follower))

        nursery.start_soon(wait)
        await trio.sleep(100)
        for _ in range(10):
            stage.write(run, 5)
        stage.end(run)
        await trio.testing.wait_all_tasks_blocked()
        assert follower.ending is OVER
        assert got[-1]["type"] == "run.finished"

    staged(scene, MirrorLimits(subscriber_buffer=1, stalled_s=10))


def test_only_the_runs_that_may_be_seen_are_told() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        before = stage.begin("run_1", key="mine")
        stage.begin("run_2", key="other")
        follower = stage.hub.follow_all(lambda key: key == "mine")
        assert stage.hub.follow("run_2", lambda key: key == "mine") is None
        for run in (stage.begin("run_3", key="mine"), stage.begin("run_4", key="other"), before):
            stage.write(run, 1)
        await trio.testing.wait_all_tasks_blocked()
        frames = unpacked(await follower.receive())
        assert {frame["run_id"] for frame in frames} == {"run_1", "run_3"}

    staged(scene, MirrorLimits())


def test_followers_of_all_runs_account_for_each_run() -> None:
    async def scene(stage: Stage, nursery: trio.Nursery) -> None:
        early = stage.begin("run_1")
        stage.write(early, 3)
        follower = stage.hub.follow_all(everybody)
        got: list[Frame] = []

        async def keep_up() -> None:
            got.extend(await rest(follower))

        nursery.start_soon(keep_up)
        late = stage.begin("run_2")
        for run in (early, late, early, late):
            stage.write(run, 2)
            await trio.testing.wait_all_tasks_blocked()
        stage.end(early)
        stage.end(late)
        stage.hub.drain()
        await trio.testing.wait_all_tasks_blocked()
        assert follower.ending is GOING_AWAY
        for run_id, total in (("run_1", 9), ("run_2", 6)):
            assert_all_accounted_for([each for each in got if each["run_id"] == run_id], total)
        assert follower._seen == {}

    staged(scene, MirrorLimits())


def test_those_who_join_while_frames_are_handed_out_get_each_once_to_the_end() -> None:
    """The hub gives way between handfuls of followers; another may come right then."""

    async def scene(stage: Stage, nursery: trio.Nursery) -> None:
        run = stage.begin()
        crowd = [followed(stage) for _ in range(200)]
        late: list[Subscription] = []

        async def join_each_turn() -> None:
            for _ in range(10):
                late.append(followed(stage))
                stage.write(run, 1)
                await trio.lowlevel.checkpoint()
            stage.end(run)

        stage.write(run, 3)
        nursery.start_soon(join_each_turn)
        await trio.testing.wait_all_tasks_blocked()
        for follower in crowd + late:
            assert_all_accounted_for(await rest(follower), 15)

    staged(scene, MirrorLimits())


def kept_for(run: Run) -> int | None:
    """What may be kept of a run; None where it leaves nothing."""
    return None if run.mirror is None else run.mirror.replay.max_bytes


def test_a_run_pays_nothing_where_nobody_can_see_it() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        assert kept_for(run) is None
        with followed(stage):
            assert kept_for(run) == LIVE_BYTES
        assert kept_for(run) is None
        stage.end(run)
        assert stage.hub.follow("run_1", everybody) is None

    staged(scene, MirrorLimits(replay_bytes=0))


def test_what_is_kept_of_ended_runs_is_bounded_in_all() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        for number in range(20):
            run = stage.begin(f"run_{number}")
            stage.write(run, 1, size=3000)
            stage.end(run)
        kept = [each for each in range(20) if stage.hub.follow(f"run_{each}", everybody)]
        assert kept
        assert kept == list(range(20 - len(kept), 20))
        assert stage.hub._ended_bytes <= 20_000

    staged(scene, MirrorLimits(ended_bytes=20_000))


def test_types_that_are_not_wanted_are_not_told() -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        run = stage.begin()
        stage.write(run, 2)
        follower = stage.hub.follow("run_1", everybody, types=frozenset({"run.finished"}))
        assert follower is not None
        stage.write(run, 2)
        stage.end(run)
        await trio.testing.wait_all_tasks_blocked()
        assert [frame["type"] for frame in await rest(follower)] == ["run.finished"]

    staged(scene, MirrorLimits())


@pytest.mark.parametrize("leaves", [1, 2])
def test_leaving_twice_is_leaving_once(leaves: int) -> None:
    async def scene(stage: Stage, _: trio.Nursery) -> None:
        stage.begin()
        follower, other = followed(stage), followed(stage)
        for _turn in range(leaves):
            with follower:
                pass
        assert stage.hub.statistics().subscribers == 1
        assert list(stage.hub._feeds["run_1"].listeners) == [other]

    staged(scene, MirrorLimits())
