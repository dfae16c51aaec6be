import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.contract import ResponseFormat
from edge.core.response_format import JudgedText, judge_text, without_fence
from edge.core.schemas import compile_schema

SCHEMA = {"type": "object", "properties": {"n": {"type": "array", "items": {"type": "integer"}}}}


def judged(text: str, *, schema: object = None, repair: bool = True, cut: str = "") -> JudgedText:
    kind: ResponseFormat = ResponseFormat("json_object" if schema is None else "json_schema")
    compiled = None if schema is None else compile_schema(schema, "p")
    return judge_text(text, kind, compiled, repair=repair, cut=cut)


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ('```json\n{"a": 1}\n```', '{"a": 1}'),
        ('\n```\n{"a": 1}\n```\n', '{"a": 1}'),
        ('```{"a": 1}```', '{"a": 1}'),
        ('```JSON\n{"a": 1}```', '{"a": 1}'),
    ],
)
def test_a_fence_around_everything_comes_off(text: str, inside: str) -> None:
    assert without_fence(text) == inside


@pytest.mark.parametrize("text", ['{"a": 1}', 'So:\n```json\n{"a": 1}\n```', "```json\n{}", ""])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_fence(text) is text


def test_json_leaves_as_the_model_wrote_it() -> None:
    assert judged(' {"a" : 1.50}\n') == JudgedText('{"a" : 1.50}')


def test_any_json_will_do_where_the_schema_says_nothing() -> None:
    assert not judged("[1]", schema={}).reasons
    assert not judged("3", schema=True).reasons


def test_lossless_repairs_are_made_and_named() -> None:
    assert judged('{"a": 1,}') == JudgedText('{"a":1}', ("trailing_comma",))
    assert judged('```\n{"n": "[1]"}\n```', schema=SCHEMA) == JudgedText(
        '{"n":[1]}', ("fence", "json_in_string")
    )


def test_nothing_is_repaired_where_that_is_off_or_the_text_was_cut() -> None:
    assert judged('{"a": 1,}', repair=False).reasons
    assert judged('{"a": 1,}', cut="cut by the length limit").reasons
    assert judged('{"n": "[1]"}', schema=SCHEMA, repair=False).reasons


def test_every_reason_of_a_cut_text_says_so() -> None:
    (found,) = judged('{"n": [1, "a"]}', schema=SCHEMA, cut="cut by the length limit").reasons

    assert found.param == "content.n[1]"
    assert "length" in found.message


@given(st.text() | st.sampled_from(['{"n": [1]}', '{"n": "[1]"}', "[]"]), st.booleans())
def test_any_text_is_refused_with_a_reason_or_leaves_as_json(text: str, fenced: bool) -> None:
    said = f"```json\n{text}\n```" if fenced else text
    for schema in (None, SCHEMA):
        found = judged(said, schema=schema)
        if found.reasons:
            assert all(reason.message for reason in found.reasons)
            continue
        value = json.loads(found.text)
        assert isinstance(value, dict) or schema is not None
