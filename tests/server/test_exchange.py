"""What handlers see of a request."""

import pytest

from edge.server.exchange import Headers, split_target

RAW = [(b"host", b"a"), (b"x-one", b"1"), (b"x-one", b"2"), (b"x-latin", b"\xe9")]


def test_headers_are_read_by_name_whatever_its_case() -> None:
    headers = Headers(RAW)

    assert headers.get("Host") == headers["HOST"] == "a"
    assert headers.get("x-one") == "2"
    assert headers.get_all("X-One") == ["1", "2"]
    assert headers.get("x-latin") == "é"
    assert "X-ONE" in headers
    assert list(headers) == ["host", "x-one", "x-latin"]
    assert headers.raw == RAW


def test_a_header_that_is_missing_is_none() -> None:
    headers = Headers(RAW)

    assert headers.get("x-two") is None
    assert headers.get("x-two", "default") == "default"
    assert "x-two" not in headers
    assert headers.get_all("x-two") == []
    with pytest.raises(KeyError):
        headers["x-two"]


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", "/", b""),
        (b"/v1/models/a%2Fb%20c?x=%20&y", "/v1/models/a/b c", b"x=%20&y"),
        (b"/a?", "/a", b""),
        (b"/a?b?c", "/a", b"b?c"),
        (b"http://gateway:1/a/b?c", "/a/b", b"c"),
        (b"http://gateway", "/", b""),
        (b"*", "*", b""),
        (b"/%ff", "/\ufffd", b""),
        (b"/caf%C3%A9", "/café", b""),
    ],
)
def test_a_target_is_a_path_and_a_query(target: bytes, path: str, query: bytes) -> None:
    assert split_target(target) == (path, query)
