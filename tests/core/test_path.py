"""A run is tunnelled only if nothing of its answer has to be looked at."""

from dataclasses import replace

import pytest

from edge.core.output_policy import OutputPolicy
from edge.core.path import may_tunnel, prefers_tunnel

BARE = OutputPolicy(validate="off", buffer="off")


def test_an_answer_that_nobody_looks_at_may() -> None:
    assert may_tunnel(BARE, offers_tools=False)
    assert may_tunnel(replace(BARE, recover=False), offers_tools=True)


@pytest.mark.parametrize(
    "policy",
    [
        OutputPolicy(),
        replace(BARE, validate="enforce"),
        replace(BARE, validate="observe"),
        replace(BARE, buffer="full"),
        replace(BARE, buffer="tool_calls"),
        replace(BARE, xml_completion_tool="done"),
        replace(BARE, trace=True),
    ],
)
def test_an_answer_that_is_judged_held_rewritten_or_traced_may_not(policy: OutputPolicy) -> None:
    assert not may_tunnel(policy, offers_tools=False)


def test_calls_are_not_read_out_of_bytes_that_pass() -> None:
    assert not may_tunnel(BARE, offers_tools=True)


@pytest.mark.parametrize(
    ("normalized", "tunnels", "tunnel"),
    [(0, 0, False), (1, 0, False), (0, 1, True), (2, 2, True), (2, 1, False), (1, 2, True)],
)
def test_it_is_taken_where_it_leaves_no_fewer_targets(
    normalized: int, tunnels: int, tunnel: bool
) -> None:
    assert prefers_tunnel(normalized=normalized, tunnels=tunnels) is tunnel
