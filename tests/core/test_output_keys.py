"""The table of output keys agrees with the policy it describes."""

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.output_keys import MAX_ATTEMPTS, MIN_HELD_BYTES, OUTPUT_KEYS, Forms, Seconds, Whole
from edge.core.output_policy import OutputPolicy

FOREIGN = st.none() | st.binary() | st.dictionaries(st.text(), st.integers()) | st.complex_numbers()


def test_every_field_of_the_policy_has_its_key_in_the_same_order() -> None:
    assert list(OUTPUT_KEYS) == [field.name for field in fields(OutputPolicy)]


@pytest.mark.parametrize("field", fields(OutputPolicy), ids=lambda field: str(field.name))
def test_every_default_keeps_its_own_rule(field: object) -> None:
    name, default = field.name, field.default  # type: ignore[attr-defined]  # a dataclass field

    assert OUTPUT_KEYS[name].check(default) == default


@pytest.mark.parametrize("name", OUTPUT_KEYS)
@given(value=FOREIGN)
def test_a_value_of_a_foreign_type_is_refused_by_every_key(name: str, value: object) -> None:
    with pytest.raises(ValueError, match="must be"):
        OUTPUT_KEYS[name].check(value)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("max_attempts", 1, MAX_ATTEMPTS), ("max_held_bytes", MIN_HELD_BYTES, 1 << 40)],
)
def test_the_bounds_are_exact(name: str, low: int, high: int) -> None:
    key = OUTPUT_KEYS[name]

    assert [key.check(low), key.check(high)] == [low, high]
    for outside in (low - 1, high + 1, True):
        with pytest.raises(ValueError, match="whole number"):
            key.check(outside)


@given(st.integers(0, 10**17))
def test_a_whole_number_written_out_is_read_back(number: int) -> None:
    assert Whole(0, 10**18).parse(str(number)) == number


@given(st.decimals("0.001", 10**6, places=3))
def test_seconds_written_out_are_read_back(seconds: object) -> None:
    assert Seconds().parse(str(seconds)) == float(str(seconds))


def test_an_integer_of_seconds_becomes_a_float() -> None:
    value = Seconds().check(3)

    assert value == 3.0
    assert isinstance(value, float)


def test_forms_are_known_names_and_none_twice() -> None:
    forms = Forms(("hermes", "mistral"))

    assert forms.check(["mistral", "hermes"]) == ("mistral", "hermes")
    assert forms.parse(" mistral ,hermes,") == ("mistral", "hermes")
    for value, words in [
        (["hermess"], 'unknown form "hermess"; did you mean "hermes"'),
        ([3], "unknown form 3"),
        ([[]], "unknown form"),
        (["hermes", "hermes"], "twice"),
        ("hermes", "must be a list"),
    ]:
        with pytest.raises(ValueError, match=words):
            forms.check(value)
