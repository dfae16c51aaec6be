"""A request that is over leaves nothing that only the collector of cyclic garbage would find."""

import gc
from typing import Any

import pytest

from edge.runs.registry import Run
from edge.server.client_reply import ClientReply
from edge.server.exchange import Exchange, GatewayRequest
from tests.fakes.gateway import ask, chat, gateway, tool, upstream_config
from tests.fakes.openai_scripts import calls
from tests.fakes.openai_server import openai_server
from tests.fakes.raw_client import connect

KINDS = (Exchange, GatewayRequest, ClientReply, Run)


def alive() -> list[object]:
    return [thing for thing in gc.get_objects() if isinstance(thing, KINDS)]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("path", ["normalized", "tunnel"])
async def test_requests_leave_no_cycles(path: str, stream: bool) -> None:
    output = "" if path == "normalized" else 'validate = "off"\nbuffer = "off"\nrecover = false'
    offered: dict[str, Any] = {"tools": [tool("ping")]} if path == "normalized" else {}
    async with openai_server(calls("ping", {})) as upstream:
        config = upstream_config(upstream.base_url, output=output)
        async with gateway(config) as edge, connect(edge.url) as client:
            await ask(client, chat(stream=stream, **offered))
            gc.collect()
            before = len(alive())  # other tests may have left some for the report
            gc.disable()
            try:
                for _ in range(10):
                    await ask(client, chat(stream=stream, **offered))
                await edge.settled(11)
                left = alive()[before:]
            finally:
                gc.enable()

    assert {row.path for row in edge.rows()} == {path}
    # The last one may still be on its way out of the connection's task.
    assert len(left) <= len(KINDS), [type(thing).__name__ for thing in left]
