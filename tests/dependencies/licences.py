"""``python -m tests.dependencies.licences``: writes docs/licences.md from what is installed.

Walks what the package needs, and what its extra ``otel`` adds, through the metadata of the
installed distributions. Names are in SPDX's words; where the metadata speaks loosely they are
translated by the tables below, and what the tables do not know is an error.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageMetadata, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "licences.md"

PERMISSIVE = frozenset(
    {"MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "PSF-2.0", "0BSD", "Zlib"}
)
"""Licences that ask for their notice to be kept, and for nothing else."""

KNOWN_COPYLEFT: Mapping[str, str] = {
    "certifi": "MPL-2.0",
    "orjson": "MPL-2.0",
}
"""What was looked at and is used unchanged: the MPL binds changes of its own files alone."""

_LOOSE: Mapping[str, str] = {
    "3-clause bsd license": "BSD-3-Clause",
    "apache 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
}
_READ_FROM_THEIR_FILES: Mapping[str, str] = {
    "itsdangerous": "BSD-3-Clause",
    "jinja2": "BSD-3-Clause",
}
"""Metadata that says "BSD" and not which."""

_SPDX = re.compile(r"[A-Za-z0-9.+-]+")
_OPERATORS = frozenset({"AND", "OR", "WITH"})


@dataclass(frozen=True, order=True)
class Dependency:
    """A distribution that is installed with edge; ``licence`` is an SPDX expression."""

    name: str
    licence: str

    @property
    def identifiers(self) -> frozenset[str]:
        """The licences its expression names."""
        return _identifiers(self.licence)


def needed(*extras: str) -> list[Dependency]:
    """What ``edge[extras]`` brings along on this Python, by name."""
    found: set[str] = set()
    _walk(Requirement(f"edge[{','.join(extras)}]"), set(), found)
    return sorted(Dependency(name, licence_of(name)) for name in found - {"edge"})


def _walk(wanted: Requirement, seen: set[str], found: set[str]) -> None:
    name = canonicalize_name(wanted.name)
    key = f"{name}{sorted(wanted.extras)}"
    if key in seen:
        return
    seen.add(key)
    found.add(name)
    for requirement in _requirements(name, wanted.extras):
        _walk(requirement, seen, found)


def _requirements(name: str, extras: set[str]) -> Iterator[Requirement]:
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def licence_of(name: str) -> str:
    """The licence of an installed distribution; raises as :func:`told_by` does."""
    return _READ_FROM_THEIR_FILES.get(name) or told_by(distribution(name).metadata)


def told_by(metadata: PackageMetadata) -> str:
    """The SPDX expression of a package's metadata.

    Raises:
        LookupError: it says nothing, or what is not known here.
    """
    told = next(_told(metadata), "")
    licence = _LOOSE.get(told.lower(), told)
    names = _identifiers(licence)
    if not names or not names <= PERMISSIVE | frozenset(KNOWN_COPYLEFT.values()):
        raise LookupError(f"{metadata['Name']} is under {told!r}; look at it, then at the tables")
    return licence


def _told(metadata: PackageMetadata) -> Iterator[str]:
    """What a package says of its licence, the most exact first."""
    for field in ("License-Expression", "License"):
        for value in metadata.get_all(field) or []:
            if "\n" not in value:  # some put the whole text there
                yield value
    for classifier in metadata.get_all("Classifier") or []:
        if classifier.startswith("License :: OSI Approved :: "):
            yield classifier.rpartition(" :: ")[2]


def _identifiers(expression: str) -> frozenset[str]:
    return frozenset(_SPDX.findall(expression)) - _OPERATORS


def document() -> str:
    """The text of docs/licences.md."""
    always = needed()
    traced = [dependency for dependency in needed("otel") if dependency not in always]
    return _TEXT.format(always=_table(always), traced=_table(traced))


_TEXT = """\
# Licences

What is installed with edge, directly and through others, and under which licence (in the words
of SPDX). Written by `python -m tests.dependencies.licences`; a test compares it with what is
installed.

{always}

With the extra `otel` also:

{traced}

The MPL of certifi and orjson binds changes of their own files alone; they are used as they are.
All others ask that their notice is kept, which each installed package carries with it.
"""


def _table(dependencies: list[Dependency]) -> str:
    rows = [f"| {dependency.name} | {dependency.licence} |" for dependency in dependencies]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


if __name__ == "__main__":
    DOCUMENT.write_text(document())
    sys.stdout.write(f"{DOCUMENT} is written.\n")
