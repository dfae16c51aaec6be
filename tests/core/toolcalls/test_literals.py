"""Calls as Python and Gemma write them: data that is read back, and faults that name a place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.lenient_json import JsonFault
from edge.core.toolcalls.literals import GemmaReader, PythonReader

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
MARKS = st.lists(
    st.sampled_from(
        [
            *("look", "(", ")", "{", "}", "[", "]", ",", "=", ":", '"', "'", "\\", "\\u", "+", "-"),
            *("1", "1e999", "True", "None", "null", "NaN", '<|"|>', "'''", " ", "\n", "a", "é"),
        ]
    ),
    max_size=20,
).map("".join)


@given(NAMES, st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_call_that_python_writes_reads_back(name: str, arguments: dict[str, Any]) -> None:
    written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
    reader = PythonReader(f"{name}({written})")

    assert reader.call() == (name, arguments)
    assert reader.position == len(reader.text)


@given(NAMES, st.dictionaries(NAMES, VALUES, max_size=3))
def test_a_call_whose_values_are_json_reads_back(name: str, arguments: dict[str, Any]) -> None:
    written = ",".join(f"{key}={json.dumps(value)}" for key, value in arguments.items())

    assert PythonReader(f"{name}({written})").call() == (name, arguments)


def written_by_gemma(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, list):
        return "[" + ",".join(map(written_by_gemma, value)) + "]"
    if isinstance(value, dict):
        fields = (f"{key}:{written_by_gemma(item)}" for key, item in value.items())
        return "{" + ",".join(fields) + "}"
    return json.dumps(value)


GEMMA_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT.filter(lambda text: "<|" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(NAMES, GEMMA_VALUES, max_size=3))
def test_arguments_that_gemma_writes_read_back(arguments: dict[str, Any]) -> None:
    assert GemmaReader(written_by_gemma(arguments), '<|"|>').arguments() == arguments


@given(TEXT | MARKS | MARKS.map("look({}".format))
def test_any_text_is_a_call_of_python_or_has_a_fault_with_a_place(text: str) -> None:
    try:
        name, arguments = PythonReader(text).call()
    except JsonFault as fault:
        place = fault.position
        assert 0 <= place <= len(text)
        return
    assert text.startswith(name)
    assert json.loads(json.dumps(arguments, allow_nan=False)) == arguments


@given(TEXT | MARKS | MARKS.map("{{a:{}".format))
def test_any_text_is_arguments_of_gemma_or_has_a_fault_with_a_place(text: str) -> None:
    try:
        arguments = GemmaReader(text, '<|"|>').arguments()
    except JsonFault as fault:
        place = fault.position
        assert 0 <= place <= len(text)
        return
    assert json.loads(json.dumps(arguments, allow_nan=False)) == arguments


@pytest.mark.parametrize("opening", ["look(a=" + "[" * 5000, "look(a=" + "(" * 5000])
def test_python_is_not_read_deeper_than_json(opening: str) -> None:
    with pytest.raises(JsonFault, match="deep"):
        PythonReader(opening).call()


@pytest.mark.parametrize("opening", ["{a:" * 5000, "{a:" + "[" * 5000])
def test_gemma_is_not_read_deeper_than_json(opening: str) -> None:
    with pytest.raises(JsonFault, match="deep"):
        GemmaReader(opening, '<|"|>').arguments()
