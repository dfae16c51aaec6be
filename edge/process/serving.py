"""What a serving process does about signals.

SIGTERM and SIGINT ask for the end: the gateway drains, and the exit status is 0 whether or not
runs had to be cut. A second one ends at once, with the status a shell gives for that signal (143,
130), so that whoever asked can tell. SIGHUP asks for new settings.
"""

import signal
from collections.abc import Awaitable, Callable

import trio

from edge.app import Gateway
from edge.process import memory


async def serve_until_stopped(
    gateway: Gateway,
    shutdown: trio.Event,
    *,
    on_listening: Callable[[list[str]], Awaitable[None]],
    on_stopping: Callable[[], None],
    on_hangup: Callable[[], Awaitable[None]],
) -> int:
    """Serve until a signal comes; returns the exit status.

    Args:
        gateway: not yet listening.
        shutdown: set by a first signal; may be set by others too.
        on_listening: called with the addresses, as URLs, once all of them are listened on.
        on_stopping: called when the drain begins.
        on_hangup: called for each SIGHUP.
    """
    status = 0
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
            nursery.start_soon(_serve, gateway, shutdown, on_listening, nursery.cancel_scope)
            async for number in signals:
                if number == signal.SIGHUP:
                    await on_hangup()
                elif shutdown.is_set():
                    status = status_of(number)
                    nursery.cancel_scope.cancel()
                else:
                    on_stopping()
                    shutdown.set()
    return status


def status_of(number: int) -> int:
    """The exit status of a process that a signal ended at once."""
    return 128 + number


async def _serve(
    gateway: Gateway,
    shutdown: trio.Event,
    on_listening: Callable[[list[str]], Awaitable[None]],
    whole: trio.CancelScope,
) -> None:
    async with trio.open_nursery() as serving:
        urls: list[str] = await serving.start(
            lambda task_status: gateway.serve(shutdown, task_status=task_status)
        )
        memory.settle()
        await on_listening(urls)
    whole.cancel()
