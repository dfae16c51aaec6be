import copy
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.history import NO_RESULT, UNKNOWN_TOOL, heal
from edge.errors import InvalidRequest

Message = dict[str, Any]


def user(text: str = "hi") -> Message:
    return {"role": "user", "content": text}


def calling(*calls: Message, content: str | None = None) -> Message:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def call(identity: str | None = "c1", arguments: Any = "{}", name: Any = "f") -> Message:
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if identity is None else {"id": identity, **made}


def result(identity: str | None = "c1", content: Any = "ok") -> Message:
    told = {"role": "tool", "content": content}
    return told if identity is None else {**told, "tool_call_id": identity}


def healed(*messages: Message) -> tuple[list[Message], tuple[str, ...]]:
    before = list(messages)
    kept = copy.deepcopy(before)
    after, names = heal(before)
    assert before == kept, "the request's own messages were changed"
    return after, names


def test_a_sound_history_comes_back_as_the_same_list() -> None:
    sound = [
        {"role": "system", "content": "s"},
        user(),
        calling(call("a", '{"x": 1}'), call("b")),
        result("b"),
        result("a", [{"type": "text", "text": "t"}]),
        {"role": "assistant", "content": "done"},
    ]

    after, names = heal(sound)

    assert after is sound
    assert names == ()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('{"a": 1,}', {"a": 1}),
        ("{'a': True}", {"a": True}),
        ('{"a": [1]', {"a": [1]}),
        ('"{\\"a\\": 1}"', {"a": 1}),
    ],
)
def test_arguments_with_one_lossless_reading_are_mended(told: Any, expected: Any) -> None:
    after, names = healed(user(), calling(call(arguments=told)), result())

    assert json.loads(after[1]["tool_calls"][0]["function"]["arguments"]) == expected
    assert names == ("arguments",)
    assert after[0] is not None


