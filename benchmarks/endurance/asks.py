"""What clients ask for, how they leave, and what must be in the books afterwards.

A kind is a way of asking; each has its weight in the mix. What the ledger must show of a run is
written with a letter for each attempt, as a regular expression: ``VS`` is an answer that was
found invalid and a sound one after it.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from benchmarks.endurance.orders import TOOL, Order

LETTERS = {
    "success": "S",
    "validation_failed": "V",
    "upstream_error": "U",
    "timeout": "T",
    "cancelled": "C",
    "drained": "D",
    "rejected": "R",
}

Group: TypeAlias = Literal["sound", "malformed", "dying", "give-up"]
Leaving: TypeAlias = Literal["", "closes", "resets", "cancels"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A way of asking.

    Attributes:
        weight: its share of all requests, in tenths of a percent.
        verbs: what the provider does, attempt by attempt.
        route: the model's name.
        rows: the attempts as the ledger must show them.
        end: what the client sees: ``whole``, ``left``, or the type of an error.
        stream: whether the answer is streamed.
        tools: whether a tool is offered.
        path: where the request goes.
        socket: it goes over a WebSocket, with others.
        leaving: how the client leaves: it closes or resets the connection, or cancels the run by
            its id.
        after_chunks: it leaves once it has been given so much; 0 for a time at random.
    """

    name: str
    group: Group
    weight: int
    verbs: tuple[str, ...]
    route: str = "live"
    rows: str = "S"
    end: str = "whole"
    stream: bool = True
    tools: bool = False
    path: str = "/v1/chat/completions"
    socket: bool = False
    leaving: Leaving = ""
    after_chunks: int = 0


def _sound() -> Iterator[Kind]:
    def kind(name: str, weight: int, verb: str = "text", **more: Any) -> Kind:
        return Kind(name=name, group="sound", weight=weight, verbs=(verb,), **more)

    yield kind("text, streamed", 150)
    yield kind("text, streamed, tools offered", 50, tools=True)
    yield kind("text, held", 50, route="held", tools=True)
    yield kind("text, whole", 70, stream=False)
    yield kind("call, streamed", 50, "call", tools=True)
    yield kind("call, held", 30, "call", route="held", tools=True)
    yield kind("call, whole", 30, "call", stream=False, tools=True)
    yield kind("call in words", 50, "written", tools=True)
    yield kind("tunnelled, streamed", 50, route="passed")
    yield kind("tunnelled, whole", 30, route="passed", stream=False)
    yield kind("embeddings", 20, route="passed", stream=False, path="/v1/embeddings")
    yield kind("text, two slots", 20, route="narrow")
    yield kind("socket: text", 40, socket=True)
    yield kind("socket: call", 10, "call", tools=True, socket=True)


def _malformed() -> Iterator[Kind]:
    def kind(name: str, weight: int, *verbs: str, **more: Any) -> Kind:
        more = {"rows": "VS", "tools": True, **more}
        return Kind(name=name, group="malformed", weight=weight, verbs=verbs, **more)

    yield kind("bad call, then a good one", 30, "badcall", "call")
    yield kind("bad in words, then good", 25, "badwritten", "written")
    yield kind("bad call, then good, held", 15, "badcall", "call", route="held")
    yield kind("bad call, then good, whole", 10, "badcall", "call", stream=False)
    yield kind("socket: bad call, then good", 10, "badcall", "call", socket=True)
    yield kind("bad to the end", 10, "badcall", rows="VVV", end="tool_validation_error")


def _dying() -> Iterator[Kind]:
    def kind(name: str, weight: int, *verbs: str, **more: Any) -> Kind:
        more = {"rows": "US", **more}
        return Kind(name=name, group="dying", weight=weight, verbs=verbs, **more)

    yield kind("dies before the head", 10, "drop", "text")
    yield kind("dies in an answer that is held", 8, "cut", "text", route="held", tools=True)
    yield kind("breaks in an answer read whole", 6, "reset", "text", stream=False)
    yield kind("dies in mid-stream", 8, "cut", rows="U", end="run_error")
    yield kind("breaks in mid-stream", 4, "reset", rows="U", end="run_error")
    yield kind("dies in a tunnel", 5, "cut", route="passed", rows="U", end="run_error")
    # Whom a tunnel asks again on a new connection cannot tell that from another attempt.
    yield kind("dies before a tunnel's head", 5, "drop", "text", route="passed", rows="U?S")
    yield kind("refuses", 4, "refuse", "text")


def _give_ups() -> Iterator[Kind]:
    def kind(name: str, weight: int, *verbs: str, **more: Any) -> Kind:
        more = {"rows": "C", "end": "left", "leaving": "closes", **more}
        return Kind(name=name, group="give-up", weight=weight, verbs=verbs, **more)

    yield kind("leaves while it talks", 25, "endless", after_chunks=3)
    yield kind("breaks while it talks", 25, "endless", after_chunks=2, leaving="resets")
    yield kind("leaves in a silence", 15, "hush", after_chunks=1)
    yield kind("leaves at some time", 20, "endless")
    yield kind("breaks at some time", 15, "hush", leaving="resets")
    yield kind("leaves before a word", 10, "mute", stream=False)
    yield kind("leaves an answer that is held", 15, "hush", route="held", tools=True)
    yield kind("leaves in a retry", 15, "badcall", "mute", tools=True, rows="C|VC")
    yield kind("leaves a tunnel", 15, "endless", route="passed", after_chunks=2)
    yield kind("leaves a tunnel at some time", 5, "mute", route="passed", stream=False)
    yield kind("leaves for two slots", 5, "endless", route="narrow")
    yield kind("leaves a drain", 10, "endless", route="drained", after_chunks=2, rows="D")
    yield kind(
        "cancels by id", 10, "endless", after_chunks=2, leaving="cancels", end="run_cancelled"
    )
    yield kind(
        "socket: cancels", 15, "endless", socket=True, leaving="cancels", end="run_cancelled"
    )


KINDS = (*_sound(), *_malformed(), *_dying(), *_give_ups())


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Attributes:
        order: what it tells the provider; its id is the request's.
        leaves_after_s: when a client leaves that leaves at some time.
    """

    kind: Kind
    order: Order
    leaves_after_s: float

    @property
    def id(self) -> str:
        """The client's own, sent as ``x-request-id`` and in ``user``."""
        return self.order.id

    def body(self) -> dict[str, Any]:
        """The request."""
        kind = self.kind
        told: dict[str, Any] = {"model": kind.route, "user": str(self.order)}
        if kind.path.endswith("/embeddings"):
            return told | {"input": "words"}
        told |= {"messages": [{"role": "user", "content": "Do as ordered."}], "stream": kind.stream}
        return told | {"tools": [TOOL]} if kind.tools else told


class Mix:
    """Requests at random, after a seed."""

    def __init__(self, kinds: tuple[Kind, ...], seed: int, prefix: str = "ask") -> None:
        self._kinds = kinds
        self._weights = [kind.weight for kind in kinds]
        self._dice = random.Random(seed)  # noqa: S311 - chance, no secret
        self._prefix = prefix
        self._made = 0

    def draw(self) -> Ask:
        """The next request."""
        dice = self._dice
        (kind,) = dice.choices(self._kinds, self._weights)
        self._made += 1
        words, gap_ms = dice.randint(4, 40), dice.choice((2, 10, 20, 40))
        order = Order(f"{self._prefix}-{self._made}", kind.verbs, words, gap_ms)
        return Ask(kind, order, dice.uniform(0.0, 0.6))
