"""What of a new configuration a gateway that serves can take.

Routes, providers, keys, output policies and the web pages that may call can change while it
serves. The rest is about what was made at its start: sockets, processes, the queue, files.
"""

from collections.abc import Iterator
from dataclasses import fields, replace

from edge.settings.complaints import Complaint, SettingsError
from edge.settings.root import Settings

FIXED = ("server", "limits", "mirror", "telemetry")
"""Tables that stay as they were at the start, but for ``server.cors_origins``."""


def for_reload(running: Settings, wanted: Settings) -> tuple[Settings, tuple[str, ...]]:
    """What to reload, and the keys of ``wanted`` that need a restart.

    Args:
        running: what is in use, its fixed tables as they were read at the start.
        wanted: what has been read now.

    Raises:
        SettingsError: with what stays as it is, it would open a door that it does not open alone.
    """
    changed = tuple(_changed(running, wanted))
    server = replace(running.server, cors_origins=wanted.server.cors_origins)
    kept = {table: getattr(running, table) for table in FIXED}
    taken = replace(wanted, **{**kept, "server": server})
    open_at = [bind for bind in taken.server.bind if not bind.is_loopback]
    if open_at and not taken.keys and not taken.server.allow_open:
        message = (
            f"{open_at[0]} is still listened on, can be reached by other machines, "
            "and there would be no [[keys]]; add keys, or restart"
        )
        raise SettingsError([Complaint("keys", message)])
    return taken, changed


def _changed(running: Settings, wanted: Settings) -> Iterator[str]:
    for table in FIXED:
        old, new = getattr(running, table), getattr(wanted, table)
        for key in fields(old):
            place = f"{table}.{key.name}"
            if getattr(old, key.name) != getattr(new, key.name) and place != "server.cors_origins":
                yield place
