"""How a gateway lives as processes: one, or a supervisor and its workers.

    alone.py       one process that serves
    supervisor.py  starts workers, replaces those that crash, passes signals and settings on
    worker.py      one of several that serve
    channel.py     what supervisor and worker tell each other
    rereading.py   what SIGHUP asks for
    serving.py     what a serving process does about signals
    systemd.py     what the service manager is told

The supervisor loads neither the server nor anything else that a request touches: what makes a
worker crash does not reach it.
"""

from collections.abc import Callable

from edge.settings import Settings


def serve(settings: Settings, reread: Callable[[], Settings]) -> int:
    """Serve until a signal comes; returns the exit status.

    Args:
        settings: as they were read.
        reread: reads them again, from where they came; raises ``SettingsError``.
    """
    # Only what is needed is loaded: a supervisor does not serve.
    if settings.server.workers > 1:
        from edge.process import supervisor

        return supervisor.supervise(settings, reread)
    from edge.process import alone

    return alone.serve(settings, reread)


def work(descriptor: int) -> int:
    """Be the worker at the other end of a supervisor's socket; returns the exit status."""
    from edge.process import worker

    return worker.work(descriptor)
