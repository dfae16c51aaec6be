"""``python -m fuzz``: each target for some seconds, two at a time; 1 if one of them failed.

Inputs to begin with are the target's own seeds, what ``fuzz/corpora`` holds, and what earlier runs
found in ``.fuzz`` (which is not kept in the repository; ``--distil`` takes the best of it over). An
input that makes a target fail is written to ``fuzz/corpora/TARGET``, where ``tests/test_fuzz.py``
replays it from then on.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from fuzz.target import CORPORA, NAMES, distilled, kept, load, write_distilled

FOUND = Path(".fuzz")
ONE_INPUT_S = 20
"""An input that takes longer than that is a failure; a busy machine must not be one."""

ROOM = 16_000
"""Characters of what is kept of long runs, for each target: the repository is no place for more."""

GRACE_S = 300
"""How much longer than asked a target may take with loading, seeds and its last input."""

_FEEDBACK = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How one target ended; ``output`` is what libFuzzer said."""

    name: str
    failed: bool
    seconds: float
    output: str

    def line(self) -> str:
        """In one line: inputs tried, edges seen, and features (edges by how often)."""
        last = (_FEEDBACK.findall(self.output) or [("0", "0", "0", "0")])[-1]
        tried, edges, features, inputs = (int(each) for each in last)
        word = "FAILED" if self.failed else "passed"
        return (
            f"{self.name:16} {word} in {self.seconds:4.0f} s: {tried:8,} tried, {edges:5,} edges, "
            f"{features:6,} features, {inputs:5,} kept"
        )


def main() -> int:
    """See the module's docstring."""
    arguments = _arguments()
    if arguments.distil:
        for name in arguments.targets:
            distil(name)
        return 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        running = [
            pool.submit(fuzz, name, arguments.seconds, arguments.seed) for name in arguments.targets
        ]
        outcomes = []
        for future in running:
            outcome = future.result()
            outcomes.append(outcome)
            say(outcome.line())
            if outcome.failed:
                say(outcome.output)
    failed = [outcome.name for outcome in outcomes if outcome.failed]
    if failed:
        say(f"What made {', '.join(failed)} fail is in {CORPORA}; mend it, and keep the input.")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the chances; 0: another each time")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--distil", action="store_true", help="keep what .fuzz adds to the seeds")
    arguments = parser.parse_args()
    if unknown := set(arguments.targets) - set(NAMES):
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    arguments.targets = arguments.targets or list(NAMES)
    return arguments


def fuzz(name: str, seconds: int, seed: int) -> Outcome:
    """Let a process of its own fuzz one target."""
    target = load(name)
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    failures = CORPORA / name
    failures.mkdir(exist_ok=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), known(name))
        words = Path(folder, "words.dict")
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.WORDS))
        flags = [
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={target.MAX_BYTES}",
            f"-dict={words}",
            f"-artifact_prefix={failures}/",
            f"-timeout={ONE_INPUT_S}",
            "-report_slow_units=5",
            "-rss_limit_mb=1024",
        ]
        failed, output = run(name, [*flags, str(found), folder], seconds + GRACE_S)
    return Outcome(name, failed, time.monotonic() - began, output)


def known(name: str) -> list[bytes]:
    """Every input the repository has for a target."""
    return [*load(name).seeds(), *kept(name).values(), *distilled(name)]


def distil(name: str) -> None:
    """Take over what runs found that the seeds do not reach, the shortest first."""
    found = FOUND / name
    inputs = [path.read_bytes() for path in found.iterdir()] if found.exists() else []
    write_distilled(name, inputs, room=ROOM)
    say(f"{name:16} {len(distilled(name)):4} of {len(inputs):5} inputs kept")


def run(name: str, arguments: Sequence[str], deadline_s: float) -> tuple[bool, str]:
    """Whether it failed, and what it said."""
    command = [sys.executable, "-m", "fuzz.drive", name, *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=deadline_s,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        said = b"".join(each for each in (late.stdout, late.stderr) if isinstance(each, bytes))
        return True, f"{name} did not end: {late}\n{said.decode(errors='replace')}"
    return ended.returncode != 0, ended.stdout + ended.stderr


def write(folder: Path, inputs: Sequence[bytes]) -> None:
    """One file an input, named as libFuzzer names them."""
    for data in inputs:
        (folder / sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def say(line: str) -> None:
    """Print at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
