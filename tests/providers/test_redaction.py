"""A secret never leaves, wherever a body is cut; everything else does."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from edge.providers.redaction import Redaction

SECRET = "aabaab"


@given(st.text("ab", max_size=30), st.lists(st.integers(0, 30), max_size=4))
def test_the_cuts_of_a_body_do_not_matter(text: str, cuts: list[int]) -> None:
    redaction, data = Redaction(SECRET), text.encode()
    machine = redaction.in_pieces()
    places = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})

    told = [machine.feed(data[start:end]) for start, end in pairwise(places)]

    assert b"".join(told) + machine.finish() == redaction.body(data)
    assert SECRET not in redaction.text(text)


def test_without_a_secret_nothing_is_changed() -> None:
    redaction = Redaction("")
    machine = redaction.in_pieces()

    assert not redaction
    assert redaction.text("words") == "words"
    assert redaction.body(b"words") == b"words"
    assert machine.feed(b"words") + machine.finish() == b"words"


def test_no_more_is_held_back_than_may_become_the_secret() -> None:
    machine = Redaction(SECRET).in_pieces()

    assert machine.feed(b"xxaab") == b"xx"
    assert machine.feed(b"x") == b"aabx"
    assert machine.feed(b"data: aab\n\n") == b"data: aab\n\n", "an event waits for nothing"


def test_a_masked_body_is_as_long_as_before() -> None:
    for secret in (SECRET, "a key of more characters than the mask has"):
        data = f"before {secret} and after".encode()

        masked = Redaction(secret).body(data)
        assert len(masked) == len(data)
        assert secret.encode() not in masked


def test_a_word_that_anybody_may_write_is_no_telling_secret() -> None:
    assert not Redaction("EMPTY").is_telling
    assert Redaction("sk-0123456789abcdef").is_telling
