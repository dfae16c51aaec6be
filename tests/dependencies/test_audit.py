"""An audit that nobody answered is not an audit that found nothing."""

import json
from typing import Any

import pytest

from tests.dependencies.audit import CLEAN, FOUND, UNANSWERED, Answer, answer_of, status_of

SOUND = {"name": "h11", "version": "0.16.0", "vulns": []}
SKIPPED = {"name": "h11", "skip_reason": "Dependency not found and could not be audited"}
FAULTY = {
    "name": "jinja2",
    "version": "3.1.2",
    "vulns": [{"id": "GHSA-h5c8", "fix_versions": ["3.1.3"], "aliases": [], "description": ""}],
}


def report(*dependencies: dict[str, Any]) -> str:
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_what_is_known_is_told_with_the_version_that_mends_it() -> None:
    answer = answer_of(report(SOUND, FAULTY), "Found 1 known vulnerability")

    assert answer == Answer(("jinja2 3.1.2: GHSA-h5c8, fixed in 3.1.3",))


def test_a_package_the_service_does_not_know_is_not_taken_for_sound() -> None:
    answer = answer_of(report(SOUND, SKIPPED), "No known vulnerabilities found")

    assert answer == Answer(unanswered=("h11",))
    assert not answer.is_whole


@pytest.mark.parametrize("text", ["", "null", "[]", '{"dependencies": ', "{}"])
def test_a_service_out_of_reach_is_told_by_the_last_words_of_the_tool(text: str) -> None:
    assert answer_of(text, "Traceback:\nConnectionError: no such host\n") == Answer(
        reason="ConnectionError: no such host"
    )


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ([Answer()], CLEAN),
        ([Answer(reason="away"), Answer()], CLEAN),
        ([Answer(reason="away"), Answer(unanswered=("h11",))], UNANSWERED),
        ([Answer(("h11: bad",), unanswered=("trio",)), Answer(reason="away")], FOUND),
    ],
)
def test_the_exit_status_tells_sound_from_unanswered(answers: list[Answer], status: int) -> None:
    assert status_of(answers) == status
