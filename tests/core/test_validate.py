import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.collect import Collector
from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.contract import Contract, ResponseFormat, Tool
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.request_contract import contract_of
from edge.core.schemas import compile_contract
from edge.core.stream_events import FinishReason, ToolCallDelta
from edge.core.validate import MAX_REASONS, holds_text, judge
from edge.core.verdict import Invalid, Reason, Valid, Verdict
from edge.wire.openai_chat import chat_request

POLICY = OutputPolicy()
NOTE = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "maximum": 20},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["path"],
    "additionalProperties": False,
}
TOOLS = {"note": Tool("note", NOTE), "ping": Tool("ping", {}), "clock": Tool("clock", {})}
OFFER = Contract(TOOLS)


def call(name: str = "note", arguments: str = '{"path": "a"}', **more: Any) -> ToolCallDelta:
    return ToolCallDelta(name, arguments, **more)


def answer(
    *calls: ToolCallDelta,
    content: str = "",
    finish: FinishReason | None = "stop",
    index: int = 0,
    extras: dict[str, Any] | None = None,
) -> CollectedOutput:
    choice = CollectedChoice(
        index=index, content=content, calls=calls, finish=finish, delta_extras=extras or {}
    )
    return CollectedOutput((choice,))


def verdict(
    output: CollectedOutput, contract: Contract = OFFER, policy: OutputPolicy = POLICY
) -> Verdict:
    return judge(output, compile_contract(contract), policy)


def valid(
    output: CollectedOutput, contract: Contract = OFFER, policy: OutputPolicy = POLICY
) -> CollectedChoice:
    found = verdict(output, contract, policy)
    assert isinstance(found, Valid), found
    return found.output.choices[0]


def reasons(
    output: CollectedOutput, contract: Contract = OFFER, policy: OutputPolicy = POLICY
) -> tuple[Reason, ...]:
    found = verdict(output, contract, policy)
    assert isinstance(found, Invalid), found
    assert found.output is output
    return found.reasons


def reason(
    output: CollectedOutput, contract: Contract = OFFER, policy: OutputPolicy = POLICY
) -> Reason:
    (only,) = reasons(output, contract, policy)
    return only


# Calls.


def test_a_sound_call_leaves_as_the_model_wrote_it() -> None:
    sound = call(arguments='{"path": "a", "limit": 2e1}')

    assert valid(answer(sound)).calls == (sound,)


def test_text_beside_a_call_is_kept() -> None:
    assert valid(answer(call(), content="One moment.")).content == "One moment."


def test_an_unknown_tool_is_named_with_what_may_have_been_meant() -> None:
    found = reason(answer(call("notes")))

    assert (found.category, found.param) == ("unknown_tool", "tool_calls[0].name")
    assert '"notes"' in found.message
    assert '"note"?' in found.message


def test_one_near_match_is_offered_not_every_tool() -> None:
    many = {f"tool_{n}": Tool(f"tool_{n}", {}) for n in range(130)}

    assert len(reason(answer(call("tool_x")), Contract(many)).message) < 120


def test_a_call_without_a_name_is_told_so() -> None:
    assert "has no name" in reason(answer(call(""))).message


def test_a_call_where_nothing_is_offered_is_invalid() -> None:
    assert "no tools are offered" in reason(answer(call()), Contract()).message


@pytest.mark.parametrize(
    ("arguments", "category", "word"),
    [
        ("{sku}", "not_json", "json"),
        ('{"path": "a"', "incomplete", "incomplete"),
        ('{"path": "half of', "incomplete", "incomplete"),
        ("[1, 2]", "not_json", "object"),
        ('"louder please"', "not_json", "object"),
        ("3", "not_json", "object"),
        ('{"path": "a", "path": "b"}', "not_json", "path"),
        ('{"path": "bad \\ud83d end"}', "not_json", "surrogate"),
        ('{"path": NaN}', "not_json", "nan"),
    ],
)
def test_arguments_that_are_no_json_object_are_told_apart(
    arguments: str, category: str, word: str
) -> None:
    found = reason(answer(call(arguments=arguments, origin="hermes")))

    assert found.category == category
    assert word in found.message.lower()
    assert found.param == "tool_calls[0].arguments"


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ('{"path": "a", "limit": "a dozen"}', "arguments.limit"),
        ('{"path": "a", "limit": 500}', "arguments.limit"),
        ('{"limit": 1}', "arguments.path"),
        ('{"path": "a", "extra": 1}', "arguments.extra"),
        ('{"path": "a", "tags": ["x", 3]}', "arguments.tags[1]"),
    ],
)
def test_what_breaks_the_schema_is_named_with_tool_and_place(arguments: str, place: str) -> None:
    found = reason(answer(call(), call(arguments=arguments)))

    assert (found.category, found.param) == ("schema", f"tool_calls[1].{place}")
    assert '"note"' in found.message
    assert f"tool_calls[1].{place}" in found.message


