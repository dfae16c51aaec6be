"""``/ui``: a page that shows runs as they happen, as files that need nothing from elsewhere.

The files hold no data and no secret, so they are given to everybody; what the page shows it asks
of the API, with the key of whoever looks. Its policy lets it load, run and call nothing but what
comes from here.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from quart_trio.wrappers import TrioResponse

from edge.errors import NotFound

_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    headers: Mapping[str, str]


def page_response(name: str, if_none_match: str | None = None) -> TrioResponse:
    """One of the page's files, or 304 where the browser has it.

    Raises:
        NotFound: the page has no such file.
    """
    file = FILES.get(name)
    if file is None:
        raise NotFound(f"the page has no file {name!r}")
    if if_none_match == file.headers["etag"]:
        return TrioResponse(b"", 304, dict(file.headers))
    return TrioResponse(file.body, 200, dict(file.headers))


def _load() -> dict[str, _File]:
    folder = files("edge.server") / "ui"
    found = {}
    for entry in folder.iterdir():
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind:
            body = entry.read_bytes()
            found[entry.name] = _File(body, _headers(kind, body))
    return found


def _headers(kind: str, body: bytes) -> dict[str, str]:
    return {
        "content-type": kind,
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        # It is asked for again each time, and not sent again: a new gateway shows its own page.
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(body).hexdigest()[:32]}"',
    }


FILES: Mapping[str, _File] = _load()
"""By name."""
