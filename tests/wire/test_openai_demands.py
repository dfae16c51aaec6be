"""Tools and the choice among them, where the whole request does not matter."""

import pytest

from edge.errors import InvalidRequest
from edge.wire.openai_demands import FunctionSpec, Name, ToolChoiceSpec, check_tools

CLOCK = FunctionSpec(Name("clock"))


def test_a_choice_among_the_offered_tools_is_sound() -> None:
    check_tools([CLOCK], ToolChoiceSpec("named", ("clock",)), legacy=False)
    check_tools([], ToolChoiceSpec("none"), legacy=False)


def test_every_conflict_is_told_in_the_clients_own_words() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_tools([CLOCK, CLOCK], ToolChoiceSpec("named", ("other",)), legacy=True)
    assert caught.value.param == "functions[1].name"
    assert "function_call: 'other' is not among the tools" in caught.value.message
