"""What a target is, and which there are."""

import importlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, cast

CORPORA = Path(__file__).parent / "corpora"

NAMES = (
    "sse",
    "request",
    "tool_calls",
    "chunks",
    "repair",
    "http1",
    "client_http1",
    "socket_messages",
    "tunnel",
    "whole_run",
)
"""The modules of ``fuzz.targets``; each says in its docstring what must hold."""


class Target(Protocol):
    """A module of ``fuzz.targets``.

    Attributes:
        MAX_BYTES: of an input; longer ones find nothing more and take longer.
        WORDS: what inputs are made of; the fuzzer puts these in.
    """

    MAX_BYTES: int
    WORDS: tuple[bytes, ...]

    def check(self, data: bytes) -> None:
        """Fail, with any exception, if a promise is broken for this input."""
        ...

    def seeds(self) -> Iterable[bytes]:
        """Inputs to begin with, made of what the tests already hold."""
        ...


def load(name: str) -> Target:
    """The target of that name."""
    return cast(Target, importlib.import_module(f"fuzz.targets.{name}"))


def kept(name: str) -> dict[str, bytes]:
    """What once made the target fail, by file name: an input a file, in ``corpora/TARGET``."""
    folder = CORPORA / name
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*")) if path.is_file()}


def distilled(name: str) -> list[bytes]:
    """What long runs found worth keeping beside the seeds: ``corpora/TARGET.txt``, base64."""
    path = CORPORA / f"{name}.txt"
    return [b64decode(line) for line in path.read_text().split()] if path.exists() else []


def write_distilled(name: str, inputs: Iterable[bytes], *, room: int) -> None:
    """Keep the shortest of these, ``room`` characters of them."""
    lines: list[str] = []
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        line = b64encode(data).decode()
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    (CORPORA / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
