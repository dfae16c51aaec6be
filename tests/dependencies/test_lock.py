"""requirements-dev.lock is what pyproject.toml asks for, to the byte, on every supported Python."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.dependencies.licences import needed
from tests.dependencies.lock import LOCK, Pin, pins

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")


def wanted(lines: list[str]) -> Iterator[Requirement]:
    """Requirements, with those of the package's own extras in place of their names."""
    for requirement in map(Requirement, lines):
        if requirement.name != "edge":
            yield requirement
        for extra in requirement.extras if requirement.name == "edge" else ():
            yield from wanted(PROJECT["optional-dependencies"][extra])


DIRECT = {
    canonicalize_name(requirement.name): requirement
    for requirement in wanted([*PROJECT["dependencies"], "edge[dev]"])
}


def test_every_supported_python_is_locked() -> None:
    supported = re.findall(r'"(3\.\d+)"', (ROOT / "tests" / "__main__.py").read_text())

    assert list(PYTHONS) == supported


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_pins_one_version_within_each_range(python: str) -> None:
    pinned = pins(python)

    assert {name for name in DIRECT if name not in pinned} == set()
    outside = [
        f"{name} {pinned[name].version}"
        for name, requirement in DIRECT.items()
        if not requirement.specifier.contains(pinned[name].version)
    ]
    assert outside == [], "run tox run -e lock"


@pytest.mark.parametrize("python", PYTHONS)
def test_what_comes_through_others_is_locked_too(python: str) -> None:
    assert {dependency.name for dependency in needed("otel")} - set(pins(python)) == set()


@pytest.mark.parametrize("python", PYTHONS)
def test_every_file_of_the_lock_is_known_by_its_hash(python: str) -> None:
    assert [pin for pin in pins(python).values() if not pin.hashes] == []


def test_the_lock_says_what_and_not_where_from() -> None:
    text = LOCK.read_text()

    assert [line for line in text.splitlines() if "://" in line or "index" in line] == []


def test_a_pin_is_read_with_its_marker_and_its_hashes() -> None:
    text = (
        "quart==0.22.0 ; python_full_version < '3.13' \\\n    --hash=sha256:aa \\\n"
        "    --hash=sha256:bb\nquart==0.23.1 ; python_full_version >= '3.13' \\\n"
        "    --hash=sha256:cc\n"
    )

    assert pins("3.11", text) == {"quart": Pin("quart", "0.22.0", ("sha256:aa", "sha256:bb"))}
    assert pins("3.13", text) == {"quart": Pin("quart", "0.23.1", ("sha256:cc",))}
