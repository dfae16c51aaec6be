"""Places inside JSON values as people write them: ``arguments.steps[0].state``."""

from collections.abc import Iterable

# A key from a model may be anything of any length; a place must stay readable.
_MAX_KEY = 60


def child(place: str, key: str | int) -> str:
    """The place of an item (an index) or a member (a name) of the value at ``place``."""
    if isinstance(key, int):
        return f"{place}[{key}]"
    name = key if len(key) <= _MAX_KEY else f"{key[:_MAX_KEY]}…"
    return f"{place}.{name}" if place else name


def below(place: str, path: Iterable[str | int]) -> str:
    """The place that ``path`` leads to from ``place``."""
    for key in path:
        place = child(place, key)
    return place
