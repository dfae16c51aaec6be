"""``python3 -m tests``: everything that must hold before a change goes in.

Needs a Python with pip and nothing else: tox goes into ``.venv-dev``, and into its own environments
what each part needs. Runs form and layers, types, the wheel, each fuzz target for ten seconds, the
API against its own description, and the tests on each supported Python there is, two of these
parts at a time. ``PYTHONS="3.11 3.12 3.13"`` demands these Pythons: one that is missing is then a
failure and not a remark. pytest's last line of each part is said again at the end.
"""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".venv-dev"
SUPPORTED = ("3.11", "3.12", "3.13")
CHECKS = ("lint", "types", "package", "fuzz", "api")
TOX = "tox>=4.67,<5"
LANES = 2
"""So many parts run at a time: each is one process, that mostly computes."""

_SUMMARY = re.compile(r"=+ .*\b(passed|failed|error|errors|skipped)\b.* in .*=+")


@dataclass(frozen=True)
class Part:
    """How one tox environment ended; ``summary`` is pytest's last line, if there was one."""

    name: str
    passed: bool
    seconds: float
    summary: str


def main() -> int:
    """Run all of it; 0 if everything passed."""
    pythons, missing = find_pythons()
    if missing and "PYTHONS" in os.environ:
        say(f"Python {', '.join(missing)} is asked for and not there.")
        return 1
    if not pythons:
        say(f"No supported Python found: {', '.join(missing)}.")
        return 1
    if missing:
        say(f"Not found and not tested: Python {', '.join(missing)}.")
    tox = install_tox()
    tests = [f"py{version.replace('.', '')}" for version in pythons]
    names = [*tests, *CHECKS]  # the longest first
    # tox would look for itself, but not behind every kind of shim.
    tox += ["run", "--quiet", "--discover", *pythons.values()]
    # One after the other, since they build the same wheel in the same place.
    prepared = run_part([*tox, "--notest", "-e", ",".join(names)], "prepare")
    if not prepared.passed:
        report([prepared])
        return 1
    with ThreadPoolExecutor(LANES) as lanes:
        commands = [[*tox, "--skip-pkg-install", "-e", name] for name in names]
        parts = [prepared, *lanes.map(run_part, commands, names)]
    report(parts)
    return 0 if all(part.passed for part in parts) else 1


def find_pythons() -> tuple[dict[str, str], list[str]]:
    """Executables by version, for the versions to test; and the versions that are not there."""
    wanted = os.environ.get("PYTHONS", " ".join(SUPPORTED)).split()
    found = {version: path for version in wanted if (path := executable(version))}
    return found, [version for version in wanted if version not in found]


def executable(version: str) -> str:
    """The real path behind ``python<version>``; empty where nothing runs under that name."""
    if version == "{}.{}".format(*sys.version_info):
        return sys.executable
    command = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return ""
    return ran.stdout.strip() if ran.returncode == 0 else ""


def install_tox() -> list[str]:
    """The command that starts tox, installed at the first time."""
    python = TOOLS / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(TOOLS, with_pip=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", TOX], check=True)
    return [str(python), "-m", "tox"]


def run_part(command: Sequence[str], name: str) -> Part:
    """Run one environment, and show its output when it has ended."""
    say(f"{name} …")
    began = time.monotonic()
    ran = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = ran.stdout.splitlines()
    say("\n".join([f"── {name} " + "─" * (70 - len(name)), *lines]))
    summaries = [line.strip() for line in lines if _SUMMARY.search(line)]
    passed = ran.returncode == 0
    return Part(name, passed, time.monotonic() - began, summaries[-1] if summaries else "")


def report(parts: Sequence[Part]) -> None:
    """A line for each part, then pytest's own lines, those of failures last."""
    say("")
    for part in parts:
        say(f"{part.name:8} {'passed' if part.passed else 'FAILED'} in {part.seconds:.0f} s")
    for part in sorted((part for part in parts if part.summary), key=lambda part: not part.passed):
        say(f"{part.name}:")
        say(part.summary)


def say(line: str) -> None:
    """Print at once, so that output keeps its order also in a log file."""
    print(line, flush=True)  # noqa: T201  # this is what the program is for


if __name__ == "__main__":
    sys.exit(main())