@pytest.mark.parametrize("told", ['{"a": ', "{sku}", "[1]", "3", [1], 7, '{"a": "x'])
def test_arguments_without_one_are_refused_with_their_place(told: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        heal([user(), user(), calling(call("a"), call("b", told))])

    assert caught.value.param == "messages[2].tool_calls[1].function.arguments"


@pytest.mark.parametrize("name", [None, "", 3])
def test_a_call_without_a_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        heal([calling(call(name=name))])

    assert caught.value.param == "messages[0].tool_calls[0].function.name"


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    after, names = healed(calling(call("a"), call("b")), result("b"), user("go on"))

    assert after[1:] == [result("b"), result("a", NO_RESULT), user("go on")]
    assert names == ("missing_result",)


def test_a_call_at_the_very_end_gets_one_too() -> None:
    after, _ = healed(user(), calling(call("a")))

    assert after[-1] == result("a", NO_RESULT)


def test_a_result_that_stands_further_down_moves_up_to_its_call() -> None:
    after, names = healed(calling(call("a")), user("wait"), result("a", "late"), user())

    assert after == [calling(call("a")), result("a", "late"), user("wait"), user()]
    assert "late_result" in names


def test_calls_of_one_turn_in_two_messages_keep_their_results() -> None:
    after, _ = healed(calling(call("a")), calling(call("b")), result("a", "1"), result("b", "2"))

    assert after == [calling(call("a")), result("a", "1"), calling(call("b")), result("b", "2")]


def test_a_result_without_a_call_gets_one_and_keeps_its_content() -> None:
    after, names = healed(result("gone", "old"), user())

    assert after[0]["role"] == "assistant"
    (made,) = after[0]["tool_calls"]
    assert (made["id"], made["function"]["name"]) == ("gone", UNKNOWN_TOOL)
    assert after[1:] == [result("gone", "old"), user()]
    assert names == ("orphan_result",)


def test_a_second_result_of_a_call_gets_a_call_of_its_own() -> None:
    after, _ = healed(calling(call("a")), result("a", "1"), result("a", "2"))

    assert [message["content"] for message in after if message["role"] == "tool"] == ["1", "2"]
    assert after[3]["tool_call_id"] == after[2]["tool_calls"][0]["id"] != "a"


def test_duplicate_ids_are_told_apart_in_order() -> None:
    after, names = healed(
        calling(call("x"), call("x")),
        result("x", "1"),
        result("x", "2"),
        calling(call("x")),
        result("x", "3"),
    )

    first, second = (made["id"] for made in after[0]["tool_calls"])
    third = after[3]["tool_calls"][0]["id"]
    assert len({first, second, third}) == 3
    assert [(m["tool_call_id"], m["content"]) for m in after if m["role"] == "tool"] == [
        (first, "1"),
        (second, "2"),
        (third, "3"),
    ]
    assert names == ("duplicate_id",)


@pytest.mark.parametrize("missing", [None, ""])
def test_a_call_without_an_id_gets_one_and_so_does_its_result(missing: str | None) -> None:
    after, names = healed(calling(call(missing)), result(missing))

    identity = after[0]["tool_calls"][0]["id"]
    assert identity
    assert after[1]["tool_call_id"] == identity
    assert names == ("call_id",)


def test_an_id_made_up_is_the_same_in_the_next_request() -> None:
    history = [calling(call(None)), result(None)]

    assert heal(history)[0] == heal([*history, user()])[0][:2]


def test_an_empty_list_of_calls_is_taken_out() -> None:
    after, names = healed({"role": "assistant", "content": "x", "tool_calls": []})

    assert after == [{"role": "assistant", "content": "x"}]
    assert names == ("empty_tool_calls",)


def test_a_missing_type_is_a_functions() -> None:
    after, _ = healed(
        calling({"id": "a", "function": {"name": "f", "arguments": "{}"}}), result("a")
    )

    assert after[0]["tool_calls"][0]["type"] == "function"


def test_a_kind_of_call_that_only_the_provider_knows_is_left_alone() -> None:
    custom = {"id": "a", "type": "custom", "custom": {"name": "g", "input": "free text"}}

    assert healed(calling(custom), result("a"))[1] == ()


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_null_content_becomes_the_empty_text(role: str) -> None:
    after, names = healed({"role": role, "content": None})

    assert after == [{"role": role, "content": ""}]
    assert names == ("null_content",)


def test_null_content_beside_calls_is_sound() -> None:
    assert healed(calling(call("a"), content=None), result("a"))[1] == ()


def test_a_refusal_stands_for_its_content() -> None:
    assert healed({"role": "assistant", "content": None, "refusal": "no"})[1] == ()


def test_sound_messages_beside_a_healed_one_are_the_same_objects() -> None:
    before = [user(), calling(call(arguments="")), result(), user("next")]

    after, _ = heal(before)

    assert after[0] is before[0]
    assert after[1] is not before[1]
    assert after[2:] == before[2:]
    assert after[3] is before[3]


IDS = st.sampled_from(["a", "b", "", None])
ARGUMENTS = st.sampled_from(["{}", '{"a": 1}', "", None, '{"a": 1,}', {"k": 1}])
MESSAGES = st.lists(
    st.one_of(
        st.text(max_size=3).map(user),
        st.builds(
            lambda made: calling(*made),
            st.lists(st.builds(call, IDS, ARGUMENTS), max_size=3),
        ),
        st.builds(result, IDS, st.sampled_from(["r", "s", None])),
        st.builds(lambda text: {"role": "assistant", "content": text}, st.none() | st.text()),
    ),
    max_size=8,
)


@given(MESSAGES)
def test_a_healed_history_is_sound_and_healing_it_again_changes_nothing(
    messages: list[Message],
) -> None:
    after, _ = heal(messages)

    again, names = heal(after)
    assert again is after
    assert names == ()


@given(MESSAGES)
def test_no_text_of_anybody_is_lost(messages: list[Message]) -> None:
    after, _ = heal(messages)

    for role in ("user", "tool"):
        before = [m["content"] or "" for m in messages if m["role"] == role]
        left = [m["content"] for m in after if m["role"] == role]
        for text in before:
            assert text in left
            left.remove(text)
    assert [m for m in after if m["role"] == "user"] == [m for m in messages if m["role"] == "user"]


MANY = 50_000
HUGE: dict[str, list[Message]] = {
    "calls of one id": [calling(*[call("same")] * MANY)],
    "turns of one id": [calling(call("same")), result("same")] * MANY,
    "results of no call": [result("same")] * MANY,
    "results in reverse": [
        calling(*[call(f"c{number}") for number in range(MANY)]),
        *[result(f"c{number}") for number in reversed(range(MANY))],
    ],
    "results of others": [
        calling(*[call(f"c{number}") for number in range(MANY)]),
        *[result(f"other{number}") for number in range(MANY)],
    ],
}


@pytest.mark.parametrize("messages", HUGE.values(), ids=HUGE.keys())
def test_the_work_grows_with_the_messages_and_no_faster(messages: list[Message]) -> None:
    """Were it the square of them, this would take minutes."""
    began = time.process_time()

    after, _ = heal(messages)

    assert len(after) >= len(messages)
    assert time.process_time() - began < 20
