"""The replay buffer: whatever was appended, what it gives and what it says is lost add up."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from edge.core.replay import MAX_PINNED, ReplayBuffer, Replayed


@dataclass(frozen=True)
class Made:
    """A piece that stands for some frames."""

    frames: int
    size: int
    pinned: bool = False


pieces = st.builds(Made, st.integers(0, 4), st.integers(0, 60)) | st.builds(
    Made, st.just(1), st.integers(0, 60), st.just(True)
)
runs_of = st.lists(pieces, max_size=60)


def buffer(max_bytes: int) -> ReplayBuffer[Made]:
    return ReplayBuffer(
        max_bytes,
        size=lambda piece: piece.size,
        frames=lambda piece: piece.frames,
        is_pinned=lambda piece: piece.pinned,
    )


def filled(made: list[Made], max_bytes: int) -> ReplayBuffer[Made]:
    replay = buffer(max_bytes)
    for at, piece in enumerate(made):
        replay.append(piece, float(at), piece.size)
    return replay


def told(replayed: Replayed[Made]) -> int:
    """Frames that a late joiner gets."""
    return len(replayed.pinned) + sum(piece.frames for _, piece in replayed.pieces)


@given(runs_of, st.integers(0, 200))
def test_what_is_told_and_what_is_missed_are_all_there_was(
    made: list[Made], max_bytes: int
) -> None:
    replay = filled(made, max_bytes)
    replayed = replay.replay()

    total = sum(piece.frames for piece in made)
    assert told(replayed) + replayed.missed == total
    assert replay.frames_so_far() == total
    assert replayed.seq == total - sum(piece.frames for _, piece in replayed.pieces)


@given(runs_of, st.integers(0, 200))
def test_what_is_kept_is_the_newest_in_order_and_the_pinned_with_their_numbers(
    made: list[Made], max_bytes: int
) -> None:
    replayed = filled(made, max_bytes).replay()

    kept = len(replayed.pieces)
    assert [piece for _, piece in replayed.pieces] == made[len(made) - kept :]
    numbers = {}
    total = 0
    for at, piece in enumerate(made):
        total += piece.frames
        numbers[float(at)] = total
    assert [seq for seq, _ in replayed.pinned] == [numbers[at] for _, (at, _) in replayed.pinned]
    gone = made[: len(made) - kept]
    assert [piece for _, (_, piece) in replayed.pinned] == [
        piece for piece in gone if piece.pinned
    ][:MAX_PINNED]


@given(runs_of, st.integers(0, 200))
def test_no_more_is_held_than_allowed_but_for_one_piece(made: list[Made], max_bytes: int) -> None:
    replay = filled(made, max_bytes)

    held = replay.replay().pieces
    assert replay.held == sum(piece.size for _, piece in held)
    assert replay.held <= max_bytes or len(held) == 1


@given(runs_of, runs_of, runs_of, st.integers(0, 200))
def test_one_who_follows_loses_nothing_but_what_left_the_ring_and_knows_how_much(
    before: list[Made], between: list[Made], after: list[Made], max_bytes: int
) -> None:
    replay = filled(before, max_bytes)
    position, seq = replay.end, replay.frames_so_far()
    for piece in between:
        replay.append(piece, 0.0, piece.size)

    told_seq, got = replay.since(position, seq)
    frames = sum(piece.frames for _, piece in got)
    assert told_seq >= seq
    assert told_seq + frames == replay.frames_so_far()
    assert [piece for _, piece in got] == between[len(between) - len(got) :]

    position = replay.end
    for piece in after:
        replay.append(piece, 0.0, piece.size)
    told_seq, got = replay.since(position, told_seq + frames)
    assert told_seq + sum(piece.frames for _, piece in got) == replay.frames_so_far()


@given(runs_of, runs_of)
def test_frames_are_counted_alike_whenever_they_are_counted(
    before: list[Made], after: list[Made]
) -> None:
    replay = filled(before, 100)
    replay.frames_so_far()
    for piece in after:
        replay.append(piece, 0.0, piece.size)

    assert replay.frames_so_far() == sum(piece.frames for piece in before + after)


def test_a_piece_that_is_too_long_is_kept_alone() -> None:
    replay = filled([Made(1, 10), Made(1, 500)], 100)

    assert [piece for _, piece in replay.replay().pieces] == [Made(1, 500)]
    assert replay.replay().missed == 1


def test_nothing_is_kept_where_nothing_may_be() -> None:
    assert filled([Made(1, 10)], 0).replay().pieces == []


def test_pinned_pieces_are_bounded() -> None:
    replayed = filled([Made(1, 10, pinned=True)] * (MAX_PINNED + 5), 10).replay()

    assert len(replayed.pinned) == MAX_PINNED
    assert replayed.missed == 4