@pytest.mark.parametrize("arguments", ["", "  \n", "null"])
def test_no_arguments_are_the_empty_object(arguments: str) -> None:
    (made,) = valid(answer(call("ping", arguments))).calls

    assert (made.arguments, made.repairs) == ("{}", ("empty_arguments",))


def test_no_arguments_are_still_held_against_the_schema() -> None:
    assert reason(answer(call(arguments=""))).param == "tool_calls[0].arguments.path"


@pytest.mark.parametrize(
    ("arguments", "expected", "repair"),
    [
        ('{"path": "a",}', {"path": "a"}, "trailing_comma"),
        ("{'path': 'a', 'tags': []}", {"path": "a", "tags": []}, "python_literal"),
        ('"{\\"path\\": \\"a\\"}"', {"path": "a"}, "json_in_string"),
        ('{"path": "a", "tags": "[\\"x\\"]"}', {"path": "a", "tags": ["x"]}, "json_in_string"),
    ],
)
def test_lossless_repairs_are_made_and_named(
    arguments: str, expected: dict[str, Any], repair: str
) -> None:
    (made,) = valid(answer(call(arguments=arguments, repairs=("missing_closer",)))).calls

    assert json.loads(made.arguments) == expected
    assert made.repairs == ("missing_closer", repair)


def test_a_string_that_holds_json_stays_one_where_the_schema_wants_a_string() -> None:
    sound = call(arguments='{"path": "[1]"}')

    assert valid(answer(sound)).calls == (sound,)


def test_with_repair_turned_off_nothing_is_repaired() -> None:
    policy = OutputPolicy(repair=False)

    assert reason(answer(call(arguments='{"path": "a",}')), policy=policy).category == "not_json"
    assert reason(answer(call(arguments='{"path": "a", "tags": "[]"}')), policy=policy).param == (
        "tool_calls[0].arguments.tags"
    )


def test_integers_of_any_size_keep_their_digits() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    big = call("t", '{"n": 123456789012345678901234567890,}')

    (made,) = valid(answer(big), Contract({"t": Tool("t", schema)})).calls

    assert "123456789012345678901234567890" in made.arguments


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_call_that_was_cut_is_never_repaired(finish: FinishReason) -> None:
    cut = answer(call(), call(arguments='{"path": "a", "tags": ["x"]'), finish=finish)
    found = reason(cut)

    assert found.category == "truncated"
    assert ("length" if finish == "length" else "filter") in found.message
    assert found.param == "tool_calls[1].arguments"


def test_only_the_last_call_can_have_been_cut() -> None:
    early = call(arguments='{"path": "a",}')
    (first, _) = valid(answer(early, call(), finish="length")).calls
    broken = call(arguments="{", fault="incomplete JSON: it ends inside an object")

    assert first.repairs == ("trailing_comma",)
    assert reason(answer(broken, call(), finish="length")).category == "incomplete"


def test_a_whole_call_before_the_cut_stands() -> None:
    assert valid(answer(call(), finish="length")).calls == (call(),)


def test_a_cut_is_told_with_a_schema_fault_too() -> None:
    found = reason(answer(call(arguments="{}"), finish="length"))

    assert found.category == "schema"
    assert "path" in found.message
    assert "length" in found.message


@pytest.mark.parametrize(
    ("fault", "finish", "category", "word"),
    [
        ("incomplete JSON: body ends inside a string", "length", "truncated", "length"),
        ("incomplete JSON: body ends inside a string", "stop", "incomplete", "incomplete"),
        ("not sound JSON: it has a bare word", "stop", "not_json", "json"),
        ("not sound JSON: it has a bare word", "length", "truncated", "length"),
    ],
)
def test_the_readers_own_faults_keep_their_kind(
    fault: str, finish: FinishReason, category: str, word: str
) -> None:
    found = reason(answer(call(arguments="{", fault=fault), finish=finish))

    assert found.category == category
    assert word in found.message.lower()


