"""Making connections: TLS and whom it trusts, and the way through a proxy."""

import os
import socket

import pytest
import trio

from edge.errors import ProviderTimeout, ProviderUnreachable
from edge.providers.channel import SocketChannel
from edge.providers.dial import Dialer
from edge.providers.origin import Origin
from edge.providers.transport import Transport, TransportLimits
from tests.fakes.certificates import Certificates
from tests.fakes.raw_server import (
    Peer,
    RawServer,
    Script,
    answering,
    each,
    head,
    raw_server,
    saying,
    silent,
    streaming,
)
from tests.providers.serving import serving, whole


def _trusting(certificates: Certificates) -> TransportLimits:
    return TransportLimits(ca_file=certificates.ca_file)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_connection_sends_without_delay() -> None:
    """Without TCP_NODELAY the second of two small writes waits for an acknowledgement, 40 ms."""
    async with raw_server(silent) as server:
        dial = Dialer(
            Origin.parse(server.url), name="gpu1", context=None, proxy=None, max_head_bytes=4096
        )
        channel = await dial()
        assert isinstance(channel, SocketChannel)
        with socket.socket(fileno=os.dup(channel._fd)) as same:
            assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        channel.close()


# TLS


async def test_a_provider_with_a_trusted_certificate_is_spoken_to(
    certificates: Certificates,
) -> None:
    tls = certificates.server_context()
    script = streaming([b"a", b"b" * 100_000, b"c"])
    async with serving(script, _trusting(certificates), tls=tls) as (server, transport):
        for _ in range(3):
            body = await whole(transport.request("POST", "/x", body=b"{}"))
            assert body == b"a" + b"b" * 100_000 + b"c"

        assert server.count("accepted") == 1


async def test_the_name_is_sent_and_http_1_is_offered(certificates: Certificates) -> None:
    tls = certificates.server_context()
    names: list[str] = []
    tls.sni_callback = lambda _, name, __: names.append(name)
    tls.set_alpn_protocols(["h2", "http/1.1"])
    chosen: list[str | None] = []

    async def script(peer: Peer) -> None:
        assert isinstance(peer.stream, trio.SSLStream)
        chosen.append(peer.stream.selected_alpn_protocol())
        await answering()(peer)

    async with serving(script, _trusting(certificates), tls=tls) as (_, transport):
        await whole(transport.request("POST", "/x"))

    assert (names, chosen) == (["localhost"], ["http/1.1"])


async def test_a_certificate_of_nobody_we_trust_is_refused(certificates: Certificates) -> None:
    tls = certificates.server_context()
    async with serving(answering(), TransportLimits(), tls=tls) as (server, transport):
        with pytest.raises(ProviderUnreachable, match="its certificate is not trusted: "):
            await whole(transport.request("POST", "/x"))

        assert server.count("head") == 0
        assert transport.statistics().open == 0


async def test_a_certificate_for_another_name_is_refused_without_telling_names(
    certificates: Certificates,
) -> None:
    tls = certificates.server_context("elsewhere.example")
    async with serving(answering(), _trusting(certificates), tls=tls) as (server, transport):
        with pytest.raises(ProviderUnreachable) as caught:
            await whole(transport.request("POST", "/x"))

        assert "Hostname mismatch" in str(caught.value)
        assert "localhost" not in str(caught.value)
        assert server.count("head") == 0


async def test_verification_can_be_turned_off(certificates: Certificates) -> None:
    tls = certificates.server_context("elsewhere.example")
    async with serving(answering(), TransportLimits(verify=False), tls=tls) as (_, transport):
        assert await whole(transport.request("POST", "/x")) == b"{}"


async def test_a_certificate_for_an_address_is_accepted(certificates: Certificates) -> None:
    async with raw_server(answering(), tls=certificates.server_context("127.0.0.1")) as server:
        transport = Transport(f"https://127.0.0.1:{server.port}", _trusting(certificates))

        assert await whole(transport.request("POST", "/x")) == b"{}"
        await transport.aclose()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_ca_file_of_no_use_is_refused_at_the_start(content: str | None, tmp_path: str) -> None:
    path = f"{tmp_path}/ca.pem"
    if content is not None:
        with open(path, "w") as file:
            file.write(content)

    with pytest.raises(ValueError, match="the CA file"):
        Transport("https://gpu1", TransportLimits(ca_file=path))


async def test_a_provider_that_does_not_speak_tls_is_unreachable(
    certificates: Certificates,
) -> None:
    async def plain(peer: Peer) -> None:
        await peer.receive()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(plain) as server:
        transport = Transport(f"https://localhost:{server.port}", _trusting(certificates))
        with pytest.raises(ProviderUnreachable, match="cannot be reached: TLS failed"):
            await whole(transport.request("POST", "/x"))
        assert transport.statistics().open == 0


async def test_a_provider_that_closes_in_the_handshake_is_unreachable(
    certificates: Certificates,
) -> None:
    async def close(peer: Peer) -> None:
        await peer.receive()

    async def reset(peer: Peer) -> None:
        await peer.receive()
        peer.reset()

    async with raw_server(each(close, reset)) as server:
        transport = Transport(f"https://localhost:{server.port}", _trusting(certificates))
        for _ in range(2):
            with pytest.raises(ProviderUnreachable, match="cannot be reached: "):
                await whole(transport.request("POST", "/x"))
        assert transport.statistics().open == 0


