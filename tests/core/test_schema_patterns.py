import time

import pytest

from edge.core.schema_patterns import ALWAYS, NEVER, PatternBudget
from edge.errors import InvalidRequest

COSTLY = r"^[\p{L} ]{1,80}x$"


def test_without_patterns_any_text_is_judged_whole() -> None:
    assert PatternBudget().engine([], "p")[1] == ALWAYS


def test_plain_patterns_are_given_long_texts_and_look_around_short_ones() -> None:
    _, plain = PatternBudget().engine(["^[a-z]+$"], "p")
    _, costly = PatternBudget().engine([COSTLY], "p")
    _, backtracking = PatternBudget().engine(["^[a-z]+$", "(?!a)b"], "p")

    assert plain > costly > backtracking > 0


def test_more_patterns_share_the_same_work() -> None:
    _, one = PatternBudget().engine(["^a$"], "p")
    _, ten = PatternBudget().engine([f"^a{n}$" for n in range(10)], "p")

    assert ten == one // 10


def test_costly_patterns_are_asserted_until_the_budget_is_used_up() -> None:
    budget = PatternBudget(costly=1)

    assert budget.engine([COSTLY], "p")[1] > 0
    assert budget.engine([COSTLY], "p")[1] == NEVER
    assert budget.engine(["^a$"], "p")[1] > 0


def test_a_crowd_of_costly_patterns_is_compiled_soon() -> None:
    started = time.perf_counter()
    chosen = PatternBudget().engine([rf"[\p{{L}}\w]{{100}}x{n}" for n in range(500)], "p")

    assert chosen[1] == NEVER
    assert time.perf_counter() - started < 20


def test_a_pattern_too_large_for_every_engine_is_not_asserted() -> None:
    assert PatternBudget().engine(["((a{100}){100}){100}x"], "p")[1] == NEVER


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "(?<n"])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        PatternBudget().engine([pattern], "tools[0].function.parameters")

    assert caught.value.param == "tools[0].function.parameters"
