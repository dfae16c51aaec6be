"""What a value of the configuration may be, beyond its Python type.

A :class:`Check` in an annotation (``Annotated[float, Seconds()]``) is called with the value once it
has the right type; it returns the value as it is kept, or raises ``ValueError`` with words that
complete the sentence "``<place>`` …". The aliases below are the types that the sections use.
"""

import contextlib
import ipaddress
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable
from urllib.parse import SplitResult, urlsplit

from edge.core.near_match import shown

MAX_PORT = 65535
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})")


@runtime_checkable
class Check(Protocol):
    """A condition that a value of the right type must keep."""

    def __call__(self, value: Any) -> Any:
        """The value as it is kept; ``ValueError`` says what is wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number from ``low`` (itself allowed unless ``above``) to ``high``."""

    low: float
    high: float = math.inf
    above: bool = False

    def __call__(self, value: float) -> float:
        """See :class:`Check`."""
        too_small = value <= self.low if self.above else value < self.low
        if too_small or not math.isfinite(value):
            edge = "above" if self.above else "at least"
            raise ValueError(f"must be {edge} {self.low:.15g}, not {value:.15g}")
        if value > self.high:
            raise ValueError(f"must be at most {self.high:.15g}, not {value:.15g}")
        return value


@dataclass(frozen=True, slots=True)
class PlainName:
    """A name that can stand in a header, a label and a log line as it is."""

    def __call__(self, value: str) -> str:
        """See :class:`Check`."""
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"must be 1 to 64 letters, digits, dots, hyphens or underscores, not {shown(value)}"
            )
        return value


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model's name, ``*`` alone where a ``wildcard`` is allowed, empty where that is."""

    wildcard: bool = False
    empty: bool = False

    def __call__(self, value: str) -> str:
        """See :class:`Check`."""
        if value == "*" and self.wildcard:
            return value
        if "*" in value:
            raise ValueError(
                f'only "*" alone is a wildcard, not {shown(value)}'
                if self.wildcard
                else "must be a model's name; wildcards stand in routes only"
            )
        is_name = value.isprintable() and value == value.strip() and len(value) <= 256
        if not is_name or not (value or self.empty):
            raise ValueError(f"must be a model's name, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """An http or https address without credentials, query or fragment; no slash at its end."""

    def __call__(self, value: str) -> str:
        """See :class:`Check`."""
        parts = _split_url(value)
        if parts.username is not None or parts.password is not None:
            # Not shown: it may be a secret.
            raise ValueError("must not hold credentials; use api_key")
        if parts.query or parts.fragment or "?" in value or "#" in value:
            raise ValueError(f"must have no query and no fragment, not {shown(value)}")
        return value.rstrip("/")


@dataclass(frozen=True, slots=True)
class Origin:
    """``*``, or the scheme, host and port of a web page, as a browser sends it in ``Origin``."""

    def __call__(self, value: str) -> str:
        """See :class:`Check`."""
        if value == "*":
            return value
        parts = _split_url(value)
        if parts.path or parts.query or parts.fragment or parts.username is not None:
            raise ValueError(f'must be like "https://chat.example", not {shown(value)}')
        return value.lower()


def _split_url(value: str) -> SplitResult:
    with contextlib.suppress(ValueError):  # a port that is none, a broken IPv6 address
        parts = urlsplit(value)
        is_plain = value.isascii() and value.isprintable() and " " not in value
        if is_plain and parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return parts
    # What stands before an @ may be a secret.
    but = "" if "@" in value else f", not {shown(value)}"
    raise ValueError(f"must be an http:// or https:// address{but}")


@dataclass(frozen=True, slots=True)
class ExistingFile:
    """A path to a file that is there."""

    def __call__(self, value: Path | None) -> Path | None:
        """See :class:`Check`."""
        if value is not None and not value.is_file():
            raise ValueError(f"is no file: {value}")
        return value


@dataclass(frozen=True, slots=True)
class FileToWrite:
    """A path whose folder is there."""

    def __call__(self, value: Path | None) -> Path | None:
        """See :class:`Check`."""
        if value is not None and not value.parent.is_dir():
            raise ValueError(f"has no folder to lie in: {value.parent}")
        if value is not None and value.is_dir():
            raise ValueError(f"is a folder: {value}")
        return value


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 takes any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """``host:port``, an IPv6 host in brackets; ``ValueError`` where it is neither."""
        host, colon, port = text.rpartition(":")
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        known_port = port.isascii() and port.isdigit() and int(port) <= MAX_PORT
        if not (colon and known_port and _is_host(bare, bracketed=bare != host)):
            raise ValueError(f'must be like "127.0.0.1:8080" or "[::1]:8080", not {shown(text)}')
        return cls(bare, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        return (ipaddress.ip_address(host).version == 6) is bracketed
    except ValueError:
        return not bracketed and bool(_HOST.fullmatch(host))


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is never shown; ``source`` says where it came from.

    Attributes:
        source: ``env:NAME`` or ``file:PATH``, as configured.
        value: what was found there; kept out of ``repr``.
    """

    source: str
    value: str = field(repr=False)


Name: TypeAlias = Annotated[str, PlainName()]
RouteModel: TypeAlias = Annotated[str, ModelName(wildcard=True)]
KeyModel: TypeAlias = Annotated[str, ModelName()]
TargetModel: TypeAlias = Annotated[str, ModelName(empty=True)]
Url: TypeAlias = Annotated[str, HttpUrl()]
WebOrigin: TypeAlias = Annotated[str, Origin()]
Seconds: TypeAlias = Annotated[float, Bounds(0, 86_400 * 7, above=True)]
SecondsOrNone: TypeAlias = Annotated[float, Bounds(0, 86_400 * 7)]
Count: TypeAlias = Annotated[int, Bounds(0, 1 << 40)]
Positive: TypeAlias = Annotated[int, Bounds(1, 1 << 40)]
Weight: TypeAlias = Annotated[float, Bounds(0, 1_000_000, above=True)]
ReadableFile: TypeAlias = Annotated[Path | None, ExistingFile()]
WritableFile: TypeAlias = Annotated[Path | None, FileToWrite()]
