from edge.core.json_path import below, child


def test_names_and_indexes_read_as_people_write_them() -> None:
    assert below("tool_calls[1].arguments", ("steps", 0, "state")) == (
        "tool_calls[1].arguments.steps[0].state"
    )


def test_a_place_below_nothing_has_no_leading_dot() -> None:
    assert child("", "limit") == "limit"


def test_a_key_of_any_length_leaves_the_place_readable() -> None:
    assert len(child("arguments", "k" * 10_000)) < 100
