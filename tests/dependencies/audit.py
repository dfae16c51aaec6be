"""``tox run -e audit``: what advisory services know against the locked dependencies.

Asks the package index's own advisories, then OSV, through pip-audit, for what is locked for each
supported Python. Exit status: 0 nothing is known, 1 something is, 2 no service answered for all of
it. Only the last says nothing of the dependencies, and it must not be taken for the first:
pip-audit itself says "no known vulnerabilities" where the index has no advisories to give.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dependencies.lock import Pin, pins

SERVICES = ("pypi", "osv")
PYTHONS = ("3.11", "3.12", "3.13")

CLEAN, FOUND, UNANSWERED = 0, 1, 2


@dataclass(frozen=True)
class Answer:
    """What one service said.

    Attributes:
        findings: a line for each advisory.
        unanswered: names it could not say anything of.
        reason: why there is no answer at all; empty if there is one.
    """

    findings: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it spoke of every package."""
        return not self.reason and not self.unanswered


def main() -> int:
    """Ask until a service has answered for all, and say what came of it."""
    locked = {(pin.name, pin.version): pin for python in PYTHONS for pin in pins(python).values()}
    answers = []
    for service in SERVICES:
        answers.append(ask(service, locked))
        say(service, len(locked), answers[-1])
        if answers[-1].is_whole:
            break
    status = status_of(answers)
    sys.stdout.write(f"{_WORDS[status]}\n")
    return status


_WORDS: Mapping[int, str] = {
    CLEAN: "Audited: nothing is known against the locked dependencies.",
    FOUND: "Audited: something is known; raise the version, run tox run -e lock -- -P NAME.",
    UNANSWERED: "NOT AUDITED: no advisory service answered; run it where one can be reached.",
}


def status_of(answers: list[Answer]) -> int:
    """The exit status; a finding counts also in an answer that is not whole."""
    if any(answer.findings for answer in answers):
        return FOUND
    return CLEAN if any(answer.is_whole for answer in answers) else UNANSWERED


def ask(service: str, locked: Mapping[tuple[str, str], Pin]) -> Answer:
    """Ask one service; a name that is locked in two versions is asked for in two turns."""
    turns: list[dict[str, str]] = []
    for name, version in locked:
        turn = next((turn for turn in turns if name not in turn), None)
        if turn is None:
            turns.append(turn := {})
        turn[name] = version
    answers = [_ask(service, turn) for turn in turns]
    return Answer(
        tuple(line for answer in answers for line in answer.findings),
        tuple(name for answer in answers for name in answer.unanswered),
        next((answer.reason for answer in answers if answer.reason), ""),
    )


def _ask(service: str, versions: Mapping[str, str]) -> Answer:
    lines = "".join(f"{name}=={version}\n" for name, version in versions.items())
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "locked.txt"
        listed.write_text(lines)
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "pip_audit", "--requirement", str(listed)),
                *("--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"),
                *("--vulnerability-service", service),
            ],
            capture_output=True,
            text=True,
        )
    return answer_of(ran.stdout, ran.stderr)


def answer_of(report: str, complaints: str) -> Answer:
    """Read pip-audit's report (JSON); ``complaints`` are its other words."""
    try:
        dependencies: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, LookupError, TypeError):
        last = complaints.strip().splitlines() or ["it said nothing"]
        return Answer(reason=last[-1])
    return Answer(
        tuple(
            f"{each['name']} {each['version']}: {found['id']},"
            f" fixed in {', '.join(found['fix_versions']) or 'no version'}"
            for each in dependencies
            for found in each.get("vulns", ())
        ),
        tuple(each["name"] for each in dependencies if "skip_reason" in each),
    )


def say(service: str, asked: int, answer: Answer) -> None:
    """Tell what a service answered."""
    if answer.reason:
        told = f"no answer: {answer.reason}"
    else:
        told = f"answered for {asked - len(answer.unanswered)} of {asked} packages"
    sys.stdout.write("".join(f"{line}\n" for line in (f"{service}: {told}", *answer.findings)))


if __name__ == "__main__":
    sys.exit(main())