def test_one_bad_call_makes_the_whole_answer_invalid() -> None:
    assert reason(answer(call(), call("nope"), call())).param == "tool_calls[1].name"


def test_there_are_never_more_than_a_few_reasons_each_a_short_one() -> None:
    bad = call(arguments=json.dumps({"path": "p" * 100_000, "limit": "l" * 100_000}))
    found = reasons(answer(*[bad] * 50, call("n" * 100_000), call(arguments="{" * 100_000)))

    assert len(found) == MAX_REASONS
    assert all(len(each.message) < 600 for each in found)


def test_the_place_of_a_later_choice_names_it() -> None:
    assert reason(answer(call("nope"), index=2)).param == "choices[2].tool_calls[0].name"


# What may be called.


def test_none_forbids_every_call() -> None:
    found = reason(answer(call("nope"), content="x"), Contract(TOOLS, tool_choice="none"))

    assert found.category == "tool_choice"
    assert "tool_choice is none" in found.message


def test_required_demands_a_call() -> None:
    contract = Contract(TOOLS, tool_choice="required")

    assert "tool_choice" in reason(answer(content="Hello."), contract).message
    assert valid(answer(call()), contract).calls


def test_a_named_tool_is_the_only_one() -> None:
    contract = Contract(TOOLS, tool_choice="named", allowed=frozenset({"clock"}))

    assert '"clock"' in reason(answer(content="Noon."), contract).message
    assert '"clock"' in reason(answer(call()), contract).message
    assert valid(answer(call("clock", "{}")), contract).calls


def test_allowed_tools_may_be_called_or_none() -> None:
    contract = Contract(TOOLS, allowed=frozenset({"clock", "ping"}))

    assert valid(answer(content="Noon."), contract).content == "Noon."
    assert reason(answer(call()), contract).param == "tool_calls[0]"


def test_one_call_at_a_time_where_parallel_calls_are_off() -> None:
    contract = Contract(TOOLS, parallel=False)

    assert "parallel_tool_calls" in reason(answer(call(), call()), contract).message
    assert valid(answer(call()), contract).calls


@pytest.mark.parametrize("text", ['{"path": "a"}', '```json\n{"path": "a"}\n```'])
def test_bare_arguments_are_a_call_of_the_one_tool_that_was_demanded(text: str) -> None:
    contract = Contract(TOOLS, tool_choice="named", allowed=frozenset({"note"}))
    choice = valid(answer(content=text), contract)

    assert [(made.name, made.arguments) for made in choice.calls] == [("note", '{"path": "a"}')]
    assert choice.content == ""


def test_bare_arguments_that_break_the_schema_are_no_call() -> None:
    contract = Contract(TOOLS, tool_choice="named", allowed=frozenset({"note"}))

    assert reason(answer(content='{"limit": 3}'), contract).category == "tool_choice"


def test_strict_allows_no_text_beside_a_call() -> None:
    contract = Contract(TOOLS, strict=True)

    assert reason(answer(call(), content="Hm."), contract).category == "strict"
    assert valid(answer(call(), content=" \n"), contract).calls
    assert valid(answer(content="Hm."), contract).content == "Hm."


# Text.


def test_nothing_at_all_is_no_answer() -> None:
    assert reason(answer(finish="tool_calls")).category == "empty"
    assert "empty" in reason(answer(content=" \n")).message


def test_silence_that_is_explained_is_an_answer() -> None:
    valid(answer(finish="length"))
    valid(answer(finish="content_filter"))
    valid(answer(extras={"refusal": "I cannot."}))
    valid(answer(), Contract())


@pytest.mark.parametrize(
    ("text", "finish", "word"),
    [
        ("The city is Bodø.", "stop", "json"),
        ('{"n": 1', "length", "length"),
        ('{"n": "one"}', "stop", "content.n"),
        ('{"n": 1, "x": 2}', "stop", "content.x"),
        ('Here: {"n": 1}', "stop", "json"),
        ("", "stop", "empty"),
    ],
)
def test_demanded_json_is_judged(text: str, finish: FinishReason, word: str) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    contract = Contract(response_format=ResponseFormat("json_schema", schema))
    found = reason(answer(content=text, finish=finish), contract)

    assert found.category == "response_format"
    assert word in found.message.lower()


