"""``docs/tool-calls.md`` names every form and every repair there is."""

import re
from pathlib import Path

from edge.core.toolcalls.registry import FORM_NAMES

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "docs" / "tool-calls.md").read_text("utf-8")
NAMED = set(re.findall(r"`([^`]+)`", DOCUMENT))


def test_every_form_is_named() -> None:
    assert set(FORM_NAMES) <= NAMED


def test_every_repair_that_the_corpus_needs_is_named() -> None:
    """The names stand in the source as words; these are the ones that reach the ledger."""
    sources = [
        path.read_text("utf-8")
        for path in (ROOT / "edge" / "core").rglob("*.py")
        if path.name in {"lenient_json.py", "repair.py", "validate.py", "leaked_markers.py"}
    ]
    words = set(re.findall(r'"([a-z]+(?:_[a-z]+)+)"', "".join(sources)))
    repairs = {word for word in words if word.endswith(REPAIR_ENDINGS)}

    assert repairs
    assert repairs <= NAMED


REPAIR_ENDINGS = ("_comma", "_brace", "_closer", "_mark", "_literal", "_newline", "_in_string")
