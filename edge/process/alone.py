"""One process that serves."""

from collections.abc import Callable
from functools import partial

import trio

from edge.app import Gateway
from edge.process import systemd
from edge.process.announce import innermost, say, say_serving
from edge.process.rereading import confirm, read_again, refuse
from edge.process.serving import serve_until_stopped
from edge.server.sockets import CannotListen
from edge.settings import Settings
from edge.telemetry.logs import configure_logs


def serve(settings: Settings, reread: Callable[[], Settings]) -> int:
    """Serve until a signal comes; returns the exit status."""
    configure_logs(settings.telemetry.log)
    status = 1
    try:
        status = trio.run(_serve, Gateway.build(settings), reread)
    except* CannotListen as failures:
        say(str(innermost(failures)))
    return status


async def _serve(gateway: Gateway, reread: Callable[[], Settings]) -> int:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(systemd.show_life)
        status = await serve_until_stopped(
            gateway,
            trio.Event(),
            on_listening=partial(_listening, gateway.settings),
            on_stopping=systemd.stopping,
            on_hangup=partial(_reload, gateway, reread),
        )
        nursery.cancel_scope.cancel()
    return status


async def _listening(settings: Settings, urls: list[str]) -> None:
    say_serving(settings, urls)
    systemd.ready()
    await trio.lowlevel.checkpoint()


async def _reload(gateway: Gateway, reread: Callable[[], Settings]) -> None:
    systemd.reloading()
    settings = await read_again(gateway.settings, reread)
    if settings is not None:
        try:
            await gateway.reload(settings)
        except ValueError as error:
            refuse(str(error))
        else:
            confirm(settings)
    systemd.ready()
