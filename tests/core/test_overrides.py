"""What a request may change of its output policy, and how it is told where it went wrong."""

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides, foreign_metadata
from edge.errors import InvalidRequest

POLICY = OutputPolicy()


def refused(policy: OutputPolicy = POLICY, **ways: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        apply_overrides(policy, **ways)
    return caught.value


def test_a_request_that_says_nothing_gets_the_routes_own_policy() -> None:
    assert apply_overrides(POLICY) is POLICY
    assert apply_overrides(POLICY, header="", metadata={}) is POLICY
    assert apply_overrides(POLICY, header=" ; ;", metadata={"user": "7"}) is POLICY


def test_the_header_sets_several_keys() -> None:
    header = "buffer=full; validate = observe;max_attempts=1; strict=true;"

    assert apply_overrides(POLICY, header=header) == OutputPolicy(
        buffer="full", validate="observe", max_attempts=1, strict=True
    )


def test_metadata_sets_keys_under_our_prefix_only() -> None:
    metadata = {"edge.buffer": "off", "edge.trace": "true", "buffer": "junk", "user": 7}

    assert apply_overrides(POLICY, metadata=metadata) == OutputPolicy(buffer="off", trace=True)


def test_where_both_name_a_key_the_body_wins() -> None:
    policy = apply_overrides(
        POLICY, header="buffer=full; repair=false", metadata={"edge.buffer": "off"}
    )

    assert policy == OutputPolicy(buffer="off", repair=False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("buffer", "tool_calls", "tool_calls"),
        ("validate", "off", "off"),
        ("recover", "false", False),
        ("forms", "hermes", ("hermes",)),
        ("forms", "", ()),
        ("repair", "false", False),
        ("max_attempts", "2", 2),
        ("feedback", "false", False),
        ("constrain_last_attempt", "false", False),
        ("heal_history", "false", False),
        ("strict", "true", True),
        ("xml_completion_tool", "attempt_completion", "attempt_completion"),
        ("trace", "true", True),
        ("heartbeat_s", "2.5", 2.5),
        ("run_timeout_s", "30", 30.0),
        ("max_held_bytes", "65536", 65536),
    ],
)
def test_every_key_can_be_set_both_ways(name: str, text: str, value: object) -> None:
    by_header = apply_overrides(POLICY, header=f"{name}={text}")
    by_metadata = apply_overrides(POLICY, metadata={f"edge.{name}": text})

    assert by_header == by_metadata
    assert getattr(by_header, name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("buffer", "FULL"),
        ("buffer", ""),
        ("recover", "yes"),
        ("recover", "1"),
        ("recover", "True"),
        ("forms", "hermes,hermes"),
        ("forms", "no_such_form"),
        ("max_attempts", "0"),
        ("max_attempts", "1.0"),
        ("max_attempts", "-1"),
        ("max_attempts", "+1"),
        ("max_attempts", "1_0"),
        ("max_attempts", "\u0663"),
        ("max_attempts", "9" * 5000),
        ("heartbeat_s", "1e3"),
        ("heartbeat_s", "nan"),
        ("heartbeat_s", "inf"),
        ("run_timeout_s", "0"),
        ("run_timeout_s", " "),
        ("max_held_bytes", "10"),
        ("xml_completion_tool", "<b>"),
    ],
)
def test_a_bad_value_is_a_400_that_names_the_key(name: str, text: str) -> None:
    by_header = refused(header=f"{name}={text}")
    by_metadata = refused(metadata={f"edge.{name}": text})

    assert (by_header.status, by_header.param) == (400, f"x-edge-output.{name}")
    assert by_metadata.param == f"metadata.edge.{name}"
    assert name in by_metadata.message
    assert len(by_metadata.message) < 400


def test_an_unknown_key_gets_the_nearest_one_suggested() -> None:
    assert 'did you mean "buffer"?' in refused(header="bufer=full").message
    assert 'did you mean "trace"?' in refused(metadata={"edge.tracee": "true"}).message


@pytest.mark.parametrize("value", [True, 3, None, ["full"], {"a": 1}])
def test_a_value_in_metadata_is_a_string(value: object) -> None:
    assert "must be a string" in refused(metadata={"edge.buffer": value}).message


@pytest.mark.parametrize(
    ("header", "param"),
    [
        ("buffer", "x-edge-output"),
        ("buffer=full;validate", "x-edge-output"),
        ("buffer=full; buffer=full", "x-edge-output.buffer"),
        ("=full", "x-edge-output."),
    ],
)
def test_a_header_of_another_form_is_refused(header: str, param: str) -> None:
    assert refused(header=header).param == param


@pytest.mark.parametrize(
    ("name", "at", "over"),
    [
        ("max_attempts", "3", "4"),
        ("run_timeout_s", "600", "600.1"),
        ("max_held_bytes", "8388608", "8388609"),
    ],
)
def test_a_budget_can_be_lowered_and_not_raised(name: str, at: str, over: str) -> None:
    assert apply_overrides(POLICY, header=f"{name}={at}") == POLICY
    assert "as configured" in refused(header=f"{name}={over}").message


def test_heartbeats_may_come_once_a_second_or_as_often_as_configured() -> None:
    busy = OutputPolicy(heartbeat_s=0.2)

    assert apply_overrides(POLICY, header="heartbeat_s=1").heartbeat_s == 1.0
    assert apply_overrides(POLICY, header="heartbeat_s=100").heartbeat_s == 100.0
    assert "at least 1" in refused(header="heartbeat_s=0.9").message
    assert apply_overrides(busy, header="heartbeat_s=0.2").heartbeat_s == 0.2
    assert "at least 0.2" in refused(busy, header="heartbeat_s=0.1").message


def test_only_what_is_not_ours_travels_on() -> None:
    assert foreign_metadata({"edge.buffer": "full", "user": "7"}) == {"user": "7"}
    assert foreign_metadata({"edge.trace": "true"}) == {}


NAMES = [field.name for field in fields(OutputPolicy)]
TEXTS = st.text(max_size=12) | st.sampled_from(["true", "full", "off", "1", "0.5", "hermes"])


def outcome(**ways: Any) -> OutputPolicy | InvalidRequest:
    try:
        return apply_overrides(POLICY, **ways)
    except InvalidRequest as error:
        return error


@given(header=st.text(max_size=60), metadata=st.dictionaries(st.text(max_size=8), st.integers()))
def test_any_text_is_taken_or_refused_with_its_place(header: str, metadata: dict[str, int]) -> None:
    result = outcome(header=header, metadata=metadata)

    assert isinstance(result, OutputPolicy) or result.param is not None


@given(st.dictionaries(st.sampled_from(NAMES), TEXTS, min_size=1))
def test_budgets_never_grow_whatever_is_asked(asked: dict[str, str]) -> None:
    result = outcome(metadata={f"edge.{name}": text for name, text in asked.items()})

    if isinstance(result, InvalidRequest):
        assert result.param in {f"metadata.edge.{name}" for name in asked}
    else:
        assert result.max_attempts <= POLICY.max_attempts
        assert result.run_timeout_s <= POLICY.run_timeout_s
        assert result.max_held_bytes <= POLICY.max_held_bytes
