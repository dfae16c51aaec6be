"""Only plain paths behind ``/v1`` reach a provider."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.errors import EdgeError, MethodNotAllowed, NotFound
from edge.server.passthrough import USUAL_PATHS, provider_path


@pytest.mark.parametrize(
    "path", [*USUAL_PATHS, "/v1/a", "/v1/a/b.c", "/v1/..a", "/v1/a/...", "/v1/~"]
)
def test_a_plain_path_is_passed_on_without_its_version(path: str) -> None:
    assert provider_path(path) == path.removeprefix("/v1")


@pytest.mark.parametrize(
    "path",
    [
        "", "/", "/v1", "/v1/", "/v2/a", "/v1a/b", "v1/a", "/v1/a/", "/v1//a", "/v1/a//b",
        "/v1/.", "/v1/..", "/v1/../a", "/v1/a/..", "/v1/a/./b", "/v1/a/../b",
        "/v1/http://x/", "/v1/a:b", "/v1/@x", "/v1/a b", "/v1/a%2e", "/v1/a?b", "/v1/a#b",
        "/v1/a\\b", "/v1/a\r\nb", "/v1/a\n", "/v1/é",
    ],
)  # fmt: skip
def test_any_other_is_not(path: str) -> None:
    with pytest.raises(NotFound):
        provider_path(path)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/x", "/v1/runs", "/v1/mirror"])
def test_the_gateways_own_take_no_post(path: str) -> None:
    with pytest.raises(MethodNotAllowed):
        provider_path(path)


@given(st.text(alphabet="/.a%:@\\?\n~-", max_size=12))
def test_what_is_passed_on_goes_nowhere_else(rest: str) -> None:
    try:
        path = provider_path(f"/v1{rest}")
    except EdgeError:
        return
    assert path == rest
    assert not {"", ".", ".."} & set(path[1:].split("/"))
    assert not set(path) & set("%:@\\?\n")
