"""Chunks that differ in their text alone are told by it, and nothing else is taken for one."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.errors import ProviderProtocolError
from edge.wire.openai_chunks import decode_chunk
from edge.wire.same_text import SameText
from edge.wire.sse import SseDecoder


def chunk(text: Any = "x", *, choice: Any = None, delta: Any = None, **top: Any) -> dict[str, Any]:
    said = {"content": text, **(delta or {})}
    entry = {"index": 0, "delta": said, "finish_reason": None, **(choice or {})}
    return {"id": "c", "created": 1, **top, "choices": [entry]}


def compact(tree: object) -> bytes:
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def read(same: SameText, payload: bytes) -> str | None:
    """What a provider's stream does with a payload."""
    text = same.text_of(payload)
    if text is None:
        same.learn(payload, decode_chunk(payload))
    return text


@pytest.mark.parametrize("dump", [compact, lambda tree: json.dumps(tree).encode()])
def test_the_second_of_a_kind_is_told_by_its_text(dump: Any) -> None:
    same = SameText()
    told = [read(same, dump(chunk(text))) for text in ("a", "b", '\n"\\é', "", "c")]

    assert told == [None, "b", '\n"\\é', None, "c"]


def test_what_servers_say_beside_the_text_at_every_chunk_does_not_matter() -> None:
    for other in (
        {"delta": {"role": "assistant"}},
        {"delta": {"role": None, "tool_calls": None, "reasoning_content": None}},
        {"choice": {"logprobs": None, "stop_reason": None}, "usage": None},
        {"system_fingerprint": "fp", "object": "chat.completion.chunk"},
    ):
        same = SameText()
        assert [read(same, compact(chunk(text, **other))) for text in "ab"] == [None, "b"]


@pytest.mark.parametrize(
    "other",
    [
        {"choice": {"index": 1}},
        {"choice": {"finish_reason": "stop"}},
        {"choice": {"logprobs": {"content": []}}},
        {"delta": {"refusal": "no"}},
        {"delta": {"tool_calls": [{"index": 0}]}},
        {"usage": {"prompt_tokens": 1}},
        {"meta": {"content": "b"}},
    ],
)
def test_a_chunk_that_says_more_is_never_told_by_its_text(other: dict[str, Any]) -> None:
    same = SameText()
    assert [read(same, compact(chunk(text, **other))) for text in "abb"] == [None] * 3
    assert read(same, compact(chunk("plain"))) is None
    assert read(same, compact(chunk("c", **other))) is None


FORGED = [
    b'"x","role":"user"', b'"x"},"finish_reason":"stop","a":{"b":"c"', b"null", b"1", b"[]", b"",
    b'"', b'"x', b'"x" "y"', b'"a\nb"', b'"\xff"', b'"\\ud800"',
    b'"x"}}]}\n{"choices":[{"delta":{"content":"y"',
]  # fmt: skip


@pytest.mark.parametrize("middle", FORGED)
def test_what_is_no_single_string_is_decoded_in_full(middle: bytes) -> None:
    same = SameText()
    before, after = compact(chunk("?")).split(b'"?"')
    read(same, before + b'"a"' + after)
    assert same.text_of(before + b'"b"' + after) == "b"

    assert same.text_of(before + middle + after) is None


BEFORE, AFTER = compact(chunk("?")).split(b'"?"')


def after_a_chunk() -> SameText:
    """One that has been shown a chunk of the usual shape."""
    same = SameText()
    read(same, BEFORE + b'"a"' + AFTER)
    return same


def as_events(*literals: bytes) -> bytes:
    """A read of chunks of that shape, with these bytes where the text stands."""
    return b"".join(b"data: " + BEFORE + each + AFTER + b"\n\n" for each in literals)


def test_a_read_of_such_chunks_is_told_by_its_texts() -> None:
    same = after_a_chunk()

    assert same.texts_of(as_events(b'"b"'), 9999) == ["b"]
    assert same.texts_of(as_events(b'" \\n"', b'"c"', '"é"'.encode()), 9999) == [" \n", "c", "é"]


