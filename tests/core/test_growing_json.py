"""Whether a growing text is JSON by now: the same as reading all of it anew, and not slower."""

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from edge.core.growing_json import GrowingJson, is_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\{}[] é', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a}", max_size=2), inner),
    max_leaves=6,
)
ODD = st.text('{}[]"\\ ,:1a\u00a0\n', max_size=12)
TEXTS = st.lists(VALUES.map(lambda value: orjson.dumps(value).decode()) | ODD, max_size=3)


@given(TEXTS, st.lists(st.integers(1, 4), min_size=1, max_size=40))
@example(['"\\', '"', '"'], [1])
@example(['{"a": 1}', " ", "\u00a0"], [4])
def test_it_says_what_reading_all_of_it_anew_would(texts: list[str], sizes: list[int]) -> None:
    machine, whole, so_far = GrowingJson(), "".join(texts), ""
    while len(so_far) < len(whole):
        piece = whole[len(so_far) :][: sizes[len(machine.pieces) % len(sizes)]]
        machine.feed(piece)
        so_far += piece

        assert machine.has_text == bool(so_far.strip())
        assert machine.is_whole() == is_json(so_far)
        assert machine.is_same(f" {so_far}\n")
        assert not machine.is_same(f"{so_far}x")


@given(TEXTS)
def test_being_asked_at_the_end_alone_changes_nothing(texts: list[str]) -> None:
    machine = GrowingJson()
    for text in texts:
        machine.feed(text)

    assert machine.is_whole() == is_json("".join(texts))


@given(TEXTS, st.integers(1, 3))
def test_each_character_is_looked_at_once_and_all_are_joined_once(
    texts: list[str], size: int
) -> None:
    """However often it is asked; a name that is repeated with every fragment asks at each."""
    looked_at: list[str] = []

    class Counted(GrowingJson):
        def _scan(self, piece: str) -> None:
            looked_at.append(piece)
            super()._scan(piece)

    machine, whole = Counted(), "".join(texts)
    verdicts = set()
    for start in range(0, len(whole), size):
        machine.feed(whole[start : start + size])
        machine.is_whole()
        verdicts.add(machine._verdict)

    assert whole.startswith("".join(looked_at))
    assert len(verdicts - {None}) <= 2
