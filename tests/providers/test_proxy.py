"""Which way to take to a provider, and what a proxy is told."""

import pytest

from edge.providers.origin import Origin
from edge.providers.proxy import Proxy, proxy_for

URL = "https://api.example.com/v1"
PROXY = "http://proxy:3128"


@pytest.mark.parametrize("name", ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])
def test_a_secure_origin_goes_through_the_proxy_of_the_environment(name: str) -> None:
    assert proxy_for(URL, {name: PROXY}) == PROXY


def test_the_lower_case_name_and_the_more_special_one_win() -> None:
    environ = {"all_proxy": "http://d", "HTTPS_PROXY": "http://b", "https_proxy": "http://a"}

    assert proxy_for(URL, environ) == "http://a"
    del environ["https_proxy"]
    assert proxy_for(URL, environ) == "http://b"


@pytest.mark.parametrize("environ", [{}, {"http_proxy": PROXY}, {"https_proxy": " "}])
def test_without_a_proxy_for_tls_the_way_is_direct(environ: dict[str, str]) -> None:
    assert proxy_for(URL, environ) == ""


def test_a_plain_origin_is_a_neighbour_and_reached_directly() -> None:
    environ = {"http_proxy": PROXY, "https_proxy": PROXY, "all_proxy": PROXY}

    assert proxy_for("http://gpu1:8000", environ) == ""


@pytest.mark.parametrize(
    "spared",
    [
        "*",
        "api.example.com",
        "API.example.com",
        "example.com",
        ".example.com",
        "*.example.com",
        "other, example.com",
        "other example.com",
        "api.example.com:443",
        "example.com:443",
    ],
)
def test_no_proxy_spares_a_host(spared: str) -> None:
    assert proxy_for(URL, {"https_proxy": PROXY, "no_proxy": spared}) == ""
    assert proxy_for(URL, {"HTTPS_PROXY": PROXY, "NO_PROXY": spared}) == ""


@pytest.mark.parametrize(
    "spared",
    ["", ",", ".", "ample.com", "api.example.com:8443", "com.example", "10.0.0.0/8", "/", "443"],
)
def test_no_proxy_spares_nobody_else(spared: str) -> None:
    assert proxy_for(URL, {"https_proxy": PROXY, "no_proxy": spared}) == PROXY


@pytest.mark.parametrize(
    ("url", "spared", "expected"),
    [
        ("https://10.1.2.3", "10.0.0.0/8", ""),
        ("https://11.1.2.3", "10.0.0.0/8", PROXY),
        ("https://[fd00::1]", "fd00::/8", ""),
        ("https://[::1]", "::1", ""),
        ("https://[::1]", "[::1]:443", ""),
        ("https://[fd00::443]", "fd00::443", ""),
        ("https://10.1.2.3", "fd00::/8", PROXY),
        ("https://10.1.2.3", "10.1.2.3", ""),
    ],
)
def test_no_proxy_knows_addresses_and_networks(url: str, spared: str, expected: str) -> None:
    assert proxy_for(url, {"https_proxy": PROXY, "no_proxy": spared}) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://proxy:3128", Proxy("proxy", 3128)),
        ("proxy:3128", Proxy("proxy", 3128)),
        ("http://proxy", Proxy("proxy", 80)),
        ("http://[::1]:8080/", Proxy("::1", 8080)),
        ("http://us%40er:p%3Ass@proxy:1", Proxy("proxy", 1, b"Basic dXNAZXI6cDpzcw==")),
    ],
)
def test_a_proxy_address_is_read(url: str, expected: Proxy) -> None:
    assert Proxy.parse(url) == expected


@pytest.mark.parametrize("url", ["https://proxy", "socks5://proxy", "", "http://"])
def test_what_is_no_proxy_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="a proxy is given as"):
        Proxy.parse(url)


def test_the_request_names_the_origin_and_carries_the_credentials() -> None:
    proxy = Proxy("proxy", 1, b"Basic abc")

    assert proxy.connect_request(Origin.parse(URL)) == (
        b"CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\n"
        b"proxy-authorization: Basic abc\r\n\r\n"
    )
