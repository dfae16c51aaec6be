"""Base URLs taken apart."""

import pytest

from edge.providers.origin import Origin


@pytest.mark.parametrize(
    ("url", "expected", "host_header"),
    [
        ("http://gpu1:8000/v1", Origin(False, "gpu1", 8000, "/v1"), "gpu1:8000"),
        ("http://gpu1:8000/v1/", Origin(False, "gpu1", 8000, "/v1"), "gpu1:8000"),
        ("http://gpu1", Origin(False, "gpu1", 80, ""), "gpu1"),
        ("https://API.example.com/", Origin(True, "api.example.com", 443, ""), "api.example.com"),
        ("https://example.com:8443", Origin(True, "example.com", 8443, ""), "example.com:8443"),
        ("http://[::1]:8000/a/b", Origin(False, "::1", 8000, "/a/b"), "[::1]:8000"),
        ("http://[::1]", Origin(False, "::1", 80, ""), "[::1]"),
        (
            "http://bücher.example",
            Origin(False, "xn--bcher-kva.example", 80),
            "xn--bcher-kva.example",
        ),
    ],
)
def test_a_base_url_is_taken_apart(url: str, expected: Origin, host_header: str) -> None:
    origin = Origin.parse(url)

    assert origin == expected
    assert origin.host_header == host_header


def test_the_authority_always_has_a_port() -> None:
    assert Origin.parse("https://example.com").authority == "example.com:443"
    assert Origin.parse("https://[::1]").authority == "[::1]:443"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gpu1:8000",
        "//gpu1",
        "ftp://gpu1",
        "http://",
        "http:///v1",
        "http://user:secret@gpu1",
        "http://gpu1/v1?key=secret",
        "http://gpu1/v1#x",
        "http://gpu1:99999",
        "http://gpu1:port",
        "http://" + "ü" * 80,
    ],
)
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Origin.parse(url)


def test_a_refusal_does_not_repeat_credentials() -> None:
    with pytest.raises(ValueError, match="credentials") as caught:
        Origin.parse("http://user:secret@gpu1")

    assert "secret" not in str(caught.value)
