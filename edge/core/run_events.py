"""Immutable facts about runs, for whatever watches them: ledger, metrics, logs, mirror.

Times named ``at`` and ``*_s`` are seconds on the monotonic clock of the event loop; ``time`` is
seconds since 1970. Every attempt ends in exactly one :class:`AttemptEnded`; a run that ends before
its first attempt has one with attempt number 0, so that every run is in the ledger.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from edge.core.operations import CHAT

AttemptEnd: TypeAlias = Literal[
    "success", "validation_failed", "upstream_error", "timeout", "cancelled", "drained", "rejected"
]
ResponseMode: TypeAlias = Literal["full", "tool_calls", "off", "whole", "tunnel"]
Path: TypeAlias = Literal["normalized", "tunnel", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A run was admitted to the gateway (it may still queue).

    Attributes:
        operation: what is asked of the model, of few values (``core.operations``).
    """

    run_id: str
    request_id: str
    key: str
    route: str
    model: str
    streamed: bool
    at: float
    time: float
    operation: str = CHAT


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted:
    """An attempt holds a slot and is about to be sent.

    Attributes:
        call_validity: measured share of sound tool calls of its target, when that was chosen.
    """

    run_id: str
    attempt: int
    provider: str
    model: str
    path: Path
    at: float
    constrained: bool = False
    operation: str = CHAT
    call_validity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceEmitted:
    """A piece of a traced run's answer left for the client.

    Attributes:
        seq: 1, 2, 3… within the run.
        kind: ``content``, ``reasoning``, ``tool_calls`` or ``finish``.
        chars: length of its text or arguments.
        names: the tools called.
        repairs: names of the lossless repairs that these calls needed.
        text: the text itself, for logs that may hold content.
    """

    run_id: str
    seq: int
    kind: str
    chars: int = 0
    names: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one attempt.

    Attributes:
        reported: False where the provider sent none and the output count is a guess from the
            length of the text (four characters a token).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    reported: bool = False


class CallRead(NamedTuple):
    """How one tool call was read: its form (``native``, or a text form), and if it was repaired."""

    form: str
    repaired: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded:
    """The ledger row of one attempt.

    Attributes:
        category: why it failed, of few values (``schema``, ``http_429``, ``idle_timeout``…);
            empty on success, unless faults were observed.
        param: where in the answer the first fault is (``tool_calls[0].arguments.limit``).
        reason: the same in words; it may quote values that the model or the provider wrote.
        upstream_status: of a provider that refused, 0 for others.
        response_mode: the buffer in force, ``whole`` for an answer that is not streamed.
        calls: names of the tools that the answer called; ``forms`` names what they were read from.
        calls_read: how each of the calls was read, in order.
        repairs: names of the lossless repairs made.
        first_token_s: from dispatch to the first chunk, None if none came.
        held_s: how long the answer was held back after its first chunk.
        total_s: from dispatch to the end.
        phase: where a cancelled attempt was.
        cancel_s: from the moment the run was cancelled to the end of the attempt (its connection
            closed), None where it was not, or nobody noted when.
        call_validity: measured share of sound tool calls of its target, when that was chosen;
            None where none was.
    """

    run_id: str
    attempt: int
    time: float
    key: str
    route: str
    provider: str
    model: str
    path: Path
    response_mode: ResponseMode
    status: AttemptEnd
    category: str = ""
    param: str = ""
    reason: str = ""
    upstream_status: int = 0
    phase: str = ""
    calls: tuple[str, ...] = ()
    calls_read: tuple[CallRead, ...] = ()
    forms: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    constrained: bool = False
    feedback: bool = False
    usage: Usage = Usage()
    content_chars: int = 0
    reasoning_chars: int = 0
    bytes_out: int = 0
    first_token_s: float | None = None
    held_s: float = 0.0
    total_s: float = 0.0
    cancel_s: float | None = None
    operation: str = CHAT
    call_validity: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run is over.

    Attributes:
        model: the client's name for it.
        provider: that of its last attempt, like the status.
        error_type: of the error the client was told, empty where it was told none.
        calls: names of the tools called, as in the last attempt's row, like the two lengths.
        policy: buffer, validate and strictness in force, in words.
    """

    run_id: str
    request_id: str = ""
    key: str = ""
    route: str = ""
    model: str = ""
    provider: str = ""
    status: AttemptEnd
    attempts: int
    at: float
    total_s: float
    error_type: str = ""
    response_mode: ResponseMode = "whole"
    content_chars: int = 0
    reasoning_chars: int = 0
    calls: tuple[str, ...] = ()
    policy: str = ""


RunEvent: TypeAlias = RunStarted | AttemptStarted | PieceEmitted | AttemptEnded | RunEnded
