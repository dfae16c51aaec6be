"""What the service manager is told: ``Type=notify`` of systemd.

Each message is one datagram of ``NAME=value`` lines to the socket that ``NOTIFY_SOCKET`` names,
as in sd_notify(3). Where the variable is not set, or nobody listens, nothing happens.
"""

import os
import socket
import time
from contextlib import suppress

import trio


def ready() -> None:
    """Every address is listened on, or a reload is over."""
    _tell("READY=1")


def reloading() -> None:
    """The configuration is being read again; :func:`ready` must follow, whatever comes of it."""
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    _tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")


def stopping() -> None:
    """The drain has begun."""
    _tell("STOPPING=1")


async def show_life() -> None:
    """Keep the watchdog from biting for as long as this event loop goes round (``WatchdogSec``)."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or pid not in ("", str(os.getpid())):
        return
    while True:
        _tell("WATCHDOG=1")
        await trio.sleep(int(usec) / 1_000_000 / 2)


def _tell(*lines: str) -> None:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is not in the file system
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.sendto("\n".join(lines).encode(), address)
