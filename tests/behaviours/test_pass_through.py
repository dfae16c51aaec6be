"""Which chat requests pass through, and that every other POST does."""

from typing import Any

import orjson
import pytest

from tests.fakes.gateway import CHAT, ask, chat, gateway, tool
from tests.fakes.openai_scripts import answers, call, streams
from tests.fakes.openai_server import DONE, Answer, event, openai_server
from tests.fakes.raw_client import connect
from tests.fakes.tunnelled import KEYS, OFF, config, post, scene

# Which requests pass through.


@pytest.mark.parametrize(
    ("output", "provider", "fields", "path"),
    [
        (OFF, "", {}, "tunnel"),
        (OFF, 'path = "tunnel"', {}, "tunnel"),
        (OFF, 'path = "normalized"', {}, "normalized"),
        (OFF, "", {"tools": [tool("ping")]}, "normalized"),
        (f"{OFF}\nrecover = false", "", {"tools": [tool("ping")]}, "tunnel"),
        (f'{OFF}\nxml_completion_tool = "done"', "", {}, "normalized"),
        ('validate = "off"', "", {}, "normalized"),
        ('buffer = "off"', "", {}, "normalized"),
        ('validate = "observe"\nbuffer = "off"', "", {}, "normalized"),
        ("", "", {"metadata": {"edge.validate": "off", "edge.buffer": "off"}}, "tunnel"),
        (OFF, "", {"metadata": {"edge.validate": "enforce"}}, "normalized"),
        (OFF, 'on_give_up = "drain"', {}, "normalized"),
    ],
)
async def test_the_path_of(output: str, provider: str, fields: dict[str, Any], path: str) -> None:
    async with scene(output=output, provider=provider) as (client, _, edge):
        answer = await ask(client, chat(**fields))
        (row,) = await edge.settled()

    assert answer.status == 200
    assert row.path == path


async def test_a_run_that_must_be_validated_is_refused_where_there_is_only_a_tunnel() -> None:
    async with scene(output="", provider='path = "tunnel"') as (client, upstream, edge):
        answer = await ask(client, chat())
        (row,) = await edge.settled()

    told = orjson.loads(answer.body)["error"]
    assert (answer.status, told["type"]) == (404, "invalid_request_error")
    assert (told["param"], told["code"]) == ("model", "no_path")
    assert upstream.asked == []
    assert row.status == "rejected"


async def test_a_retry_that_would_have_to_pass_through_is_no_retry() -> None:
    """The invalid answer of the normalized provider cannot be asked again of the tunnel."""
    async with (
        openai_server(streams(call("nothing", {}), finish="tool_calls")) as first,
        openai_server() as second,
        gateway(
            config(first, second, output="max_attempts = 2").replace(
                f'base_url = "{second.base_url}"',
                f'base_url = "{second.base_url}"\npath = "tunnel"',
            )
        ) as edge,
        connect(edge.url) as client,
    ):
        answer = await ask(client, chat(tools=[tool("ping")]))
        await edge.settled(2)

        assert answer.status == 502
        assert second.asked == []


async def test_a_malformed_chat_is_the_providers_to_judge() -> None:
    async with scene(answers(400, {"error": "no"})) as (client, upstream, _):
        answer = await post(client, CHAT, {"model": "coder", "messages": "x"})

    assert (answer.status, answer.body) == (400, b'{"error": "no"}')
    assert upstream.asked[0].body == {"model": "coder", "messages": "x"}


async def test_a_chat_that_names_no_model_is_refused_here() -> None:
    async with scene() as (client, upstream, _):
        answer = await post(client, CHAT, {"messages": []})

    assert answer.status == 400
    assert orjson.loads(answer.body)["error"]["param"] == "model"
    assert upstream.asked == []


# Every other POST.

VECTORS = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 4, "total_tokens": 4}}


@pytest.mark.parametrize("path", ["/embeddings", "/rerank", "/audio/speech", "/x/y.z~1"])
async def test_any_other_post_goes_to_its_models_provider(path: str) -> None:
    body = b'{"input":  "x", "model":"coder"}'
    async with scene(answers(200, VECTORS), output="") as (client, upstream, edge):
        answer = await post(client, f"/v1{path}?a=b%20c&d", body)
        (row,) = await edge.settled()

    assert upstream.asked[0].path == f"/v1{path}?a=b%20c&d"
    assert upstream.asked[0].raw == body
    assert upstream.asked[0].headers["content-type"] == "application/json"
    assert orjson.loads(answer.body) == VECTORS
    assert (row.path, row.status, row.usage.input_tokens) == ("tunnel", "success", 4)