@pytest.mark.parametrize(
    "data",
    [
        as_events(b'"b"')[:-1],
        as_events(b'"b"') + b"data: [DONE]\n\n",
        as_events(b'"b"').replace(b"\n", b"\r\n"),
        as_events(b'"b"', b'""'),
        as_events(b'""'),
        as_events(b'\n"b"'),
        as_events(b'"b"\n'),
        as_events(b'"b"', b'\n"b"'),
        as_events(b'"b"', b'"c"').replace(b"\n\ndata", b"\n\n\ndata"),
        as_events(b'"b"', b'"c"').replace(b"\n\ndata", b"\ndata"),
        as_events(b'"b"', b'"c"').replace(b"\n\ndata", b"\n\nid: 1\ndata"),
        b"",
    ],
)
def test_a_read_with_anything_else_in_it_is_to_be_cut(data: bytes) -> None:
    assert after_a_chunk().texts_of(data, 9999) is None


def test_a_read_that_may_hold_too_long_an_event_is_to_be_cut() -> None:
    data = as_events(b'"b"')
    assert after_a_chunk().texts_of(data, len(data)) == ["b"]
    assert after_a_chunk().texts_of(data, len(data) - 1) is None


@given(
    st.lists(
        st.sampled_from([*FORGED, b'"b"', b'" c"', b'"\n"', b'"', b"\n\n", b"data: "])
        | st.text(max_size=2).map(compact),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=300)
def test_a_read_told_by_its_texts_is_what_its_events_say(literals: list[bytes]) -> None:
    data = as_events(*literals)
    texts = after_a_chunk().texts_of(data, 9999)
    if texts is not None:
        told = [decode_chunk(payload) for payload in SseDecoder().feed(data)]
        assert told == [json.loads(BEFORE + compact(text) + AFTER) for text in texts]
    else:
        assert not all(map(is_text, literals))


def is_text(literal: bytes) -> bool:
    """Whether it is a JSON string with something in it, and no more than that."""
    try:
        return literal[:1] == b'"' == literal[-1:] and bool(orjson.loads(literal))
    except ValueError:
        return False


def test_a_key_that_is_spelt_otherwise_is_not_taken_for_the_text() -> None:
    same = SameText()
    payload = compact(chunk("a", meta={"kontent": "a"}))
    payload = payload.replace(b'"content"', b'"c\\u006fntent"').replace(b"kontent", b"content")
    assert [read(same, payload) for _ in range(2)] == [None, None]


def test_learning_ends_where_no_chunk_is_like_another() -> None:
    same = SameText()
    for number in range(20):
        assert read(same, compact(chunk("a", id=f"c{number}"))) is None
    before = compact(chunk("a", id="c99"))

    assert [read(same, before) for _ in range(2)] == [None, None]


TOPS = st.fixed_dictionaries(
    {},
    optional={
        "created": st.integers(1, 2),
        "usage": st.sampled_from([None, {"total_tokens": 1}]),
        "choice": st.sampled_from([{}, {"index": 1}, {"finish_reason": "stop"}, {"logprobs": 1}]),
        "delta": st.sampled_from([{}, {"role": "assistant"}, {"refusal": "no"}]),
    },
)
CHUNKS = st.builds(lambda text, other: chunk(text, **other), st.text(max_size=3), TOPS)


@given(st.lists(CHUNKS, max_size=12))
@settings(max_examples=200)
def test_a_chunk_told_by_its_text_is_the_one_before_it_with_that_text(
    chunks: list[dict[str, Any]],
) -> None:
    same = SameText()
    told: list[dict[str, Any]] = []
    for tree in chunks:
        text = read(same, compact(tree))
        if text is not None:
            assert tree["choices"][0]["delta"]["content"] == text
            assert without_text(tree) in told
        told.append(without_text(tree))


def without_text(tree: dict[str, Any]) -> dict[str, Any]:
    entry = tree["choices"][0]
    return {**tree, "choices": [{**entry, "delta": {**entry["delta"], "content": ""}}]}


def test_a_payload_that_is_no_json_is_still_a_fault() -> None:
    same = SameText()
    read(same, compact(chunk("a")))
    with pytest.raises(ProviderProtocolError):
        read(same, compact(chunk("b"))[:-1])
