"""The ``[output]`` settings as one run sees them: what is held and judged, how often we try."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Buffer: TypeAlias = Literal["full", "tool_calls", "off"]
Validate: TypeAlias = Literal["enforce", "observe", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputPolicy:
    """How a run's answer is held back, judged and asked for again.

    Attributes:
        buffer: ``full`` holds the whole answer until it is judged, ``tool_calls`` streams text and
            reasoning and holds calls, ``off`` holds nothing for a verdict.
        validate: ``enforce`` retries or fails what is invalid, ``observe`` only counts it.
        recover: read tool calls out of text.
        forms: names of the text forms looked for; empty means all.
        repair: apply lossless repairs.
        max_attempts: attempts per run, transport and validation together.
        feedback: tell the model what was wrong when asking again.
        constrain_last_attempt: ask for the last attempt through a JSON Schema.
        heal_history: heal malformed tool calls in the request's own messages.
        strict: see ``Contract.strict``.
        xml_completion_tool: see ``Contract.xml_completion_tool``.
        trace: log every emitted piece of this run.
        heartbeat_s: seconds of silence after which a streaming client gets a comment.
        run_timeout_s: seconds a run may take in all.
        max_held_bytes: bound of what is held back for one run.
    """

    buffer: Buffer = "tool_calls"
    validate: Validate = "enforce"
    recover: bool = True
    forms: tuple[str, ...] = ()
    repair: bool = True
    max_attempts: int = 3
    feedback: bool = True
    constrain_last_attempt: bool = True
    heal_history: bool = True
    strict: bool = False
    xml_completion_tool: str = ""
    trace: bool = False
    heartbeat_s: float = 10.0
    run_timeout_s: float = 600.0
    max_held_bytes: int = 8 * 1024 * 1024
