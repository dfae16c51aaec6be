"""Secrets are found where the configuration points, and told of without being shown."""

from pathlib import Path

import pytest

from edge.settings import Secret
from edge.settings.secrets import MAX_SECRET_BYTES, find_secret

LITERAL = "sk-a-literal-key"


def test_a_secret_comes_from_the_environment() -> None:
    assert find_secret("env:KEY", {"KEY": " sk-1\n"}, Path()) == Secret("env:KEY", "sk-1")


def test_a_secret_comes_from_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-2\n")

    assert find_secret("file:key", {}, tmp_path) == Secret("file:key", "sk-2")
    assert find_secret(f"file:{tmp_path}/key", {}, Path("/")).value == "sk-2"


@pytest.mark.parametrize("reference", [LITERAL, "", "env:", "file:", "ENV:KEY", "vault:x", 3, None])
def test_a_literal_secret_is_refused_and_not_repeated(reference: object) -> None:
    with pytest.raises(ValueError, match="secrets do not stand in the file") as caught:
        find_secret(reference, {"KEY": "v"}, Path())

    assert LITERAL not in str(caught.value)


@pytest.mark.parametrize("environ", [{}, {"KEY": ""}, {"KEY": " \n"}])
def test_an_unset_or_empty_variable_is_a_missing_secret(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="variable KEY is not set"):
        find_secret("env:KEY", environ, Path())


def test_a_file_that_cannot_hold_a_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "long").write_text("x" * (MAX_SECRET_BYTES + 1))
    (tmp_path / "bytes").write_bytes(b"\xff")

    for name, words in [
        ("none", "cannot read"),
        (".", "cannot read"),
        ("empty", "is empty"),
        ("long", "too long"),
        ("bytes", "no text"),
    ]:
        with pytest.raises(ValueError, match=words):
            find_secret(f"file:{name}", {}, tmp_path)


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "schlüssel", "nul\0"])
def test_what_no_header_could_carry_is_refused_and_not_repeated(value: str) -> None:
    with pytest.raises(ValueError, match="is no key") as caught:
        find_secret("env:KEY", {"KEY": value}, Path())

    assert value not in str(caught.value)
