import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.xml_completion import USUAL_TOOLS, complete, tools_in_prompt

DONE = "attempt_completion"


@pytest.mark.parametrize(
    "text",
    [
        "All three checks pass.",
        "  two\nlines \n",
        "Use `<read_file>` when a file must be read.",
        "```xml\n<read_file>\n<path>a</path>\n```\nis the form.",
        '<read_file class="x"><path>t</path></read_file> renders a box.',
        "if a < b and <b>bold</b> then",
        "<div><p>page</p></div>",
        "</b> alone",
    ],
)
def test_a_text_without_a_tool_is_wrapped_as_the_completion(text: str) -> None:
    found = complete(text, DONE)

    assert found.shape == "plain"
    assert found.text == f"<{DONE}><result>{text}</result></{DONE}>"


@pytest.mark.parametrize(
    "text",
    [
        f"<{DONE}>\n<result>\nAll done.\n</result>\n</{DONE}>",
        "Saving. <write_to_file><path>n.md</path><content>a\nb</content></write_to_file>",
        "<read_file><path>a</path></read_file>\n\n<read_file><path>b</path></read_file> next",
        "<write_to_file><path>x.ts</path><content>\n// </content> in words\n</content>"
        "</write_to_file>",
        "<execute_command><command>echo '<read_file><path>a</path></read_file>'</command>"
        "</execute_command>",
        "<ask_followup_question><question>Which?</question><follow_up><suggest>a</suggest>"
        "<suggest>b</suggest></follow_up></ask_followup_question>",
        "<write_to_file><path>p.html</path><content><content>x</content><div>y</div>\n</content>"
        "</write_to_file>",
        "<list_files><path></path><recursive>true</recursive></list_files>",
    ],
)
def test_sound_tools_pass_untouched(text: str) -> None:
    found = complete(text, DONE)

    assert (found.shape, found.text, found.complaint) == ("sound", text, "")


@pytest.mark.parametrize(
    ("text", "shape", "word"),
    [
        (f"<{DONE}>\nDone, all good.\n</{DONE}>", "broken", "bare text"),
        (f"<{DONE}><command>ls</command></{DONE}>", "broken", "<result>"),
        ("<write_to_file><path>a</path></write_to_file>", "broken", "<content>"),
        ("<read_file><path>a</read_file>", "broken", "<path>"),
        ("All done.</attempt_completion>", "broken", "not opened"),
        ("<read_file>\n<path>a</path>\n", "unfinished", "<read_file>"),
        ("<read_file>\n<path>a", "unfinished", "<path>"),
        ("<read_file>\n<pa", "unfinished", "<read_file>"),
        ("<read_file>", "unfinished", "<read_file>"),
        ("<read_file> and then I would look", "unfinished", "no closing tag"),
        (
            "<read_file><path>a</path></read_file>\n<execute_command>ls</execute_command>",
            "broken",
            "<execute_command>",
        ),
    ],
)
def test_a_tool_that_is_not_whole_is_told_with_its_name(text: str, shape: str, word: str) -> None:
    found = complete(text, DONE)

    assert found.shape == shape
    assert word in found.complaint
    assert found.text == text


def test_tools_that_the_prompt_describes_are_known() -> None:
    text = "<deploy_site>now</deploy_site>"

    assert complete(text, DONE).shape == "plain"
    assert complete(text, DONE, {"deploy_site"}).shape == "broken"


def test_a_completion_tool_of_any_name_needs_its_result() -> None:
    assert complete("<finish></finish>", "finish").shape == "broken"
    assert complete("<finish><result>x</result></finish>", "finish").shape == "sound"


PROMPT = """You have tools.

## deploy_site
Description: puts the site up.
Usage:
<deploy_site>
<target>Where to</target>
</deploy_site>

## `read_file`
<read_file>
<path>File path</path>
</read_file>

## Rules
<environment>
</environment>

## half_told
<half_told>
"""


def test_the_prompts_tools_are_headings_that_have_a_block() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": [{"type": "text", "text": PROMPT}]},
        {"role": "user", "content": "## other\n<other>\n</other>"},
    ]

    assert tools_in_prompt(messages) == {"deploy_site", "read_file"}


def test_a_conversation_without_a_system_message_describes_nothing() -> None:
    assert tools_in_prompt([{"role": "user", "content": "hi"}, {"role": "system"}]) == frozenset()


TEXTS = st.text() | st.lists(
    st.sampled_from(
        ["<read_file>", "</read_file>", "<path>", "</path>", "a", "\n", "`", "```", "<", ">", "</"]
    )
).map("".join)


@given(TEXTS)
def test_any_text_has_one_of_the_shapes_and_only_a_plain_one_is_changed(text: str) -> None:
    found = complete(text, DONE)

    assert (found.shape in ("broken", "unfinished")) == bool(found.complaint)
    assert (found.text == text) == (found.shape != "plain")


@given(st.sampled_from(sorted(USUAL_TOOLS)), st.data())
def test_a_tool_written_by_the_rules_is_sound(name: str, data: st.DataObject) -> None:
    needed = USUAL_TOOLS[name] or ("path",)
    value = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"))
    children = "".join(f"<{child}>{data.draw(value)}</{child}>\n" for child in needed)

    assert complete(f"<{name}>\n{children}</{name}>", DONE).shape == "sound"


def test_time_grows_with_the_text_alone() -> None:
    started = time.perf_counter()
    for text in (
        "<read_file><path>" + "</path>x" * 50_000,
        "<read_file><path>a</path></read_file>" * 20_000,
        "<read_file>" * 50_000,
        "`<read_file>` " * 50_000,
        "<" * 400_000,
    ):
        complete(text, DONE)

    assert time.perf_counter() - started < 5
