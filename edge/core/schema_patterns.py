"""Chooses a regular-expression engine for a schema's patterns, so that none can take long.

Compiling a pattern costs time by the size of its program, and so does running it, in the worst
case, for every character. So patterns are tried on the cheapest engine first:

    tiny          nearly every real pattern; some 50 µs to compile
    small, large  linear in the text; at worst 10 and 50 µs a character (measured), mostly 1 ns
    backtracking  look-around and back-references, which the others cannot do; a step limit, and
                  short texts only

A text that is longer than its engine is given is judged without patterns: a pattern on a text of
that size costs more than it can be worth. So is every text by a schema with a pattern that is too
large for every engine, or that comes when the request's budget is used up.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import jsonschema_rs

from edge.errors import InvalidRequest

Engine: TypeAlias = jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions

NEVER = -1
"""As the longest text: the patterns are not asserted at all."""

ALWAYS = 2**62

_MIB = 1024 * 1024
_TINY = jsonschema_rs.RegexOptions(size_limit=20_000, dfa_size_limit=_MIB)
_SMALL = jsonschema_rs.RegexOptions(size_limit=200_000, dfa_size_limit=_MIB)
_LARGE = jsonschema_rs.RegexOptions(size_limit=4 * _MIB, dfa_size_limit=4 * _MIB)
_BACKTRACKING = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=20_000, size_limit=_MIB, dfa_size_limit=_MIB
)
_ENGINES: tuple[Engine, ...] = (_TINY, _SMALL, _LARGE, _BACKTRACKING)
_COUNTS = re.compile(r"\{\d+(?:,\d*)?\}")
# Characters that each engine is given, shared out among a schema's patterns.
_WORK = (2_000_000, 2_000_000, 200_000, 40_000)
_BACKTRACKING_CHARS = 4_096


@dataclass(slots=True, eq=False)
class PatternBudget:
    """What the patterns of one request may cost to compile.

    Attributes:
        patterns: how many may still be compiled.
        costly: how many of them may need more than the tiny engine.
    """

    patterns: int = 2_000
    costly: int = 12

    def engine(self, patterns: Sequence[str], param: str) -> tuple[Engine, int]:
        """The cheapest engine that takes all of a schema's patterns.

        Returns:
            The engine, and the longest text that it is given.

        Raises:
            InvalidRequest: a pattern is no regular expression.
        """
        if not patterns:
            return _TINY, ALWAYS
        rank = 0
        for pattern in patterns:
            found = self._rank(pattern, param)
            if found is None:
                return _TINY, NEVER
            rank = max(rank, found)
        chars = _WORK[rank] // len(patterns)
        if _ENGINES[rank] is _BACKTRACKING:
            chars = min(chars, _BACKTRACKING_CHARS)
        return _ENGINES[rank], chars

    def _rank(self, pattern: str, param: str) -> int | None:
        """The first engine that takes the pattern; None where it costs too much."""
        if self.patterns <= 0:
            return None
        self.patterns -= 1
        if _takes(_TINY, pattern):
            return 0
        if self.costly <= 0:
            return None
        self.costly -= 1
        for rank in range(1, len(_ENGINES)):
            if _takes(_ENGINES[rank], pattern):
                return rank
        # Told from a large one by what is left without its counts.
        if _takes(_BACKTRACKING, _COUNTS.sub("", pattern)):
            return None
        raise InvalidRequest(f"the pattern {pattern[:80]!r} is no regular expression", param=param)


def _takes(engine: Engine, pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=engine)
    except ValueError:
        return False
    return True
