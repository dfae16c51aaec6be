"""Finds secrets where the configuration points: ``env:NAME`` or ``file:PATH``, nothing else.

A literal key is refused so that no secret ever stands in a configuration file; for the same reason
no message here shows the configured value unless it is a sound reference.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edge.settings.kinds import Secret

MAX_SECRET_BYTES = 16 * 1024
"""Longer than any key; a path to something else is the likelier explanation."""


def find_secret(reference: Any, environ: Mapping[str, str], folder: Path) -> Secret:
    """The secret that ``reference`` points at.

    Args:
        reference: the configured value.
        environ: where ``env:`` looks.
        folder: where relative ``file:`` paths start.

    Raises:
        ValueError: no reference, nothing there, or something that no header could carry.
    """
    scheme, colon, rest = reference.partition(":") if isinstance(reference, str) else ("", "", "")
    if not colon or not rest or scheme not in ("env", "file"):
        raise ValueError('must be "env:NAME" or "file:PATH": secrets do not stand in the file')
    value = _from_env(rest, environ) if scheme == "env" else _from_file(folder / rest)
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError(f"what {reference} holds is no key: spaces or unprintable characters")
    return Secret(reference, value)


def _from_env(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name, "").strip()
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value


def _from_file(path: Path) -> str:
    try:
        raw = path.expanduser().read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if len(raw) > MAX_SECRET_BYTES:
        raise ValueError(f"{path} is too long to be a key")
    try:
        value = raw.decode().strip()
    except UnicodeDecodeError:
        raise ValueError(f"{path} holds no text") from None
    if not value:
        raise ValueError(f"{path} is empty")
    return value
