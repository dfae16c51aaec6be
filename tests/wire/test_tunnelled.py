"""A body passes as it is, but for the model's name and the question for usage."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import InvalidRequest
from edge.wire.tunnelled import FormBody, JsonBody, json_body, read_tunnelled

JSON = "application/json"
FORM = "multipart/form-data; boundary=xyz"


def read(data: bytes) -> JsonBody:
    body = read_tunnelled(data, JSON)
    assert isinstance(body, JsonBody)
    return body


def form(*parts: tuple[str, bytes], end: bytes = b"--xyz--\r\n") -> bytes:
    return b"".join(f"--xyz\r\n{head}\r\n\r\n".encode() + v + b"\r\n" for head, v in parts) + end


def field(name: str) -> str:
    return f'Content-Disposition: form-data; name="{name}"'


def test_without_a_change_the_very_bytes_travel() -> None:
    data = b' {"model" : "m", "input": "x"}\n'

    assert read(data).for_provider("m", ask_usage=False) is data


@pytest.mark.parametrize(
    "data",
    [b'{"model": "first", "model": "m"}', b'{"mod\\u0065l": "first", "x": 1, "model": "m"}'],
)
def test_a_second_name_does_not_travel(data: bytes) -> None:
    """A provider that goes by the first would answer for a model that nobody was asked about."""
    sent = read(data).for_provider("m", ask_usage=False)

    assert b"first" not in sent
    assert json.loads(sent) == json.loads(data)


def test_a_model_further_in_is_no_second_name() -> None:
    data = b'{"model": "m", "x": {"model": "other"}, "y": "\\u0061"}'

    assert read(data).for_provider("m", ask_usage=False) is data


def test_a_form_that_names_two_models_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than one model"):
        read_tunnelled(form((field("model"), b"first"), (field("model"), b"m")), FORM)


def test_a_name_is_replaced_in_place() -> None:
    data = b' {"input":  [1.0, 1e40, 123456789012345678901234567890],\n "model" :\t"m\\"" }'

    sent = read(data).for_provider('the "other" one', ask_usage=False)

    assert sent == data.replace(b'"m\\""', b'"the \\"other\\" one"')


@pytest.mark.parametrize(
    "data",
    [
        b'{"x": {"model": "m"}, "model": "m"}',
        b'{"mod\\u0065l": "m", "x": {"model": "m"}}',
        b'{"model": "first", "model": "m"}',
        b'{"x": "model", "model": "m"}',
    ],
)
def test_a_name_that_is_hard_to_find_is_replaced_all_the_same(data: bytes) -> None:
    sent = json.loads(read(data).for_provider("new", ask_usage=False))

    assert sent == {**json.loads(data), "model": "new"}


def test_usage_is_asked_for_in_place() -> None:
    data = b' { "model": "m", "stream": true}'

    sent = read(data).for_provider("m", ask_usage=True)

    assert json.loads(sent) == {**json.loads(data), "stream_options": {"include_usage": True}}
    assert sent.endswith(data[2:])


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False, "more": 1}])
def test_other_options_stay_when_usage_is_asked_for(options: Any) -> None:
    data = json.dumps({"model": "m", "stream_options": options}).encode()

    sent = json.loads(read(data).for_provider("m", ask_usage=True))

    assert sent["stream_options"] == {**(options or {}), "include_usage": True}


def test_metadata_that_speak_to_the_gateway_do_not_travel() -> None:
    def sent(metadata: object) -> Any:
        data = json.dumps({"model": "m", "metadata": metadata}).encode()
        return json.loads(read(data).for_provider("m", ask_usage=False))

    assert sent({"edge.buffer": "off", "mine": "x"}) == {"model": "m", "metadata": {"mine": "x"}}
    assert sent({"edge.buffer": "off"}) == {"model": "m"}
    assert sent([]) == {"model": "m", "metadata": []}


def test_what_is_read_of_json() -> None:
    body = json_body(b"", {"model": "m", "stream": True, "stream_options": {"include_usage": True}})

    assert (body.model, body.stream, body.include_usage) == ("m", True, True)
    assert not json_body(b"", {"model": "m", "stream": 1}).stream


WRONG = {
    "no JSON": (b"{", JSON),
    "no object": (b"[]", JSON),
    "no model": (b"{}", JSON),
    "an empty model": (b'{"model": ""}', JSON),
    "a model that is no text": (b'{"model": 3}', JSON),
    "a form without model": (form((field("file"), b"x")), FORM),
    "a form with an empty model": (form((field("model"), b"")), FORM),
    "a form whose model is a file": (form((field("model") + '; filename="m"', b"m")), FORM),
    "a form whose model is no text": (form((field("model"), b"\xff")), FORM),
    "a form without boundary": (form((field("model"), b"m")), "multipart/form-data"),
    "a form of another boundary": (form((field("model"), b"m")), FORM + "2"),
    "a form that stops": (b"--xyz\r\n" + field("model").encode() + b"\r\n\r\nm", FORM),
}


@pytest.mark.parametrize(("data", "content_type"), WRONG.values(), ids=WRONG.keys())
def test_a_body_that_names_no_model_is_refused(data: bytes, content_type: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_tunnelled(data, content_type)

    assert refused.value.param in ("model", None)


@pytest.mark.parametrize(
    "content_type", [FORM, 'Multipart/Form-Data; charset=x; boundary="xyz"', FORM + "; x=y"]
)
def test_a_form_names_its_model(content_type: str) -> None:
    audio = b'\r\n--xy\r\nname="model"\r\n\r\nno\r\n'
    data = form(
        (field("file") + '; filename="model"\r\nContent-Type: audio/wav', audio),
        (field("model"), b"whisper"),
        (field("language"), b"model"),
    )

    body = read_tunnelled(data, content_type)

    assert isinstance(body, FormBody)
    assert body.model == "whisper"
    assert body.for_provider("whisper", ask_usage=True) is data
    renamed = body.for_provider("w-2", ask_usage=False)
    assert renamed == data.replace(b"\r\n\r\nwhisper\r\n", b"\r\n\r\nw-2\r\n")


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.text(max_size=8)
    | st.just("model"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["model", "a", "\u00e9"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["x", "stream", "messages", "é"]), TREES, max_size=3),
    st.text(min_size=1, max_size=6),
    st.text(min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_nothing_else_changes(
    rest: dict[str, Any], model: str, other: str, ask_usage: bool, first: bool
) -> None:
    tree = {"model": model, **rest} if first else {**rest, "model": model}
    data = json.dumps(tree).encode()

    sent = json.loads(read(data).for_provider(other, ask_usage=ask_usage))

    asked = {"stream_options": {"include_usage": True}} if ask_usage else {}
    assert sent == {**tree, "model": other, **asked}


@given(st.binary(max_size=200), st.sampled_from([JSON, FORM]))
def test_any_bytes_are_read_or_refused(data: bytes, content_type: str) -> None:
    with suppress(InvalidRequest):
        assert read_tunnelled(data, content_type).model
