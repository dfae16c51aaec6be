"""SIGHUP: the settings are read again, and refused as a whole if anything is wrong with them."""

import logging
from collections.abc import Callable

import trio

from edge.settings import Settings, SettingsError, for_reload

log = logging.getLogger("edge.reload")


async def read_again(running: Settings, reread: Callable[[], Settings]) -> Settings | None:
    """What to serve with from now on; None where it was refused, and the log says why.

    What has changed and needs a restart is logged too, and stays as it is.
    """
    try:
        settings, changed = for_reload(running, await trio.to_thread.run_sync(reread))
    except SettingsError as error:
        refuse("; ".join(error.lines()))
        return None
    if changed:
        log.warning("changed, but only a restart will use it: %s", ", ".join(changed))
    return settings


def refuse(why: str) -> None:
    """Log that the configuration stays as it was."""
    log.error("the new configuration is refused, the old one stays: %s", why)


def confirm(settings: Settings) -> None:
    """Log that the new configuration is in use."""
    models = ", ".join(route.model for route in settings.routes)
    log.info("the configuration was read again; models: %s", models)
