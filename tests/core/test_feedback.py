from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.feedback import MAX_TEXT, retry_messages
from edge.core.stream_events import ToolCallDelta
from edge.core.verdict import Reason

SCHEMA = Reason("schema", '"note": tool_calls[0].arguments.path is missing', "tool_calls[0]")


def output(content: str = "", *calls: ToolCallDelta) -> CollectedOutput:
    return CollectedOutput((CollectedChoice(content=content, calls=calls),))


def test_the_failed_answer_comes_back_as_text_and_the_reason_as_a_user_message() -> None:
    failed = output("Saving.", ToolCallDelta("note", '{"pth": "a"'))
    said, told = retry_messages(failed, [SCHEMA])

    assert said["role"] == "assistant"
    assert "Saving." in said["content"]
    assert 'note with these arguments: {"pth": "a"' in said["content"]
    assert "tool_calls" not in said
    assert told["role"] == "user"
    assert SCHEMA.message in told["content"]


def test_every_reason_is_told() -> None:
    other = Reason("parallel", "parallel_tool_calls is false", None)
    told = retry_messages(output("x"), [SCHEMA, other])[1]["content"]

    assert SCHEMA.message in told
    assert other.message in told


def test_an_empty_answer_keeps_roles_alternating() -> None:
    said, told = retry_messages(output(), [Reason("empty", "the answer is empty")])

    assert (said["role"], told["role"]) == ("assistant", "user")
    assert said["content"]


def test_what_to_do_follows_from_the_kind_of_fault() -> None:
    cut = retry_messages(output("x"), [Reason("truncated", "cut")])[1]["content"]
    shape = retry_messages(output("x"), [Reason("response_format", "no JSON")])[1]["content"]

    assert "shorter" in cut
    assert "JSON alone" in shape


def test_both_messages_are_bounded() -> None:
    huge = ToolCallDelta("n" * 10_000, "a" * 1_000_000)
    said, _ = retry_messages(output("t" * 1_000_000, *[huge] * 100), [SCHEMA])

    assert len(said["content"]) < 6 * MAX_TEXT + 5_000
    assert "92 more calls" in said["content"]
    assert said["content"].startswith("t")


def test_the_choice_that_failed_is_the_one_that_comes_back() -> None:
    both = CollectedOutput(
        (CollectedChoice(content="sound"), CollectedChoice(index=1, content="unsound"))
    )
    (said, _) = retry_messages(both, [Reason("empty", "no", "choices[1].content")])

    assert said["content"] == "unsound"
