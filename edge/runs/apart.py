"""Reading a large request beside the event loop, so that nobody else's stream waits for it.

A request of 30 MB takes from a tenth of a second to a second to read. In a thread most of that is
Python's own code, which lets the event loop have its turn every 5 ms; orjson alone does not, and
the bound of values in :mod:`edge.wire.strict_json` is what keeps that short. Small requests are
read where they are: a thread costs more than they do.
"""

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import trio

LARGE_BYTES = 256 * 1024
AT_A_TIME = 2

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_limiters: trio.lowlevel.RunVar[trio.CapacityLimiter] = trio.lowlevel.RunVar("edge.runs.apart")


async def apart(size: int, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Do pure work on a request of so many bytes, in a thread if they are many.

    A client that leaves is not waited for: the thread ends by itself, and is one of at most
    ``AT_A_TIME`` until then.
    """
    if size < LARGE_BYTES:
        return work(*arguments)
    return await trio.to_thread.run_sync(
        work, *arguments, limiter=_limiter(), abandon_on_cancel=True
    )


def _limiter() -> trio.CapacityLimiter:
    """That of this event loop."""
    try:
        return _limiters.get()
    except LookupError:
        limiter = trio.CapacityLimiter(AT_A_TIME)
        _limiters.set(limiter)
        return limiter
