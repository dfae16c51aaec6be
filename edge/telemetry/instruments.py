"""Every metric: its name, what it says, its labels, its buckets. ``docs/metrics.md`` lists them.

Names of OpenTelemetry's conventions for generative AI are used where there are any, in the form
Prometheus gives them; the buckets are those that the conventions advise. All others begin with
``edge_``. Labels have few values: those of the configuration, and words of the program.
"""

from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

M = TypeVar("M", Counter, Gauge, Histogram)

OF_ATTEMPT = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")

_DURATIONS = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    *(163.84, 327.68),
)
_TOKENS = tuple(float(4**power) for power in range(14))
_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(30.0, 60.0),
)
_PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_WAITS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_INSTANTS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Labelled(Generic[M]):
    """A metric with labels: called with their values, it gives what counts for them."""

    __slots__ = ("_children", "_metric")

    def __init__(self, metric: M) -> None:
        self._metric: M = metric
        self._children: dict[tuple[str, ...], M] = {}

    def __call__(self, *values: str) -> M:
        """The counter (or gauge, or histogram) of these values; a dictionary look-up."""
        child = self._children.get(values)
        if child is None:
            child = self._children[values] = self._metric.labels(*values)
        return child


class Instruments:
    """What run events are counted in, on a registry of its own."""

    def __init__(self, registry: CollectorRegistry) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._add_those_of_the_conventions()
        self._add_ours()

    def _add_those_of_the_conventions(self) -> None:
        self.first_token = self._histogram(
            "gen_ai_server_time_to_first_token_seconds",
            "From dispatch to the first content, of attempts.",
            OF_ATTEMPT,
            _FIRST_TOKEN,
        )
        self.per_token = self._histogram(
            "gen_ai_server_time_per_output_token_seconds",
            "Time for each token after the first, of attempts whose provider counted.",
            OF_ATTEMPT,
            _PER_TOKEN,
        )
        self.attempt_duration = self._histogram(
            "gen_ai_client_operation_duration_seconds",
            "From dispatch to the end, of attempts: the gateway is the provider's client.",
            (*OF_ATTEMPT, "error_type"),
            _DURATIONS,
        )
        self.tokens = self._histogram(
            "gen_ai_client_token_usage",
            "Tokens of attempts, as far as the provider counted them.",
            (*OF_ATTEMPT, "gen_ai_token_type"),
            _TOKENS,
        )
        self.run_duration = self._histogram(
            "gen_ai_server_request_duration_seconds",
            "From the request to the end of the answer, of runs: the gateway is the server.",
            ("route", "error_type"),
            _DURATIONS,
        )

    def _add_ours(self) -> None:
        self.runs = self._counter("edge_runs", "Runs that ended.", ("route", "mode", "status"))
        self.attempts = self._counter(
            "edge_attempts",
            "Attempts that ended; the category says why one failed.",
            ("provider", "path", "status", "category"),
        )
        self.tool_calls = self._counter(
            "edge_tool_calls", "Tool calls in answers.", ("provider", "form", "verdict")
        )
        self.wasted = self._counter(
            "edge_wasted_tokens",
            "Tokens of attempts that gave no answer to a client.",
            ("provider", "status", "token_type"),
        )
        self.give_ups = self._counter(
            "edge_give_ups", "Runs whose client left, by where the run was.", ("phase",)
        )
        self.held = self._histogram(
            "edge_held_seconds",
            "How long answers were held after their first content.",
            ("mode",),
            _DURATIONS,
        )
        self.waited = self._histogram(
            "edge_queue_wait_seconds",
            "From the request to the first dispatch.",
            ("route",),
            _WAITS,
        )
        self.cancel_latency = self._histogram(
            "edge_cancel_latency_seconds",
            "From the moment a client was found gone, or its run cancelled, to the moment the"
            " provider's connection was closed and the slot was free.",
            ("provider",),
            _INSTANTS,
        )
        self.loop_lag = Histogram(
            "edge_loop_lag_seconds",
            "How late the event loop woke a task that slept.",
            registry=self._registry,
            buckets=_INSTANTS,
        )

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...]) -> Labelled[Counter]:
        return Labelled(Counter(name, help_text, labels, registry=self._registry))

    def _histogram(
        self, name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
    ) -> Labelled[Histogram]:
        return Labelled(
            Histogram(name, help_text, labels, registry=self._registry, buckets=buckets)
        )
