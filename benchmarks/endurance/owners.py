"""Which worker a client talks to, as the kernel knows it."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trio


class Owners:
    """Finds the process at the other end of a connection to this machine.

    Args:
        processes: those it may be, as of now.
    """

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes

    def of(self, stream: trio.SocketStream) -> int:
        """Its pid; 0 where it is not found, since it has not accepted or has died."""
        try:
            ours, theirs = stream.socket.getsockname(), stream.socket.getpeername()
        except OSError:
            return 0
        wanted = [_in_hexadecimal(theirs), _in_hexadecimal(ours)]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1:3] == wanted:
                name = f"socket:[{fields[9]}]"
                return next((pid for pid in self._processes() if _holds(pid, name)), 0)
        return 0


def _in_hexadecimal(address: tuple[str, int]) -> str:
    """As /proc/net/tcp writes it."""
    host, port = address
    return f"{bytes(map(int, host.split('.')))[::-1].hex().upper()}:{port:04X}"


def _holds(pid: int, name: str) -> bool:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for each in os.listdir(folder):
            with suppress(OSError):
                if os.readlink(f"{folder}/{each}") == name:
                    return True
    return False
