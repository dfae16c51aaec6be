"""Run events with everything filled in but what a test is about."""

from dataclasses import replace
from typing import Any

from edge.core.run_events import AttemptEnded, AttemptStarted, RunEnded, RunStarted, Usage

_ENDED = AttemptEnded(
    run_id="run_1",
    attempt=1,
    time=1_750_000_000.0,
    key="team-a",
    route="coder",
    provider="gpu1",
    model="qwen3-coder",
    path="normalized",
    response_mode="tool_calls",
    status="success",
    usage=Usage(input_tokens=100, output_tokens=20, reported=True),
    first_token_s=0.5,
    held_s=0.25,
    total_s=2.5,
    bytes_out=1000,
)


def attempt_ended(run_id: str = "run_1", **fields: Any) -> AttemptEnded:
    return replace(_ENDED, run_id=run_id, **fields)


def run_started(run_id: str = "run_1", **fields: Any) -> RunStarted:
    started = RunStarted(
        run_id=run_id,
        request_id="req_1",
        key="team-a",
        route="coder",
        model="coder",
        streamed=True,
        at=10.0,
        time=1_750_000_000.0,
    )
    return replace(started, **fields)


def attempt_started(run_id: str = "run_1", attempt: int = 1, **fields: Any) -> AttemptStarted:
    started = AttemptStarted(
        run_id=run_id,
        attempt=attempt,
        provider="gpu1",
        model="qwen3-coder",
        path="normalized",
        at=10.5,
    )
    return replace(started, **fields)


def run_ended(run_id: str = "run_1", **fields: Any) -> RunEnded:
    ended = RunEnded(
        run_id=run_id,
        request_id="req_1",
        key="team-a",
        route="coder",
        model="coder",
        provider="gpu1",
        status="success",
        attempts=1,
        at=13.0,
        total_s=3.0,
        response_mode="tool_calls",
    )
    return replace(ended, **fields)
