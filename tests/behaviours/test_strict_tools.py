"""Prevention: a provider that honours ``strict`` is asked for constrained arguments."""

from tests.fakes.gateway import ask_once, chat, gateway, tool, upstream_config
from tests.fakes.openai_server import openai_server


async def test_strict_is_asked_for_where_the_client_said_nothing() -> None:
    said = tool("free")
    said["function"]["strict"] = False
    async with openai_server() as upstream:
        config = upstream_config(upstream.base_url, provider="strict_tools = true")
        async with gateway(config) as edge:
            await ask_once(edge.url, chat(tools=[tool("clock"), said]))

    sent = upstream.asked[0].body["tools"]
    assert [entry["function"].get("strict") for entry in sent] == [True, False]


async def test_without_it_tools_travel_as_they_came() -> None:
    offered = [tool("clock")]
    async with openai_server() as upstream, gateway(upstream_config(upstream.base_url)) as edge:
        await ask_once(edge.url, chat(tools=offered))

    assert upstream.asked[0].body["tools"] == offered
