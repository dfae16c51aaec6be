"""Takes a vendor's own marker off the end of native arguments, where its server left it.

MiniMax M3 begins every tag of its markup with ``]<]minimax[>[``. Servers that parse the markup by
the tags alone leave the beginning of the next tag on the end of each value (MiniMax-M3#31). At the
very end of a value, and nowhere else, it can only be that: what a value says *about* the marker,
in its middle, is left alone. Only markers that no language, path or prose ends with are listed.
"""

from typing import Any

LEAKED = ("]<]minimax[>[",)
REPAIR = "leaked_marker"


def without_leaked_markers(value: Any, text: str) -> Any:
    """``value`` with every string freed of a marker on its end; the same object if none has one.

    Args:
        value: parsed JSON, not deeper than what was parsed.
        text: the JSON text it was parsed from, where a look for the marker is cheap.
    """
    if not any(marker in text for marker in LEAKED):
        return value
    return _freed(value)


def _freed(value: Any) -> Any:
    if isinstance(value, str):
        for marker in LEAKED:
            value = value.removesuffix(marker)
        return value
    if isinstance(value, list):
        items = [_freed(item) for item in value]
        return value if items == value else items
    if isinstance(value, dict):
        freed = {name: _freed(item) for name, item in value.items()}
        return value if freed == value else freed
    return value
