"""What a request tells the provider to do, in its ``user`` field, and what its answers say.

    ask-17/drop+text/12/5        id / a verb for each attempt / words / milliseconds between them

Both ends know the words, so that a client can check what it got.

verbs that answer:
    text        words, then the end
    call        a native tool call, its arguments in pieces
    written     the same call, written as text between tags
    badcall     a native call whose arguments do not keep the schema
    badwritten  the same, written as text
verbs that leave the client waiting, until it leaves:
    hush        words, then silence
    endless     words without end
    mute        not even a head
verbs that fail:
    drop        the connection is closed in place of an answer
    cut, reset  words, then the connection is closed or broken
    refuse      a 500
"""

from dataclasses import dataclass
from typing import Any

VERBS = frozenset(
    {
        *("text", "call", "written", "badcall", "badwritten"),
        *("hush", "endless", "mute", "drop", "cut", "reset", "refuse"),
    }
)

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}


@dataclass(frozen=True, slots=True)
class Order:
    """An order: the request's id, a verb for each attempt (the last one repeats), the pace."""

    id: str
    verbs: tuple[str, ...]
    words: int
    gap_ms: int

    def __str__(self) -> str:
        return f"{self.id}/{'+'.join(self.verbs)}/{self.words}/{self.gap_ms}"

    @staticmethod
    def parse(text: str) -> "Order":
        """The order in a ``user`` field; ``ValueError`` where it is none."""
        """The order in a ``user`` field; ``ValueError`` where it is none."""
        name, verbs, words, gap_ms = text.split("/")
        order = Order(name, tuple(verbs.split("+")), int(words), int(gap_ms))
        if not set(order.verbs) <= VERBS:
            raise ValueError(text)
        return order

    def verb(self, attempt: int) -> str:
        """Of an attempt, from 1."""
        return self.verbs[min(attempt, len(self.verbs)) - 1]

    @property
    def text(self) -> str:
        """What a whole answer in words says."""
        return "".join(self.word(number) for number in range(self.words))

    def word(self, number: int) -> str:
        """One word of it; they differ between requests, so that a mix-up shows."""
        return f"{self.id}.{number} "

    @property
    def arguments(self) -> dict[str, Any]:
        """What a sound call is made with."""
        return {"city": self.id, "days": self.words}

    @property
    def bad_arguments(self) -> dict[str, Any]:
        """What an unsound one is made with."""
        return {"city": self.id, "days": {"from": self.words}}
