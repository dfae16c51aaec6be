"""Finds the line of a key in a TOML text, for complaints.

``tomllib`` gives values without positions. This reads the text a second time, only for its table
headers and ``key =`` lines, and only once ``tomllib`` has accepted it; so it may be simple: strings
over several lines and brackets left open are skipped, nothing is decoded. A place inside an inline
table or an array has no line of its own and takes that of the key it stands in.
"""

import re
from collections import Counter
from collections.abc import Mapping

_HEADER = re.compile(r"\s*(\[\[?)\s*(.+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(
    r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_.-]+)*)\s*=(.*)$"""
)
_STRINGS = re.compile(r"""\"""|'''|"(?:\\.|[^"\\])*"|'[^']*'|#.*$|[\[\]{}]""")


def lines_of_places(text: str) -> dict[str, int]:
    """Line numbers (from 1) by place, as ``{"providers[1].name": 12, "providers[1]": 11}``."""
    found: dict[str, int] = {}
    entries: Counter[str] = Counter()
    prefix = ""
    skipper = _Skipper()
    for number, line in enumerate(text.splitlines(), start=1):
        if skipper.is_inside:
            skipper.feed(line)
        elif header := _HEADER.match(line):
            prefix = _enter(header[1], header[2], entries)
            found.setdefault(prefix, number)
        elif key := _KEY.match(line):
            name = _plain(key[1])
            found.setdefault(f"{prefix}.{name}" if prefix else name, number)
            skipper.feed(key[2])
    return found


def line_of(place: str, lines: Mapping[str, int]) -> int | None:
    """The line of ``place``, or of the nearest thing around it; None for the whole file."""
    while place and place not in lines:
        place = place[: max(place.rfind("."), place.rfind("["), 0)]
    return lines.get(place)


def _enter(brackets: str, name: str, entries: Counter[str]) -> str:
    """The place that a header opens; ``[routes.output]`` belongs to the latest ``[[routes]]``."""
    parts = _plain(name).split(".")
    place = ""
    for depth, part in enumerate(parts):
        place = f"{place}.{part}" if place else part
        if brackets == "[[" and depth == len(parts) - 1:
            entries[place] += 1
        if entries[place]:
            place = f"{place}[{entries[place] - 1}]"
    return place


def _plain(key: str) -> str:
    return re.sub(r"""["'\s]""", "", key)


class _Skipper:
    """Whether a value that began on an earlier line goes on."""

    def __init__(self) -> None:
        self._quotes = ""
        self._depth = 0

    @property
    def is_inside(self) -> bool:
        return bool(self._quotes) or self._depth > 0

    def feed(self, text: str) -> None:
        """Read on in a value."""
        at = 0
        while at < len(text):
            if self._quotes:
                end = text.find(self._quotes, at)
                if end < 0:
                    return
                at = end + len(self._quotes)
                self._quotes = ""
                continue
            mark = _STRINGS.search(text, at)
            if mark is None:
                return
            self._take(mark[0])
            at = mark.end()

    def _take(self, mark: str) -> None:
        if mark in ('"""', "'''"):
            self._quotes = mark
        elif mark in "[{":
            self._depth += 1
        elif mark in "]}":
            self._depth -= 1
