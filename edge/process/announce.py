"""The few lines for people, on stderr and outside the log."""

import sys
from collections.abc import Sequence

from edge.settings import Settings


def say(line: str) -> None:
    """Write one line."""
    print(f"edge: {line}", file=sys.stderr, flush=True)  # noqa: T201 - a person waits for it


def say_serving(settings: Settings, urls: Sequence[str]) -> None:
    """Every address is listened on: what is served, and where."""
    models = ", ".join(route.model for route in settings.routes)
    count = settings.server.workers
    workers = f" with {count} workers" if count > 1 else ""
    say(f"serving {models} on {', '.join(urls)}{workers}")


def innermost(error: BaseException) -> BaseException:
    """The first failure out of nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
