"""The fuzz targets without the fuzzer: their seeds, and every input that once made one fail."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.draw import Draw, cut, edited, finely
from fuzz.target import CORPORA, NAMES, distilled, kept, load
from tests.strategies import TREES

FAILURES = [(name, file) for name in NAMES for file in kept(name)]
EVERY = 4
"""Of so many seeds one is tried here; the fuzzer itself begins with all of them."""


@pytest.mark.parametrize(("name", "file"), FAILURES)
def test_what_once_made_a_target_fail_does_so_no_more(name: str, file: str) -> None:
    load(name).check(kept(name)[file])


@pytest.mark.parametrize("name", NAMES)
def test_a_target_keeps_its_promise_for_its_seeds(name: str) -> None:
    target = load(name)
    seeds = list(target.seeds())

    assert len(seeds) >= 5
    assert any(len(seed) <= target.MAX_BYTES for seed in seeds)
    for seed in [*seeds[::EVERY], *distilled(name)[::EVERY]]:
        target.check(seed)


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=60))
@settings(max_examples=15)
def test_a_target_keeps_its_promise_for_any_bytes(name: str, data: bytes) -> None:
    load(name).check(data)


def test_every_target_is_fuzzed_and_every_corpus_has_a_target() -> None:
    files = (Path(__file__).parent.parent / "fuzz" / "targets").glob("[!_]*.py")

    assert {file.stem for file in files} == set(NAMES)
    assert {path.stem for path in CORPORA.iterdir()} <= set(NAMES)


@given(st.text(max_size=400), st.integers(0, 65535))
def test_pieces_are_the_whole_and_the_same_every_time(whole: str, seed: int) -> None:
    for divide in (cut, finely):
        pieces = divide(whole, seed)
        assert all(pieces)
        assert "".join(pieces) == whole
        assert divide(whole, seed) == pieces
        assert b"".join(divide(whole.encode(), seed)) == whole.encode()


@given(TREES, st.binary(max_size=40))
def test_edits_are_repeatable_and_leave_the_original_alone(tree: object, data: bytes) -> None:
    before = repr(tree)

    assert repr(edited(tree, Draw(data))) == repr(edited(tree, Draw(data)))
    assert repr(tree) == before
