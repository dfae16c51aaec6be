"""The tables of the configuration, as frozen values.

Field names are the keys of the TOML file and defaults are the documented defaults; what each key
does stands in ``docs/configuration.md`` (a test holds the two together). The values are checked
where they are read (:mod:`edge.settings.structure`), so these classes only hold them.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from edge.core.output_policy import OutputPolicy
from edge.settings.kinds import (
    Address,
    Count,
    KeyModel,
    Name,
    Positive,
    ReadableFile,
    RouteModel,
    Seconds,
    SecondsOrNone,
    Secret,
    TargetModel,
    Url,
    WebOrigin,
    Weight,
    WritableFile,
)

ProviderKind: TypeAlias = Literal["openai", "simulated"]
ProviderPath: TypeAlias = Literal["auto", "normalized", "tunnel"]
OnGiveUp: TypeAlias = Literal["cancel", "drain"]
PoolPolicy: TypeAlias = Literal["ordered", "weighted", "least_busy"]
LogFormat: TypeAlias = Literal["json", "text", "off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """``[server]``: where and how clients are served.

    Attributes:
        bind: addresses to listen on.
        workers: processes that serve.
        hang_s: seconds without a sign of life after which one of several is killed; 0 never.
        drain_notice_s: seconds after SIGTERM in which only readiness changes.
        drain_s: seconds that open runs then have to end.
        write_timeout_s: seconds after which a client that reads nothing has given up.
        max_body_bytes: longest request body.
        body_timeout_s: seconds that the rest of a body may take.
        max_head_bytes: longest request head.
        header_timeout_s: seconds that a head may take.
        keep_alive_s: seconds that a connection may wait for a request.
        max_connections: connections at a time, of each worker.
        max_frames_per_s: short WebSocket frames of one client, over ten seconds.
        cors_origins: web pages that may call; ``*`` for any.
        allow_open: serve without keys on addresses that other machines can reach.
    """

    bind: tuple[Address, ...] = (Address("127.0.0.1", 8080),)
    workers: Positive = 1
    hang_s: SecondsOrNone = 30.0
    drain_notice_s: SecondsOrNone = 0.0
    drain_s: Seconds = 30.0
    write_timeout_s: Seconds = 30.0
    max_body_bytes: Positive = 32 * 1024 * 1024
    body_timeout_s: Seconds = 60.0
    max_head_bytes: Positive = 64 * 1024
    header_timeout_s: Seconds = 10.0
    keep_alive_s: Seconds = 75.0
    max_connections: Positive = 10_000
    max_frames_per_s: Positive = 1000
    cors_origins: tuple[WebOrigin, ...] = ()
    allow_open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySettings:
    """``[[keys]]``: one client key and its rights.

    Attributes:
        name: what logs, ledger and metrics call it.
        max_concurrent: its runs at a time; 0 is no cap.
        models: public model names it may use; empty is all.
        observe: it sees the runs of other keys too.
        mirror: it may follow the runs it sees.
        trace: it is told what traced runs hold back, too.
        cancel: it may cancel the runs it sees.
    """

    name: Name
    key: Secret
    max_concurrent: Count = 0
    models: tuple[KeyModel, ...] = ()
    observe: bool = False
    mirror: bool = True
    trace: bool = True
    cancel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSettings:
    """``[[providers]]``: one model server.

    Attributes:
        base_url: address up to and including ``/v1``, without a slash at its end; empty where
            ``kind`` is ``simulated``.
        api_key: sent as its bearer token; None sends none.
        path: how answers travel; ``auto`` chooses per run.
        max_concurrent: attempts at a time; 0 is no cap.
        connect_timeout_s: from the first packet to a connection (TLS included).
        first_token_timeout_s: from the request sent to the first content.
        idle_timeout_s: longest silence inside an answer.
        on_give_up: ``cancel`` closes the connection, ``drain`` reads on within the bounds below.
        drain_s: seconds that a drained answer may go on.
        drain_tokens: tokens (counted as chunks) that a drained answer may go on.
        strict_tools: send ``strict: true`` with every tool.
        ask_usage: ask for usage where the client did not.
        continuous_usage: ask for running usage, so that broken-off answers have a count too.
        send_metadata: put what a retry carries into the body's ``metadata`` too.
        verify: check the server's certificate.
        ca_file: certificates to trust in place of the system's.
    """

    name: Name
    kind: ProviderKind = "openai"
    base_url: Url = ""
    api_key: Secret | None = None
    path: ProviderPath = "auto"
    max_concurrent: Count = 0
    connect_timeout_s: Seconds = 5.0
    first_token_timeout_s: Seconds = 120.0
    idle_timeout_s: Seconds = 60.0
    on_give_up: OnGiveUp = "cancel"
    drain_s: Seconds = 30.0
    drain_tokens: Positive = 4096
    strict_tools: bool = False
    ask_usage: bool = True
    continuous_usage: bool = False
    send_metadata: bool = False
    verify: bool = True
    ca_file: ReadableFile = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSettings:
    """An entry of a route's ``targets``.

    Attributes:
        provider: name of a provider.
        model: the provider's name for the model; empty passes the client's on.
        weight: share of the runs under the policy ``weighted``.
    """

    provider: Name
    model: TargetModel = ""
    weight: Weight = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSettings:
    """``[[routes]]``: a public model name and who serves it.

    Attributes:
        model: the public name; ``*`` takes what no other route names.
        policy: how a target is chosen.
        output: ``[output]`` with this route's ``[routes.output]`` laid over it.
    """

    model: RouteModel
    targets: tuple[TargetSettings, ...]
    policy: PoolPolicy = "least_busy"
    output: OutputPolicy = OutputPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSettings:
    """``[limits]``: how much runs at once.

    Attributes:
        max_runs: runs at a time, over all routes.
        queue: runs that may wait for their turn; 0 refuses at once.
        queue_timeout_s: longest wait.
        max_socket_runs: runs at a time of one WebSocket.
    """

    max_runs: Positive = 2000
    queue: Count = 2000
    queue_timeout_s: Seconds = 30.0
    max_socket_runs: Positive = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSettings:
    """``[mirror]``: live copies of runs.

    Attributes:
        replay_bytes: what is kept of a run for those who come late.
        subscriber_buffer: messages a subscriber may fall behind.
    """

    replay_bytes: Count = 256 * 1024
    subscriber_buffer: Positive = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """``[telemetry]``: what is told about runs.

    Attributes:
        log: ``json`` for machines, ``text`` for people.
        trace_content: traced runs log the text itself, not only its length.
        ledger: the SQLite file of the ledger; None keeps no file.
        otel: export OpenTelemetry traces, as the ``OTEL_*`` variables say.
        open_metrics: ``/metrics`` asks for no key, also where keys are configured.
    """

    log: LogFormat = "json"
    trace_content: bool = False
    ledger: WritableFile = None
    otel: bool = False
    open_metrics: bool = False
