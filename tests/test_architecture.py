"""Rules of the whole code base that no linter knows. The layers are checked by ``lint-imports``."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

import edge

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "edge").rglob("*.py"))
BESIDE = ("tests", "benchmarks", "fuzz")
OTHERS = sorted(path for name in BESIDE for path in (ROOT / name).rglob("*.py"))
PURE = [path for path in SOURCES if path.relative_to(ROOT / "edge").parts[0] in ("core", "wire")]

MAX_LINES = 400
MAX_TEST_LINES = 600
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "tools"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_names(package: str = "edge") -> list[str]:
    """Every module of the package, but for the one that runs when it is imported."""
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    return [module.name for module in found if module.name != "edge.__main__"]


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(), str(path)))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_file_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


@pytest.mark.parametrize("path", OTHERS, ids=relative)
def test_a_list_of_tests_may_be_somewhat_longer(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_TEST_LINES


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_function_fits_on_one_screen(path: Path) -> None:
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }

    assert long == {}


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_a_module_is_named_after_what_it_does(path: Path) -> None:
    assert path.stem not in VAGUE_NAMES


@pytest.mark.parametrize("path", PURE, ids=relative)
def test_core_and_wire_wait_for_nothing(path: Path) -> None:
    waiting = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)

    assert [node for node in nodes(path) if isinstance(node, waiting)] == []


@pytest.mark.parametrize("name", [*module_names("edge.core"), *module_names("edge.wire")])
def test_what_is_compared_by_its_value_never_changes(name: str) -> None:
    """Handles that live and change say ``eq=False``; a module's private state is its own affair."""
    changing = [
        each.__name__
        for each in vars(importlib.import_module(name)).values()
        if isinstance(each, type) and is_dataclass(each) and each.__module__ == name
        if not each.__name__.startswith("_") and not issubclass(each, Exception)
        if (params := each.__dataclass_params__).eq and not params.frozen  # type: ignore[attr-defined]  # there on every dataclass
    ]

    assert changing == []


IMPORT_ALL = """
import importlib, json, os, signal, sys, threading
handlers = [signal.getsignal(number) for number in signal.valid_signals()]
descriptors = set(os.listdir("/dev/fd"))
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
print(json.dumps({
    "threads": threading.active_count(),
    "descriptors": sorted(set(os.listdir("/dev/fd")) - descriptors),
    "signals": [signal.getsignal(number) for number in signal.valid_signals()] == handlers,
    "trio": __import__("trio").lowlevel.in_trio_run(),
}))
"""


def test_importing_any_module_starts_nothing_and_opens_nothing() -> None:
    """No thread, descriptor, signal handler or event loop, and not a word on stderr."""
    ran = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, json.dumps(module_names())],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert ran.stderr == ""
    assert json.loads(ran.stdout) == {
        "threads": 1,
        "descriptors": [],
        "signals": True,
        "trio": False,
    }


def test_the_version_is_the_one_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text()

    assert f'\nversion = "{edge.__version__}"\n' in project
