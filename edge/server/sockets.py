"""The sockets a server listens on, made from the addresses in its configuration.

Either all of them are bound, or none is left open.
"""

import socket
import stat
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""Two minutes until the kernel tells that a silent client's machine or network is gone."""

_UNSENT_BYTES = 128 * 1024
"""What the kernel takes for a client beyond what it has on the way to it.

Left to itself it takes some four megabytes, and then nothing until a third of that has gone: a
client that reads 200 KB/s all the time looked for 8 s as if it read nothing, one of 25 KB/s for
longer than ``write_timeout_s``. And a provider went on writing what nobody would read."""


class CannotListen(OSError):
    """An address cannot be bound; the message names it and says why."""

    def __str__(self) -> str:
        return str(self.strerror)


def bind_all(binds: Sequence[str], *, reuse_port: bool = False) -> list[socket.socket]:
    """Non-blocking stream sockets, bound and not yet listening.

    Args:
        binds: ``host:port`` (port 0: any free one), ``[v6]:port``, ``unix:/path`` (a
            socket that is there already is replaced) or ``fd://N`` (an inherited one).
        reuse_port: let other processes bind the same ports.

    Raises:
        CannotListen: an address cannot be bound.
        ValueError: an address cannot be read.
    """
    with ExitStack() as undo:
        sockets = [undo.enter_context(_bind(bind, reuse_port)) for bind in binds]
        undo.pop_all()
    return sockets


def url_of(listening: socket.socket) -> str:
    """Where clients find it: ``http://host:port``, or ``unix:/path``."""
    name = listening.getsockname()
    if not isinstance(name, tuple):
        return f"unix:{name}"
    host = f"[{name[0]}]" if listening.family == socket.AF_INET6 else name[0]
    return f"http://{host}:{name[1]}"


def _bind(bind: str, reuse_port: bool) -> socket.socket:
    if bind.startswith("fd://"):
        made = socket.socket(fileno=int(bind.removeprefix("fd://")))
        address: str | tuple[str, int] | None = None
    elif bind.startswith("unix:"):
        address = bind.removeprefix("unix:")
        _remove_old(Path(address))
        made = socket.socket(socket.AF_UNIX)
    else:
        address = _host_and_port(bind)
        made = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    try:
        _configure(made, reuse_port)
        if address is not None:
            made.bind(address)
    except OSError as error:
        made.close()
        raise CannotListen(error.errno, f"cannot listen on {bind}: {error.strerror}") from error
    except BaseException:
        made.close()
        raise
    return made


def _host_and_port(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"{bind!r} is no address: host:port, [v6]:port, unix:/path or fd://N")
    return host.strip("[]"), int(port)


def _configure(made: socket.socket, reuse_port: bool) -> None:
    made.setblocking(False)
    if made.family not in (socket.AF_INET, socket.AF_INET6):
        return
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if reuse_port:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # What follows is inherited by every connection that is accepted.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _remove_old(path: Path) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            path.unlink()
