"""One of several processes that serve.

It gets its settings from the supervisor, and later ones too; it hears of SIGHUP from nobody else.
When the supervisor dies, so that nobody would restart or stop it, it drains and ends.
"""

import logging
import os
from functools import partial

import trio

from edge.app import Gateway
from edge.process.announce import innermost, say
from edge.process.channel import Channel
from edge.process.rereading import refuse
from edge.process.serving import serve_until_stopped
from edge.server.sockets import CannotListen
from edge.telemetry.logs import configure_logs
from edge.telemetry.shared_metrics import abandon_folder, hold_folder

BEATS = 4
"""Signs of life within the time after which their absence is a hang."""

DYING_S = 2.0
"""How long a supervisor may take to die whose end of the channel has closed."""

log = logging.getLogger("edge.worker")


def work(descriptor: int) -> int:
    """Serve as the worker at the other end of this socket; returns the exit status."""
    status = 1
    try:
        status = trio.run(_work, descriptor)
    except* CannotListen as failures:
        say(str(innermost(failures)))
    return status


async def _work(descriptor: int) -> int:
    supervisor = os.getppid()
    channel = Channel.from_descriptor(descriptor)
    settings = await channel.receive()
    if settings is None:
        return 1
    configure_logs(settings.telemetry.log)
    folder = hold_folder()
    gateway, shutdown = Gateway.build(settings), trio.Event()
    async with trio.open_nursery() as nursery:
        status = await serve_until_stopped(
            gateway,
            shutdown,
            on_listening=partial(_listening, gateway, channel, shutdown, nursery),
            on_stopping=_nothing,
            on_hangup=trio.lowlevel.checkpoint,
        )
        nursery.cancel_scope.cancel()
    if await _orphaned(supervisor, DYING_S if channel.ended else 0):
        abandon_folder(folder)
    return status


async def _orphaned(supervisor: int, patience_s: float) -> bool:
    """Whether the supervisor has died, or does so in this time.

    The kernel closes what a dying process had open before it gives its children to another parent,
    so a worker that had nothing to drain can end in between. A supervisor that lets a worker go
    closes the channel too, and lives.
    """
    with trio.move_on_after(patience_s):
        while os.getppid() == supervisor:  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(0.01)
    return os.getppid() != supervisor


async def _listening(
    gateway: Gateway,
    channel: Channel,
    shutdown: trio.Event,
    nursery: trio.Nursery,
    _urls: list[str],
) -> None:
    await channel.answer("taken")
    nursery.start_soon(_follow, gateway, channel, shutdown)
    if hang_s := gateway.settings.server.hang_s:
        nursery.start_soon(_beat, channel, hang_s / BEATS)


async def _beat(channel: Channel, pause_s: float) -> None:
    """Show that this loop goes round; what blocks it, keeps it from that too."""
    while True:
        await channel.beat()
        await trio.sleep(pause_s)


async def _follow(gateway: Gateway, channel: Channel, shutdown: trio.Event) -> None:
    """Take new settings from the supervisor, for as long as there is one."""
    while (settings := await channel.receive()) is not None:
        try:
            await gateway.reload(settings)
        except ValueError as error:
            refuse(str(error))
            await channel.answer("refused")
        else:
            await channel.answer("taken")
    log.error("the supervisor has died; this worker drains and ends")
    shutdown.set()


def _nothing() -> None:
    """The supervisor knows already."""
