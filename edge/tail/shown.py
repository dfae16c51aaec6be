"""Text of strangers, made fit for a terminal.

Models and providers write whatever they like, escape sequences included, and a terminal obeys.
"""

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: object) -> str:
    """The text with every control character but tab and line feed replaced."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text if isinstance(text, str) else str(text))


def line(text: object, longest: int = 240) -> str:
    """The same on one line, cut where it is long."""
    told = " ".join(plain(text).split())
    return told if len(told) <= longest else told[: longest - 1] + "…"