async def test_a_legacy_completion_streams() -> None:
    words = [event({"choices": [{"text": word, "finish_reason": None}]}) for word in "ab"]
    last = event({"choices": [{"text": "", "finish_reason": "length"}]})

    async def script(answer: Answer) -> None:
        await answer.start()
        for data in (*words, last):
            await answer.send(data)
        await answer.usage()
        await answer.send(DONE)
        await answer.end()

    async with scene(script) as (client, _, edge):
        answer = await post(client, "/v1/completions", {"model": "m", "prompt": "", "stream": True})
        (row,) = await edge.settled()

    assert answer.body == b"".join(words) + last + DONE
    assert (row.status, row.usage.output_tokens) == ("success", 5)


async def test_a_form_with_a_file_goes_to_its_models_provider() -> None:
    audio = b"RIFF\x00\xff\r\n--x\r\n" * 1000
    head = b'--zz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    form = head + audio + b'\r\n--zz\r\nContent-Disposition: form-data; name="model"\r\n\r\n'
    form += b"whisper\r\n--zz--\r\n"
    kind = ("content-type", "multipart/form-data; boundary=zz")
    async with scene(answers(200, {"text": "hi"}), target=', model = "w-2"') as (client, up, edge):
        answer = await post(client, "/v1/audio/transcriptions", form, kind)
        (row,) = await edge.settled()

    assert answer.body == b'{"text": "hi"}'
    assert up.asked[0].raw == form.replace(b"\r\nwhisper\r\n", b"\r\nw-2\r\n")
    assert up.asked[0].headers["content-type"] == kind[1]
    assert (row.model, row.status) == ("w-2", "success")


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/embeddings", b"{}", 400, "model"),
        ("/embeddings", b"[]", 400, "model"),
        ("/embeddings", b'{"model": 3}', 400, "model"),
        ("/embeddings", b"{", 400, None),
        ("/../admin", b'{"model":"m"}', 404, None),
        ("/a/%2e%2e/admin", b'{"model":"m"}', 404, None),
        ("/a//b", b'{"model":"m"}', 404, None),
        ("/a%2fb%3fc", b'{"model":"m"}', 404, None),
        ("/http://10.0.0.1/", b'{"model":"m"}', 404, None),
        ("/@10.0.0.1", b'{"model":"m"}', 404, None),
        ("/models", b'{"model":"m"}', 405, None),
        ("/runs/run_1", b'{"model":"m"}', 405, None),
    ],
)
async def test_what_does_not_pass(path: str, body: bytes, status: int, param: str | None) -> None:
    async with scene() as (client, upstream, _):
        answer = await post(client, f"/v1{path}", body)

    assert answer.status == status
    assert orjson.loads(answer.body)["error"]["param"] == param
    assert upstream.asked == []


async def test_a_model_that_no_route_serves_is_404() -> None:
    async with openai_server() as upstream:
        text = config(upstream).replace('model = "*"', 'model = "known"')
        async with gateway(text) as edge, connect(edge.url) as client:
            answer = await post(client, "/v1/embeddings", {"model": "other"})

    assert (answer.status, orjson.loads(answer.body)["error"]["param"]) == (404, "model")


async def test_a_key_may_only_ask_for_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "secret")
    async with scene(top=f'{KEYS}\nmodels = ["mine"]') as (client, upstream, _):
        key = ("authorization", "Bearer secret")
        refused = [
            (await post(client, "/v1/embeddings", {"model": "other"}, key)).status,
            (await ask(client, chat(model="other"), key)).status,
            (await post(client, "/v1/embeddings", {"model": "mine"})).status,
        ]
        served = await post(client, "/v1/embeddings", {"model": "mine"}, key)

    assert refused == [404, 404, 401]
    assert served.status == 200
    assert len(upstream.asked) == 1


async def test_a_simulated_provider_has_no_tunnel_and_says_so() -> None:
    async with (
        gateway(
            """
        [[providers]]
        name = "sim"
        kind = "simulated"
        [[routes]]
        model = "sim-echo"
        targets = [{ provider = "sim" }]
        """
        ) as edge,
        connect(edge.url) as client,
    ):
        answer = await post(client, "/v1/embeddings", {"model": "sim-echo"})

    told = orjson.loads(answer.body)["error"]
    assert (answer.status, told["code"]) == (404, "no_path")
    assert "tunnel" in told["message"]


async def test_a_body_has_a_bound() -> None:
    async with scene(server="max_body_bytes = 1000") as (client, upstream, _):
        answer = await post(client, "/v1/embeddings", {"model": "m", "input": "x" * 1000})

    assert answer.status == 413
    assert upstream.asked == []