def test_a_fence_around_demanded_json_is_taken_off_and_named() -> None:
    contract = Contract(response_format=ResponseFormat("json_object"))
    found = verdict(answer(content='```json\n{"n": 1}\n```'), contract)

    assert isinstance(found, Valid)
    assert found.output.choices[0].content == '{"n": 1}'
    assert found.repairs == ("fence",)


def test_calls_may_come_in_place_of_demanded_json() -> None:
    contract = Contract(TOOLS, response_format=ResponseFormat("json_object"))

    assert valid(answer(call()), contract).calls


def test_every_choice_is_judged_on_its_own() -> None:
    good = CollectedChoice(index=0, calls=(call(),))
    bad = CollectedChoice(index=1, calls=(call("nope"),))

    assert isinstance(verdict(CollectedOutput((good, bad))), Invalid)


# The completion tool.

XML = Contract(xml_completion_tool="attempt_completion")


def test_a_plain_text_becomes_the_completion_tool() -> None:
    assert valid(answer(content="All done."), XML).content == (
        "<attempt_completion><result>All done.</result></attempt_completion>"
    )


def test_a_sound_xml_tool_passes_untouched() -> None:
    text = "Looking.\n<read_file>\n<path>a.py</path>\n</read_file>\n"

    assert valid(answer(content=text), XML).content == text


def test_a_broken_xml_tool_is_invalid_and_a_cut_one_truncated() -> None:
    broken = answer(content="<execute_command>ls</execute_command>")
    cut = answer(content="<write_to_file>\n<path>a</path>\n<content>It be", finish="length")

    assert reason(broken, XML).category == "xml_tool"
    assert reason(cut, XML).category == "truncated"
    assert "length" in reason(cut, XML).message


def test_where_the_completion_tool_is_a_function_a_text_becomes_its_call() -> None:
    done = Tool("done", {"type": "object", "properties": {"result": {"type": "string"}}})
    contract = Contract({"done": done}, xml_completion_tool="done")
    choice = valid(answer(content='All "done".'), contract)

    assert [json.loads(made.arguments) for made in choice.calls] == [{"result": 'All "done".'}]


# What must not be shown before it is judged.


@pytest.mark.parametrize(
    ("contract", "holds"),
    [
        (Contract(), False),
        (OFFER, False),
        (Contract(response_format=ResponseFormat("json_object")), True),
        (XML, True),
        (Contract(TOOLS, strict=True), True),
        (Contract(TOOLS, tool_choice="required"), True),
        (Contract(TOOLS, tool_choice="named", allowed=frozenset({"ping"})), True),
        (Contract(TOOLS, tool_choice="none"), False),
    ],
)
def test_text_is_held_where_the_text_itself_may_be_wrong(contract: Contract, holds: bool) -> None:
    assert holds_text(compile_contract(contract)) is holds


# Laws.

CONTRACTS = st.sampled_from(
    [
        OFFER,
        XML,
        Contract(),
        Contract(TOOLS, tool_choice="required"),
        Contract(TOOLS, tool_choice="named", allowed=frozenset({"note"}), strict=True),
        Contract(response_format=ResponseFormat("json_schema", NOTE)),
    ]
)
NASTY = st.one_of(
    st.text(),
    st.text(alphabet='{}[]":,\\ \n<>/`a1.'),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(json.dumps),
)
FINISHES: st.SearchStrategy[FinishReason | None] = st.sampled_from(
    ["stop", "length", "tool_calls", "content_filter", None]
)


@given(
    st.lists(st.tuples(st.sampled_from(["note", "ping", "", "x"]), NASTY), max_size=3),
    NASTY,
    FINISHES,
    CONTRACTS,
)
def test_judging_never_raises_and_what_is_valid_holds_objects(
    calls: list[tuple[str, str]], text: str, finish: FinishReason | None, contract: Contract
) -> None:
    made = [call(name, arguments) for name, arguments in calls]
    found = verdict(answer(*made, content=text, finish=finish), contract)

    if isinstance(found, Valid):
        for each in found.output.choices[0].calls:
            assert isinstance(json.loads(each.arguments), dict)
    else:
        assert all(each.message for each in found.reasons)


