"""Every frame is told once, over however many connections."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from edge.tail.places import Places


def frame(seq: int, run_id: str = "run_a", **fields: Any) -> dict[str, Any]:
    return {"type": "chunk", "run_id": run_id, "seq": seq, **fields}


def gap(last: int, missed: int) -> dict[str, Any]:
    return frame(last, type="gap", missed=missed)


def test_what_a_new_connection_tells_again_is_passed_over() -> None:
    places = Places()
    first = [places.admit(frame(seq)) for seq in (1, 2, 3)]

    again = [places.admit(frame(seq)) for seq in (1, 2, 3, 4)]

    assert first == [frame(1), frame(2), frame(3)]
    assert again == [None, None, None, frame(4)]


def test_runs_have_places_of_their_own() -> None:
    places = Places()

    assert places.admit(frame(1, "run_a")) is not None
    assert places.admit(frame(1, "run_b")) is not None


def test_a_gap_counts_only_what_was_never_told() -> None:
    places = Places()
    places.admit(frame(10))

    assert places.admit(gap(14, missed=12)) == gap(14, missed=4)
    assert places.admit(gap(14, missed=12)) is None


def test_a_gap_of_no_run_is_told() -> None:
    told = {"type": "gap", "run_id": None, "seq": None, "missed": 3}

    assert Places().admit(told) is told


def test_the_run_that_was_silent_for_longest_is_forgotten_first() -> None:
    places = Places(max_runs=2)
    for run_id in ("run_a", "run_b", "run_c"):
        places.admit(frame(1, run_id))

    assert places.admit(frame(1, "run_c")) is None
    assert places.admit(frame(1, "run_a")) is not None


@given(st.lists(st.integers(1, 20), max_size=20))
def test_whatever_connections_begin_with_no_frame_is_doubled_or_lost(starts: list[int]) -> None:
    places = Places()
    told: list[int] = []
    for start in [1, *starts]:
        came = range(min(start, 1 + max(told, default=0)), 21)
        told += [seq for seq in came if places.admit(frame(seq)) is not None]

    assert told == list(range(1, 21))