async def test_the_connect_deadline_includes_the_handshake(certificates: Certificates) -> None:
    async def deaf(peer: Peer) -> None:
        await peer.wait_closed()

    before = _descriptors()
    async with raw_server(deaf) as server:
        limits = TransportLimits(ca_file=certificates.ca_file, connect_timeout_s=0.05)
        transport = Transport(f"https://localhost:{server.port}", limits)
        with pytest.raises(ProviderTimeout):
            await whole(transport.request("POST", "/x"))
        await server.happened("closed")

    assert transport.statistics() == Transport("http://x").statistics()
    assert _descriptors() == before


@pytest.mark.parametrize(
    ("wire", "end"),
    [(head(200, {"content-length": "2"}) + b"ok", "idle"), (head(200) + b"ok", "closed")],
)
async def test_a_close_without_tls_goodbye_is_an_end(
    wire: bytes, end: str, certificates: Certificates
) -> None:
    tls = certificates.server_context()
    async with serving(saying(wire), _trusting(certificates), tls=tls) as (server, transport):
        for _ in range(2):
            assert await whole(transport.request("POST", "/x")) == b"ok"
            await server.happened("finished", server.count("accepted"))

        assert server.count("accepted") == 2, end


async def test_leaving_does_not_wait_for_the_peers_goodbye(certificates: Certificates) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(head(200, {"content-length": "5"}) + b"he")
        await peer.wait_closed()

    tls = certificates.server_context()
    async with serving(script, _trusting(certificates), tls=tls) as (server, transport):
        async with transport.request("POST", "/x") as answer:
            await answer.receive()
        assert transport.statistics().open == 0
        await server.happened("closed")


# Proxy


def _proxy(port_of: RawServer, requests: list[bytes]) -> Script:
    """A forward proxy that connects to one server whatever it is asked for."""

    async def script(peer: Peer) -> None:
        request = b""
        while not request.endswith(b"\r\n\r\n"):
            request += await peer.receive()
        requests.append(request)
        await peer.send(b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n")
        there = await trio.open_tcp_stream("127.0.0.1", port_of.port)
        async with there, trio.open_nursery() as nursery:
            nursery.start_soon(_copy, peer.stream, there)
            await _copy(there, peer.stream)
            nursery.cancel_scope.cancel()

    return script


async def _copy(source: trio.abc.ReceiveStream, target: trio.abc.SendStream) -> None:
    while data := await source.receive_some():
        await target.send_all(data)
    if isinstance(target, trio.SocketStream):
        await target.send_eof()


async def test_a_secure_provider_is_reached_through_a_proxy(certificates: Certificates) -> None:
    requests: list[bytes] = []
    tls = certificates.server_context("api.example.com")
    async with (
        raw_server(answering(body=b"hello"), tls=tls) as server,
        raw_server(_proxy(server, requests)) as proxy,
    ):
        limits = TransportLimits(
            ca_file=certificates.ca_file, proxy=f"http://me:pw@127.0.0.1:{proxy.port}"
        )
        transport = Transport("https://api.example.com/v1", limits)
        with trio.fail_after(5):
            for _ in range(2):
                assert await whole(transport.request("POST", "/x")) == b"hello"
        await transport.aclose()
        await server.happened("closed")

    assert requests == [
        b"CONNECT api.example.com:443 HTTP/1.1\r\nhost: api.example.com:443\r\n"
        b"proxy-authorization: Basic bWU6cHc=\r\n\r\n"
    ]
    assert [event.detail for event in server.events if event.kind == "head"] == [
        b"POST /v1/x HTTP/1.1"
    ] * 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (head(407, {"content-length": "0"}), "the proxy refused with status 407"),
        (head(403, {"content-length": "9"}) + b"forbidden", "the proxy refused with status 403"),
        (b"SSH-2.0-OpenSSH\r\n", "the proxy gave no sound answer"),
        (b"", "the proxy gave no sound answer"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 100_000, "the proxy gave no sound answer"),
    ],
)
async def test_a_proxy_that_does_not_help_makes_the_provider_unreachable(
    answer: bytes, reason: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(answer)

    async with raw_server(script) as proxy:
        limits = TransportLimits(proxy=f"127.0.0.1:{proxy.port}")
        transport = Transport("https://api.example.com", limits, name="gpu1")
        with trio.fail_after(5), pytest.raises(ProviderUnreachable) as caught:
            await whole(transport.request("POST", "/x"))

    assert str(caught.value) == f"provider 'gpu1' cannot be reached: {reason}"
    assert transport.statistics().open == 0


async def test_cancelling_in_the_proxys_or_tls_hands_leaves_no_socket(
    certificates: Certificates,
) -> None:
    async def deaf(peer: Peer) -> None:
        await peer.receive()
        peer.server.log(peer.number, "stuck")
        await peer.wait_closed()

    async with raw_server(deaf) as server:
        address = f"127.0.0.1:{server.port}"
        for times, transport in enumerate(
            (
                Transport("https://gpu1", TransportLimits(proxy=address)),
                Transport(f"https://{address}", _trusting(certificates)),
            ),
            1,
        ):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(whole, transport.request("POST", "/x"))
                    await server.happened("stuck", times)
                    assert transport.statistics().connecting == 1
                    scope.cancel()
            assert transport.statistics() == Transport("http://x").statistics()
            await server.happened("closed", times)
