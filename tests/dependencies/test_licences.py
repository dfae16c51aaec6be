"""docs/licences.md names what is installed, and nothing slips in under terms nobody looked at."""

from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from tests.dependencies.licences import (
    DOCUMENT,
    KNOWN_COPYLEFT,
    PERMISSIVE,
    Dependency,
    document,
    needed,
    told_by,
)


def test_every_package_that_comes_with_edge_is_listed_with_its_licence() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m tests.dependencies.licences"


@pytest.mark.parametrize("dependency", needed("otel"), ids=lambda each: each.name)
def test_no_licence_asks_for_more_than_its_notice_unless_somebody_has_looked(
    dependency: Dependency,
) -> None:
    looked_at = {KNOWN_COPYLEFT[dependency.name]} if dependency.name in KNOWN_COPYLEFT else set()

    assert dependency.identifiers - PERMISSIVE == looked_at


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"License": "GPL-3.0-or-later"},
        {"License-Expression": "AGPL-3.0-only", "License": "MIT"},
        {"License-Expression": "MIT AND LGPL-2.1-only"},
        {"License": "see the file"},
    ],
)
def test_terms_that_are_not_known_are_an_error(fields: dict[str, str], tmp_path: Path) -> None:
    lines = [f"{name}: {value}\n" for name, value in {"Name": "unknown", **fields}.items()]
    (tmp_path / "METADATA").write_text("".join(lines))

    with pytest.raises(LookupError, match="unknown is under"):
        told_by(PathDistribution(tmp_path).metadata)
