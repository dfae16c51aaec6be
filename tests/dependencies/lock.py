"""The lock for development, requirements-dev.lock, as values."""

from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parent.parent.parent / "requirements-dev.lock"


@dataclass(frozen=True)
class Pin:
    """One locked distribution; ``hashes`` are those of its files."""

    name: str
    version: str
    hashes: tuple[str, ...]


def pins(python: str, text: str | None = None) -> dict[str, Pin]:
    """What is locked for one Python, by name.

    Args:
        python: ``3.11`` and the like.
        text: of a lock; None reads the project's.

    Raises:
        ValueError: a distribution is pinned twice, or not to one version.
    """
    surroundings = {"python_version": python, "python_full_version": f"{python}.0"}
    found: dict[str, Pin] = {}
    lines = LOCK.read_text() if text is None else text
    for line in lines.replace("\\\n", " ").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        head, *hashes = line.split("--hash=")
        requirement = Requirement(head.strip())
        if requirement.marker is not None and not requirement.marker.evaluate(surroundings):
            continue
        name = canonicalize_name(requirement.name)
        (specifier,) = requirement.specifier
        if specifier.operator != "==" or name in found:
            raise ValueError(f"{name} is pinned to more than one version")
        found[name] = Pin(name, specifier.version, tuple(text.strip() for text in hashes))
    return found
