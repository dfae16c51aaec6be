"""The documents say what the program does: each key, each default, each example."""

import json
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest

from edge.core.output_policy import OutputPolicy
from edge.core.overrides import apply_overrides
from edge.settings import (
    KeySettings,
    LimitsSettings,
    MirrorSettings,
    ProviderSettings,
    RouteSettings,
    ServerSettings,
    Settings,
    Surroundings,
    TargetSettings,
    TelemetrySettings,
)

ROOT = Path(__file__).parent.parent
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text()
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

SECTIONS: dict[str, type[Any]] = {
    "## `[server]`": ServerSettings,
    "## `[[keys]]`": KeySettings,
    "## `[[providers]]`": ProviderSettings,
    "## `[[routes]]`": RouteSettings,
    "### `targets`": TargetSettings,
    "## `[output]`": OutputPolicy,
    "## `[limits]`": LimitsSettings,
    "## `[mirror]`": MirrorSettings,
    "## `[telemetry]`": TelemetrySettings,
}


def rows(heading: str) -> dict[str, str]:
    """Documented defaults by key, of the table under a heading."""
    _, _, rest = CONFIGURATION.partition(f"{heading}\n")
    section = re.split(r"^#", rest, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"^\| `(\w+)` \| (.+?) \| .+ \|$", section, flags=re.MULTILINE)
    return {key: default.strip("`") for key, default in found}


def as_documented(field: Field[Any]) -> str:
    """A field's default as the table writes it."""
    if field.name == "output":
        return "[output]"
    if field.default is MISSING:
        return "required"
    match field.default:
        case None:
            return '""' if "File" in str(field.type) or "Path" in str(field.type) else "none"
        case bool(flag):
            return str(flag).lower()
        case float(number):
            return f"{number:g}"
        case tuple(items):
            return json.dumps([str(item) for item in items])
        case other:
            return json.dumps(other)


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_key_is_documented_with_its_default_and_no_other(heading: str) -> None:
    expected = {field.name: as_documented(field) for field in fields(SECTIONS[heading])}

    assert rows(heading) == expected


def test_every_table_is_documented() -> None:
    tables = {field.name for field in fields(Settings)}

    assert tables == {re.sub(r"\W", "", heading) for heading in SECTIONS} - {"targets"}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_configuration_example_is_sound(document: Path, tmp_path: Path) -> None:
    for text in blocks(document.read_text(), "toml"):
        for name in re.findall(r'"file:([^"]+)"', text):
            (tmp_path / name).write_text(f"secret-of-{name}")
        environ = {name: f"secret-of-{name}" for name in re.findall(r'"env:(\w+)"', text)}

        settings = Settings.from_toml(text, around=Surroundings(environ=environ, folder=tmp_path))

        assert settings.routes


def test_the_examples_of_overrides_are_sound() -> None:
    (header,) = re.findall(r"^x-edge-output: (.+)$", CONFIGURATION, flags=re.MULTILINE)
    (body,) = blocks(CONFIGURATION, "json")

    policy = apply_overrides(OutputPolicy(), header=header, metadata=json.loads(body)["metadata"])

    assert policy == OutputPolicy(buffer="full", validate="observe", max_attempts=1, trace=True)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text())
    local = [target for target in targets if "://" not in target]

    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_heading_leads_to_one(document: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", document.read_text()):
        target = document.parent / path if path else document

        assert anchor in anchors(target.read_text())


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
