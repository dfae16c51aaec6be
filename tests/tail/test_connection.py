"""Following: what ends it, what is tried again, and that every frame is told once."""

from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
import trio

from edge.tail.connection import CannotFollow, Follower, Patience, Target
from tests.fakes.fake_mirror import Step, close, fake_mirror, hang, say, tear

PATIENCE_S = 10.0
QUICK = Patience(first_s=0.001, longest_s=0.002)


def frame(seq: int, kind: str = "chunk", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "run_id": "run_1", "seq": seq, "at": 1.0, **fields}


FINISHED = frame(9, "run.finished", status="success")


@dataclass
class Noted:
    """A watcher that keeps what it is told."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    breaks_at: int = 1_000

    def frame(self, text: str, frame: dict[str, Any]) -> None:
        if len(self.frames) >= self.breaks_at:
            raise BrokenPipeError
        self.frames.append(frame)
        self.texts.append(text)

    def lost(self, why: str, after_s: float) -> None:
        self.losses.append(why)
        self.pauses.append(after_s)


async def followed(url: str, noted: Noted, **target: Any) -> None:
    fields = {"run_id": "run_1", **target}
    with trio.fail_after(PATIENCE_S):
        await Follower(Target(url=url, **fields), noted, QUICK, lambda: 1.0).follow()


async def test_a_run_is_followed_to_its_end() -> None:
    noted = Noted()
    async with fake_mirror([say(frame(1), FINISHED), close(1000)]) as mirror:
        await followed(mirror.url, noted, key="secret")

    assert mirror.asked == [("/v1/runs/run_1/mirror", "Bearer secret")]
    assert noted.frames == [frame(1), FINISHED]
    assert [orjson.loads(text) for text in noted.texts] == noted.frames
    assert noted.losses == []


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (tear, "the connection broke"),
        (close(1013, "too slow"), "too slow"),
        (close(1001, "going down"), "going down"),
        (close(1011), "closed (1011)"),
    ],
    ids=["torn", "too slow", "going down", "failed"],
)
async def test_a_connection_that_ends_is_made_again_and_nothing_is_doubled(
    broken: Step, why: str
) -> None:
    noted = Noted()
    again = say(frame(1), frame(2), frame(3), FINISHED)
    async with fake_mirror([say(frame(1), frame(2)), broken], [again]) as mirror:
        await followed(mirror.url, noted)

    assert [each["seq"] for each in noted.frames] == [1, 2, 3, 9]
    assert noted.losses == [why]


async def test_pauses_grow_to_a_bound_and_begin_anew_once_frames_come() -> None:
    noted = Noted()
    scripts: list[list[Step] | int] = [[say(frame(1)), tear], 503, 503, 503]
    async with fake_mirror(*scripts, [say(frame(2)), tear], [say(FINISHED)]) as mirror:
        await followed(mirror.url, noted)

    assert noted.pauses == [0.001, 0.002, 0.002, 0.002, 0.001]
    assert noted.losses[1] == f"{mirror.url} answers 503: refused with 503"


@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_handshake_that_is_refused_is_not_tried_again(status: int) -> None:
    async with fake_mirror(status, [say(FINISHED)]) as mirror:
        with pytest.raises(CannotFollow, match=f"refused with {status}"):
            await followed(mirror.url, Noted())

    assert len(mirror.asked) == 1


@pytest.mark.parametrize("code", [1008, 4404])
async def test_what_the_gateway_will_never_tell_is_not_asked_for_again(code: int) -> None:
    async with fake_mirror([close(code, "no way")], [say(FINISHED)]) as mirror:
        with pytest.raises(CannotFollow, match="no way"):
            await followed(mirror.url, Noted())


async def test_a_run_that_is_forgotten_while_the_connection_was_away_cannot_be_followed() -> None:
    async with fake_mirror([say(frame(1)), tear], [close(4404, "nothing is kept")]) as mirror:
        with pytest.raises(CannotFollow, match="cannot be followed any more: nothing is kept"):
            await followed(mirror.url, Noted())


async def test_an_address_where_nobody_listens_is_told_at_once() -> None:
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    port = listener.socket.getsockname()[1]
    await listener.aclose()

    with pytest.raises(CannotFollow, match="cannot be reached"):
        await followed(f"http://127.0.0.1:{port}", Noted())


async def test_a_connection_that_answers_no_ping_is_made_again() -> None:
    """The server takes frames into a queue of one, and reads nothing more: pings included."""
    noted = Noted()
    patience = Patience(first_s=0.001, ping_every_s=0.01, pong_s=0.05)
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(_accepts_and_is_silent)
        port = listeners[0].socket.getsockname()[1]
        follower = Follower(Target(url=f"http://127.0.0.1:{port}"), noted, patience)
        with trio.fail_after(PATIENCE_S):
            nursery.start_soon(follower.follow)
            while not noted.losses:  # noqa: ASYNC110 - nothing tells of it
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()

    assert noted.losses == ["the gateway answers no ping any more"]


async def _accepts_and_is_silent(
    *, task_status: trio.TaskStatus[list[trio.SocketListener]]
) -> None:
    from wsproto import ConnectionType, WSConnection
    from wsproto.events import AcceptConnection, Request, TextMessage

    async def serve(stream: trio.SocketStream) -> None:
        machine = WSConnection(ConnectionType.SERVER)
        machine.receive_data(await stream.receive_some())
        assert isinstance(next(machine.events()), Request)
        hello = machine.send(AcceptConnection())
        await stream.send_all(hello + machine.send(TextMessage(orjson.dumps(frame(1)).decode())))
        await trio.sleep_forever()

    await trio.serve_tcp(serve, 0, host="127.0.0.1", task_status=task_status)


async def test_a_watcher_that_cannot_take_any_more_ends_it() -> None:
    async with fake_mirror([say(frame(1), frame(2)), hang]) as mirror:
        with pytest.raises(BrokenPipeError):
            await followed(mirror.url, Noted(breaks_at=1))


async def test_all_runs_are_followed_beyond_the_end_of_each() -> None:
    noted = Noted()
    later = {**FINISHED, "run_id": "run_2"}
    async with fake_mirror([say(FINISHED, later), close(1000)]) as mirror:
        await followed(mirror.url, noted, run_id=None, types=("run.finished", "run.started"))

    assert mirror.asked == [("/v1/mirror?types=run.finished,run.started", "")]
    assert noted.frames == [FINISHED, later]


@pytest.mark.parametrize(
    ("url", "resource"),
    [
        ("http://a", "/v1/mirror"),
        ("http://a:1/v1", "/v1/mirror"),
        ("https://a/edge/v1/", "/edge/v1/mirror"),
    ],
)
def test_the_mirror_is_found_below_the_address(url: str, resource: str) -> None:
    assert Target(url=url).resource == resource


@pytest.mark.parametrize("url", ["a:80", "ftp://a", "http://", "http://a:x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|[Pp]ort"):
        _ = Target(url=url).parts