PROPERTIES: dict[str, tuple[dict[str, Any], st.SearchStrategy[Any], Any]] = {
    # schema, values that keep it, a value that breaks it
    "count": ({"type": "integer", "minimum": 0}, st.integers(0), "many"),
    "ratio": ({"type": "number"}, st.floats(-1e9, 1e9), "half"),
    "word": ({"type": "string"}, st.text(st.characters(exclude_categories=["Cs"])), 7),
    "on": ({"type": "boolean"}, st.booleans(), 1),
    "mode": ({"enum": ["fast", "slow"]}, st.sampled_from(["fast", "slow"]), "medium"),
    "maybe": ({"type": ["integer", "null"]}, st.none() | st.integers(), "none"),
    "list": ({"type": "array", "items": {"type": "integer"}}, st.lists(st.integers()), [1, "b"]),
    "deep": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        st.fixed_dictionaries({"a": st.text(st.characters(exclude_categories=["Cs"]))}),
        {},
    ),
}


@st.composite
def sound_arguments(draw: st.DrawFn) -> tuple[Contract, dict[str, Any]]:
    names = draw(st.lists(st.sampled_from(sorted(PROPERTIES)), min_size=1, unique=True))
    schema = {
        "type": "object",
        "properties": {name: PROPERTIES[name][0] for name in names},
        "required": names,
        "additionalProperties": False,
    }
    arguments = {name: draw(PROPERTIES[name][1]) for name in names}
    return Contract({"t": Tool("t", schema)}), arguments


@given(sound_arguments(), st.data())
def test_arguments_made_from_a_schema_are_valid_and_one_change_is_found_by_its_place(
    made: tuple[Contract, dict[str, Any]], data: st.DataObject
) -> None:
    contract, arguments = made
    (sound,) = valid(answer(call("t", json.dumps(arguments))), contract).calls
    assert json.loads(sound.arguments) == arguments

    changed = data.draw(st.sampled_from(sorted(arguments)))
    way = data.draw(st.sampled_from(["wrong", "missing", "renamed"]))
    broken = {name: value for name, value in arguments.items() if name != changed}
    if way == "wrong":
        broken[changed] = PROPERTIES[changed][2]
    if way == "renamed":
        broken[f"{changed}_"] = arguments[changed]
    found = reasons(answer(call("t", json.dumps(broken))), contract)

    assert {each.category for each in found} == {"schema"}
    assert any(str(each.param).startswith(f"tool_calls[0].arguments.{changed}") for each in found)


# The corpus, where no call has to be read out of text.

CASES = Path(__file__).parents[1] / "conformance" / "given.jsonl"
CATEGORIES = {
    "unknown_tool": {"unknown_tool"},
    "no_name": {"unknown_tool"},
    "schema": {"schema", "not_json"},
    "bad_unicode": {"not_json"},
    "truncated": {"truncated", "incomplete"},
    "tool_choice": {"tool_choice"},
    "parallel": {"parallel"},
    "response_format": {"response_format"},
    "empty": {"empty"},
}
FAMILIES = ("native", "tool-choice", "response-format")


def cases() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in CASES.read_text("utf-8").splitlines()]
    return [case for case in found if case["family"] in FAMILIES]


def collected(case: dict[str, Any], contract: Contract) -> CollectedOutput:
    normalizer, collector = Normalizer(contract, POLICY), Collector()
    deltas = [*({"delta": delta} for delta in case["upstream"]["deltas"])]
    for entry in [*deltas, {"delta": {}, "finish_reason": case["upstream"]["finish_reason"]}]:
        collector.feed(normalizer.feed({"choices": [{"index": 0, **entry}]}))
    collector.feed(normalizer.finish())
    return collector.output()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case["id"])
def test_the_corpus_is_judged_as_it_says(case: dict[str, Any]) -> None:
    messages = [{"role": "user", "content": "go"}]
    contract = contract_of(chat_request({**case["request"], "model": "m", "messages": messages}))
    want = case["expect"]
    found = verdict(collected(case, contract), contract)

    if want["outcome"] == "ok":
        assert isinstance(found, Valid)
        calls = found.output.choices[0].calls
        assert [(made.name, json.loads(made.arguments)) for made in calls] == [
            (made["name"], made["arguments"]) for made in want["tool_calls"]
        ]
        return
    assert isinstance(found, Invalid)
    assert found.reasons[0].category in CATEGORIES[want["invalid_reason"]]
    told = " ".join(each.message for each in found.reasons)
    assert want.get("error_contains", "").lower() in told.lower()
