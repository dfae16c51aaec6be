"""The way to a provider through a forward proxy: when to take it, and CONNECT (RFC 9110, 9.3.6).

Only origins with TLS go through a proxy of the environment: model servers on plain http are
neighbours. The environment is read where the program is put together; :func:`proxy_for` decides.
"""

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from edge.providers.origin import Origin


def proxy_for(base_url: str, environ: Mapping[str, str]) -> str:
    """The proxy that the environment names for a base URL; empty for a direct connection.

    ``HTTPS_PROXY`` then ``ALL_PROXY``, lower case first, as curl does; ``NO_PROXY`` is a list of
    host names (with their subdomains), ``host:port`` pairs, addresses, networks (``10.0.0.0/8``),
    or ``*``.
    """
    origin = Origin.parse(base_url)
    if not origin.secure:
        return ""
    proxy = _first(environ, "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
    spared = _first(environ, "no_proxy", "NO_PROXY").lower().replace(",", " ").split()
    if any(_is_spared(origin, entry) for entry in spared):
        return ""
    return proxy


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy's address, and the credentials it wants (empty for none)."""

    host: str
    port: int
    authorization: bytes = b""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read ``http://[user:password@]host[:port]``; the scheme may be missing.

        Raises:
            ValueError: another scheme, or no host.
        """
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("a proxy is given as http://host:port")
        authorization = b""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            authorization = b"Basic " + base64.b64encode(pair.encode())
        return cls(host=parts.hostname, port=parts.port or 80, authorization=authorization)

    def connect_request(self, origin: Origin) -> bytes:
        """The request that asks for a tunnel to an origin."""
        authority = origin.authority.encode("ascii")
        lines = [b"CONNECT " + authority + b" HTTP/1.1", b"host: " + authority]
        if self.authorization:
            lines.append(b"proxy-authorization: " + self.authorization)
        return b"\r\n".join(lines) + b"\r\n\r\n"


def _first(environ: Mapping[str, str], *names: str) -> str:
    return next((value for name in names if (value := environ.get(name, "").strip())), "")


def _is_spared(origin: Origin, entry: str) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return _is_in_network(origin.host, entry)
    if entry in (origin.authority, origin.host):
        return True
    name = entry.removeprefix("*").removeprefix(".")
    if name.endswith(f":{origin.port}"):
        name = name.rpartition(":")[0]
    return bool(name) and (origin.host == name or origin.host.endswith(f".{name}"))


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
