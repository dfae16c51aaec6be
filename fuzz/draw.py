"""What the bytes of an input mean: a few choices first, then the text or the tree they are about.

Nothing here needs atheris, so that an input which once made a target fail can be replayed by an
ordinary test on every Python.
"""

import copy
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

T = TypeVar("T")
Text = TypeVar("Text", bytes, str)

MAX_EDITS = 12
MAX_SINGLE = 160
MAX_NODES = 400
"""A tree that was copied into itself is not copied further."""

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**64, -(2**63) - 1, 1.5, 1e300, "", " ", "x", "stop", "length",
    "tool_calls", "function", "assistant", "tool", "user", "\x00", "é😀", "{", "{}", '{"at": "it"}',
    "</tool_call>", "<think>", [], {}, [None], [[]], [{}], {"a": 1}, {"": None}, {"a": {"b": []}},
    {"type": "string"}, {"type": "object"}, {"$ref": "#"}, "call_1", "look",
)  # fmt: skip
"""Values that careless code does not expect where it meets them."""

KEYS = (
    "id", "index", "role", "content", "tool_calls", "function", "function_call", "name",
    "arguments", "type", "choices", "delta", "message", "finish_reason", "usage", "error", "code",
    "detail", "refusal", "annotations", "audio", "logprobs", "system_fingerprint", "service_tier",
    "reasoning_content", "reasoning", "text", "model", "messages", "tools", "tool_choice",
    "functions", "parameters", "properties", "required", "items", "stream", "stream_options",
    "include_usage", "metadata", "response_format", "json_schema", "schema", "n", "edge.buffer",
    "strict", "tool_call_id", "object", "prompt_tokens", "", "\x00",
)  # fmt: skip
"""Keys that mean something somewhere."""


class Draw:
    """Makes choices by the bytes of an input; past their end each choice is the first one."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_spent(self) -> bool:
        """Whether there are no bytes left."""
        return self._at >= len(self._data)

    def below(self, limit: int) -> int:
        """A number from 0 to below ``limit``; takes one byte, or two for more than 256."""
        width = 1 if limit <= 256 else 2
        taken = self._data[self._at : self._at + width]
        self._at += width
        return int.from_bytes(taken, "big") % limit if limit else 0

    def flag(self) -> bool:
        """Yes or no."""
        return bool(self.below(2))

    def pick(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.below(len(options))]

    def rest(self) -> bytes:
        """All bytes that no choice has taken."""
        rest = self._data[self._at :]
        self._at = len(self._data)
        return rest


def cut(whole: Text, seed: int, *, most: int = 8) -> list[Text]:
    """The same in pieces, none of them empty; where it is cut is decided by ``seed``."""
    chance = random.Random(seed)  # noqa: S311 - a shape, no secret
    count = min(chance.randint(0, most), max(len(whole) - 1, 0))
    places: list[int] = sorted(chance.sample(range(1, len(whole)), count)) if count else []
    return [whole[a:b] for a, b in pairwise([0, *places, len(whole)]) if a < b]


def finely(whole: Text, seed: int) -> list[Text]:
    """The same one by one, or in many pieces where that would take long."""
    if len(whole) > MAX_SINGLE:
        return cut(whole, ~seed, most=MAX_SINGLE // 4)
    return [whole[at : at + 1] for at in range(len(whole))]


def as_text(data: bytes) -> str:
    """The text of some bytes, whatever they are."""
    return data.decode("utf-8", "replace")


def edited(tree: Any, draw: Draw) -> Any:
    """A copy of a JSON tree with a few nodes replaced, copied elsewhere, taken out or put in."""
    root = [copy.deepcopy(tree)]
    for _ in range(MAX_EDITS):
        if draw.is_spent:
            break
        places = _places(root)
        container, key = places[draw.below(len(places))]
        kind = draw.below(4)
        if kind == 0:
            container[key] = copy.deepcopy(draw.pick(ODD))
        elif kind == 1 and len(places) < MAX_NODES:
            other, place = places[draw.below(len(places))]
            container[key] = copy.deepcopy(other[place])
        elif kind == 2 and container is not root:
            del container[key]
        elif kind == 3 and container is not root:
            value = copy.deepcopy(draw.pick(ODD) if draw.flag() else container[key])
            if isinstance(container, dict):
                container[draw.pick(KEYS)] = value
            else:
                container.insert(key, value)
    return root[0]


def _places(container: Any) -> list[tuple[Any, Any]]:
    """Every container with every key or index of it."""
    found: list[tuple[Any, Any]] = []
    for key in container if isinstance(container, dict) else range(len(container)):
        found.append((container, key))
        if isinstance(container[key], dict | list):
            found += _places(container[key])
    return found
