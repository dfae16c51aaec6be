"""``/v1/models`` lists public names, and costs little where a provider is down."""

import orjson
import trio

from tests.fakes.gateway import gateway, upstream_config
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect
from tests.fakes.raw_server import Peer, raw_server


async def names(url: str) -> list[str]:
    async with connect(url) as client:
        body = orjson.loads((await client.get("/v1/models")).body)
    assert body["object"] == "list"
    assert all(entry["object"] == "model" for entry in body["data"])
    return [entry["id"] for entry in body["data"]]


async def test_routes_and_what_providers_list_are_shown() -> None:
    async with openai_server(models=["llama", "qwen"]) as upstream:
        named = '\n[[routes]]\nmodel = "coder"\ntargets = [{ provider = "gpu1", model = "qwen" }]\n'
        async with gateway(upstream_config(upstream.base_url) + named) as edge:
            assert await names(edge.url) == ["coder", "llama", "qwen"]
            async with connect(edge.url) as client:
                one = orjson.loads((await client.get("/v1/models/llama")).body)
                missing = await client.get("/v1/models/nothing")

    assert (one["id"], one["owned_by"]) == ("llama", "gpu1")
    assert missing.status == 404


async def test_a_provider_that_is_down_is_left_out() -> None:
    named = '\n[[routes]]\nmodel = "coder"\ntargets = [{ provider = "gpu1" }]\n'
    async with gateway(upstream_config("http://127.0.0.1:9") + named) as edge:
        assert await names(edge.url) == ["coder"]


async def test_a_provider_that_never_answers_costs_a_short_timeout() -> None:
    async def mute(peer: Peer) -> None:
        await peer.wait_closed()

    async with raw_server(mute) as server, gateway(upstream_config(server.url)) as edge:
        with trio.fail_after(4):
            assert await names(edge.url) == []


async def test_health_and_readiness() -> None:
    async with gateway(upstream_config("http://127.0.0.1:9")) as edge, connect(edge.url) as client:
        assert (await client.get("/healthz")).status == 200
        assert (await client.get("/readyz")).status == 200
        edge.gateway.common.leaving.set()
        assert (await client.get("/readyz")).status == 503
        assert (await client.get("/healthz")).status == 200
