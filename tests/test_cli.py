"""The commands, as somebody at a terminal meets them."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import edge
from edge.cli import cli
from edge.settings import Settings

SOUND = """
[[providers]]
name = "gpu1"
base_url = "http://127.0.0.1:8000/v1"
[[routes]]
model = "coder"
targets = [{ provider = "gpu1" }]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "edge.toml"
    path.write_text(SOUND)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "edge.toml"
    path.write_text('[server]\nbnid = []\ndrain_s = "3"\n')
    return path


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What ``edge serve`` hands over to be served, which is kept from listening."""
    from edge import process

    handed: list[Settings] = []
    monkeypatch.setattr(process, "serve", lambda settings, _: handed.append(settings))
    return handed


def test_check_says_what_a_sound_file_serves(sound: Path) -> None:
    result = run("check", str(sound))

    assert result.exit_code == 0
    assert result.stdout == f"{sound}: sound; providers: gpu1; models: coder; keys: none\n"


@pytest.mark.parametrize("command", ["check", "serve --config"])
def test_every_complaint_is_told_with_its_place_and_the_status_is_1(
    bad: Path, command: str, served: list[Settings]
) -> None:
    result = run(*command.split(), str(bad))

    assert result.exit_code == 1
    assert result.stdout == ""
    assert [line.partition(": ")[0] for line in result.stderr.splitlines()] == [
        str(bad),  # no [[providers]]
        str(bad),  # no [[routes]]
        f"{bad}:2",
        f"{bad}:3",
    ]
    assert 'did you mean "bind"?' in result.stderr
    assert served == []


def test_a_file_that_is_not_there_is_a_complaint_like_any_other(tmp_path: Path) -> None:
    result = run("check", str(tmp_path / "none.toml"))

    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_serve_alone_serves_the_simulated_models(served: list[Settings]) -> None:
    assert run("serve").exit_code == 0
    assert [route.model for route in served[0].routes] == ["sim-echo", "sim-tools", "sim-slow"]


def test_serve_hands_the_file_over_with_the_command_line_laid_over_it(
    sound: Path, served: list[Settings]
) -> None:
    arguments = ["--bind", "127.0.0.1:1", "--bind", "[::1]:2", "--workers", "3"]

    assert run("serve", "--config", str(sound), *arguments).exit_code == 0
    assert [str(address) for address in served[0].server.bind] == ["127.0.0.1:1", "[::1]:2"]
    assert served[0].server.workers == 3
    assert served[0].providers[0].name == "gpu1"


def test_an_upstream_needs_no_file(served: list[Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "sk-1")

    result = run("serve", "--upstream", "http://gpu:8000", "--api-key-env", "EDGE_TEST_KEY")

    assert result.exit_code == 0
    assert served[0].providers[0].base_url == "http://gpu:8000/v1"
    assert served[0].routes[0].model == "*"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--workers", "0"], "--workers: must be at least 1, not 0"),
        (["--bind", "0.0.0.0:80"], "--bind: 0.0.0.0:80 can be reached by other machines"),
        (["--upstream", "gpu"], "--upstream: must be an http:// or https:// address"),
        (
            ["--upstream", "http://gpu", "--api-key-env", "EDGE_NO_SUCH_KEY"],
            "--api-key-env: the environment variable EDGE_NO_SUCH_KEY is not set",
        ),
    ],
)
def test_a_bad_option_is_told_by_its_name_before_anything_listens(
    arguments: list[str], words: str, served: list[Settings]
) -> None:
    result = run("serve", *arguments)

    assert result.exit_code == 1
    assert words in result.stderr
    assert served == []


@pytest.mark.parametrize(
    "arguments",
    [["--config", "a", "--upstream", "http://b"], ["--api-key-env", "A"], ["--workers", "x"]],
)
def test_options_that_make_no_sense_together_are_a_usage_error(arguments: list[str]) -> None:
    assert run("serve", *arguments).exit_code == 2


def test_the_status_of_the_server_is_the_status_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edge import process

    monkeypatch.setattr(process, "serve", lambda *_: 3)

    assert run("serve").exit_code == 3


def test_version_prints_the_version() -> None:
    assert run("version").stdout == f"edge {edge.__version__}\n"


def test_python_dash_m_edge_is_the_same_command(bad: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "edge", "check", str(bad)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 1
    assert "Usage" not in result.stderr
    assert "server.bnid" in result.stderr
