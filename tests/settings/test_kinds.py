"""Addresses, URLs, names and bounds of the configuration."""

from pathlib import Path

import pytest

from edge.settings import Address, Secret
from edge.settings.kinds import (
    Bounds,
    ExistingFile,
    FileToWrite,
    HttpUrl,
    ModelName,
    Origin,
    PlainName,
)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, True),
        ("127.9.9.9:0", "127.9.9.9", 0, True),
        ("localhost:65535", "localhost", 65535, True),
        ("[::1]:80", "::1", 80, True),
        ("0.0.0.0:80", "0.0.0.0", 80, False),  # noqa: S104  # what is tried
        ("[::]:80", "::", 80, False),
        ("gpu-host.internal:80", "gpu-host.internal", 80, False),
    ],
)
def test_an_address_is_read_and_written_alike(
    text: str, host: str, port: int, loopback: bool
) -> None:
    address = Address.parse(text)

    assert (address.host, address.port, address.is_loopback) == (host, port, loopback)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", "8080", ":8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1"),
        *("::1:80", "[127.0.0.1]:80", "[::1:80", "http://x:80", "a b:80", "h:\uff18", "h:1_0"),
        "[x]:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be like"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("https://api.example/v1/", "https://api.example/v1"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_a_base_url_is_kept_without_its_last_slash(url: str, kept: str) -> None:
    assert HttpUrl()(url) == kept


@pytest.mark.parametrize(
    "url",
    [
        *(
            "",
            "gpu:8000",
            "ftp://h/v1",
            "http://",
            "http:///v1",
            "http://h:0/v1",
            "http://h:99999/",
        ),
        *("http://h:x/", "http://[::1/v1", "http://h/a b", "http://h/\n", "file:///etc/passwd"),
    ],
)
def test_a_base_url_must_be_http(url: str) -> None:
    with pytest.raises(ValueError, match="must be an http"):
        HttpUrl()(url)


@pytest.mark.parametrize("url", ["http://h/v1?k=v", "http://h/v1?", "http://h/#x", "http://h/#"])
def test_a_base_url_has_no_query_and_no_fragment(url: str) -> None:
    with pytest.raises(ValueError, match="no query"):
        HttpUrl()(url)


@pytest.mark.parametrize(
    "url", ["http://me:hunter2@h/v1", "http://hunter2@h/v1", "gopher://me:hunter2@h", "hunter2@h"]
)
def test_credentials_in_a_base_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        HttpUrl()(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("origin", ["*", "https://chat.example", "http://localhost:3000"])
def test_an_origin_is_what_a_browser_sends(origin: str) -> None:
    assert Origin()(origin) == origin


@pytest.mark.parametrize("origin", ["chat.example", "https://chat.example/", "https://h/a", "null"])
def test_what_no_browser_sends_is_no_origin(origin: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        Origin()(origin)


@pytest.mark.parametrize("name", ["gpu1", "a", "team-a.b_c", "9"])
def test_a_plain_name_passes(name: str) -> None:
    assert PlainName()(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a b", "a\n", "a" * 65, "ä", "a/b"])
def test_a_name_that_could_not_stand_in_a_header_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 64"):
        PlainName()(name)


@pytest.mark.parametrize("model", ["qwen3-coder", "org/model:7b", "modèle", "x" * 256])
def test_a_model_may_have_any_printable_name(model: str) -> None:
    for check in (ModelName(), ModelName(wildcard=True), ModelName(empty=True)):
        assert check(model) == model


@pytest.mark.parametrize("model", [" a", "a\n", "x" * 257, "gpt-*", "**"])
def test_what_no_model_is_called_is_refused_everywhere(model: str) -> None:
    for check in (ModelName(), ModelName(wildcard=True), ModelName(empty=True)):
        with pytest.raises(ValueError, match=r"model's name|wildcard"):
            check(model)


def test_the_wildcard_stands_in_routes_only_and_nothing_in_targets_only() -> None:
    assert ModelName(wildcard=True)("*") == "*"
    assert ModelName(empty=True)("") == ""
    for check, model in [
        (ModelName(), "*"),
        (ModelName(empty=True), "*"),
        (ModelName(), ""),
        (ModelName(wildcard=True), ""),
    ]:
        with pytest.raises(ValueError, match="must be a model's name"):
            check(model)


def test_bounds_are_exact() -> None:
    closed, open_below = Bounds(1, 3), Bounds(0, 3, above=True)

    assert [closed(1), closed(3), open_below(0.001)] == [1, 3, 0.001]
    for bounds, value, words in [
        (closed, 0, "at least 1, not 0"),
        (closed, 4, "at most 3, not 4"),
        (open_below, 0, "above 0, not 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            bounds(value)


def test_a_file_to_read_must_be_there(tmp_path: Path) -> None:
    there = tmp_path / "ca.pem"
    there.touch()

    assert ExistingFile()(there) == there
    assert ExistingFile()(None) is None
    for missing in (tmp_path, tmp_path / "no.pem"):
        with pytest.raises(ValueError, match="is no file"):
            ExistingFile()(missing)


def test_a_file_to_write_needs_its_folder(tmp_path: Path) -> None:
    assert FileToWrite()(tmp_path / "edge.db") == tmp_path / "edge.db"
    with pytest.raises(ValueError, match="no folder"):
        FileToWrite()(tmp_path / "none" / "edge.db")
    with pytest.raises(ValueError, match="is a folder"):
        FileToWrite()(tmp_path)


def test_a_secret_shows_where_it_came_from_and_never_itself() -> None:
    assert repr(Secret("env:KEY", "sk-hidden")) == "Secret(source='env:KEY')"
