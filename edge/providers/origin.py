"""Where a provider lives: a base URL taken apart once, when the gateway starts.

``http://127.0.0.1:8000/v1`` is the origin ``127.0.0.1:8000`` and the path ``/v1``, below which
every request path is put. Credentials, queries and fragments have no place in a base URL and are
refused: keys are settings of their own, so that they never end up in a log with the address.
"""

from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port of a server, and the path its API begins at.

    Attributes:
        host: a name in its ASCII form, or an IP address without brackets.
        base_path: begins with a slash and does not end with one; empty for the root.
    """

    secure: bool
    host: str
    port: int
    base_path: str = ""

    @classmethod
    def parse(cls, base_url: str) -> Self:
        """Take a base URL apart.

        Raises:
            ValueError: it is no http or https URL with a host, or carries more than an address.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"{base_url!r} is not an http:// or https:// URL")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("a base URL carries no credentials, query or fragment")
        return cls(
            secure=parts.scheme == "https",
            host=_ascii_host(parts.hostname),
            port=parts.port or _DEFAULT_PORTS[parts.scheme],
            base_path=parts.path.rstrip("/"),
        )

    @property
    def authority(self) -> str:
        """``host:port``, an IPv6 address in brackets: what CONNECT names."""
        return f"{self._bracketed}:{self.port}"

    @property
    def host_header(self) -> str:
        """The value of ``Host``, without the scheme's own port (RFC 9110, 7.2)."""
        if self.port == _DEFAULT_PORTS["https" if self.secure else "http"]:
            return self._bracketed
        return self.authority

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def _ascii_host(host: str) -> str:
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f"{host!r} is not a host name") from None
