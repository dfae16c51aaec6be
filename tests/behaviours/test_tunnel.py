"""What nobody has to look at passes through as the bytes it is, both ways."""

import orjson
import pytest

from tests.fakes.gateway import CHAT, ask, chat, gateway
from tests.fakes.openai_scripts import answers, refuses
from tests.fakes.openai_server import DONE, USAGE, event, openai_server
from tests.fakes.raw_client import connect
from tests.fakes.tunnelled import KEYS, OFF, config, frames, post, scene

RECORDED = (
    b": welcome\r\n\r\n"
    + event({"choices": [{"index": 0, "delta": {"role": "assistant"}}], "x_vendor": 1})
    + 'data: {"choices":[{"index":0,"delta":{"content":"h\u00e9 \u2028 \\u00e9"}}]}\n\n'.encode()
    + b'event: odd\nid: 7\ndata: {"choices":[{"index":0,\ndata: "delta":{}}]}\n\n'
    + event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    + event({"choices": [], "usage": USAGE})
    + DONE
)


@pytest.mark.parametrize("size", [1, 2, 13, 100, 1 << 16])
@pytest.mark.parametrize("asked", [True, False], ids=["usage asked", "usage not asked"])
async def test_a_stream_comes_byte_for_byte(size: int, asked: bool) -> None:
    async with scene(frames(RECORDED, size)) as (client, _, edge):
        request = chat(stream=True)
        if asked:
            request["stream_options"] = {"include_usage": True}
        answer = await ask(client, request)
        (row,) = await edge.settled()

    unasked = event({"choices": [], "usage": USAGE})
    assert answer.body == (RECORDED if asked else RECORDED.replace(unasked, b""))
    assert (row.status, row.path, row.response_mode) == ("success", "tunnel", "tunnel")
    assert (row.usage.input_tokens, row.usage.output_tokens, row.usage.reported) == (10, 5, True)
    assert row.bytes_out == len(answer.body)


async def test_the_request_travels_as_its_bytes() -> None:
    body = b' {"model":"coder" , "stream":true,"stream_options":{"include_usage":true},"big":1e2}'
    async with scene() as (client, upstream, _):
        await post(client, CHAT, body)

    assert upstream.asked[0].raw == body
    assert upstream.asked[0].path == "/v1/chat/completions"


async def test_only_the_models_name_is_replaced_where_the_target_has_another() -> None:
    body = b'{"messages": [{"role": "user", "content": "x"}],  "model" : "coder" }'
    async with scene(target=', model = "qwen3"') as (client, upstream, edge):
        await post(client, CHAT, body)
        (row,) = await edge.settled()

    assert upstream.asked[0].raw == body.replace(b'"coder"', b'"qwen3"')
    assert row.model == "qwen3"


async def test_usage_is_asked_for_unless_the_provider_is_not_to_be_asked() -> None:
    async with scene() as (client, upstream, _):
        await ask(client, chat(stream=True))
        await ask(client, chat(stream=False))
    async with scene(provider="ask_usage = false") as (client, unasked, edge):
        await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    assert upstream.asked[0].body["stream_options"] == {"include_usage": True}
    assert "stream_options" not in upstream.asked[1].body
    assert "stream_options" not in unasked.asked[0].body
    assert not row.usage.reported


async def test_words_to_the_gateway_do_not_travel() -> None:
    metadata = {"edge.validate": "off", "edge.buffer": "off", "mine": "x"}
    async with scene(output="") as (client, upstream, edge):
        await ask(client, chat(metadata=metadata), ("x-edge-output", "max_attempts=1"))
        (row,) = await edge.settled()

    assert row.path == "tunnel"
    assert upstream.asked[0].body["metadata"] == {"mine": "x"}


async def test_credentials_stay_on_their_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_TEST_KEY", "client-secret")
    monkeypatch.setenv("GPU_KEY", "provider-secret")
    given = {
        "set-cookie": "a=provider-secret",
        "authorization": "Bearer provider-secret",
        "openai-organization": "org",
        "access-control-allow-origin": "*",
        "x-edge-provider": "lies",
        "x-request-id": "theirs",
        "connection": "keep-alive, x-hop",
        "x-hop": "1",
        "x-ratelimit-remaining-requests": "9",
    }
    async with scene(
        answers(200, {"usage": USAGE}, given), top=KEYS, provider='api_key = "env:GPU_KEY"'
    ) as (client, upstream, _):
        answer = await ask(
            client,
            chat(),
            ("authorization", "Bearer client-secret"),
            ("x-api-key", "client-secret"),
            ("cookie", "c=client-secret"),
            ("x-goog-api-key", "client-secret"),
            ("proxy-authorization", "client-secret"),
            ("x-edge-output", "max_attempts=1"),
            ("te", "trailers"),
            ("connection", "keep-alive, x-private"),
            ("x-private", "client-secret"),
            ("user-agent", "sdk/1"),
            ("x-request-id", "mine"),
            ("traceparent", "00-1-2-03"),
        )

    sent = upstream.asked[0].headers
    assert sent["authorization"] == "Bearer provider-secret"
    assert "client-secret" not in str(sent)
    assert not [name for name in sent if name.startswith("x-edge-")]
    assert not {"te", "connection", "x-private", "cookie"} & set(sent)
    assert (sent["user-agent"], sent["traceparent"]) == ("sdk/1", "00-1-2-03")
    assert b"provider-secret" not in answer.head
    assert not {"x-hop", "access-control-allow-origin", "openai-organization"} & set(answer.headers)
    assert answer.headers["x-ratelimit-remaining-requests"] == "9"
    assert (answer.headers["x-request-id"], answer.headers["x-edge-provider"]) == ("mine", "gpu1")
    assert answer.headers["x-edge-attempts"] == "1"
    assert answer.headers["x-edge-run-id"].startswith("run_")


@pytest.mark.parametrize(
    ("status", "kind", "body"),
    [
        (400, "application/json", b'{"error":  {"message": "too long"}}'),
        (422, "text/html", b"<html>\xff"),
        (429, "application/json", b'{"error": {"message": "slow down"}}'),
        (500, "text/plain", b"ouch"),
    ],
)
async def test_an_error_keeps_its_status_its_headers_and_every_byte(
    status: int, kind: str, body: bytes
) -> None:
    given = {"content-type": kind, "retry-after": "3", "x-should-retry": "true"}
    async with scene(answers(status, body, given), output=f"{OFF}\nmax_attempts = 1") as (
        client,
        _,
        edge,
    ):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    assert (answer.status, answer.body) == (status, body)
    assert (answer.headers["content-type"], answer.headers["retry-after"]) == (kind, "3")
    assert answer.headers["x-edge-run-id"] == row.run_id
    assert answer.headers.get("x-should-retry") == ("false" if status in (429, 500) else None)
    assert row.status == "upstream_error"


@pytest.mark.parametrize("status", [401, 403])
async def test_the_gateways_credentials_are_no_affair_of_the_client(status: int) -> None:
    async with scene(refuses(status, "invalid key sk-secret")) as (client, _, _edge):
        answer = await ask(client, chat())

    assert answer.status == 502
    assert b"sk-secret" not in answer.body


@pytest.mark.parametrize("status", [401, 403, 407])
async def test_nor_are_they_where_another_provider_might_have_taken_them(status: int) -> None:
    async with (
        openai_server(refuses(status, "invalid key sk-secret")) as first,
        openai_server() as second,
        gateway(config(first, second, output=f"{OFF}\nmax_attempts = 1")) as edge,
        connect(edge.url) as client,
    ):
        answer = await ask(client, chat())

    assert answer.status == 502
    assert b"sk-secret" not in answer.body


async def test_an_error_too_long_to_be_held_is_told_in_our_words() -> None:
    script = answers(500, b"x" * 2_000_000, {"content-type": "text/plain"})
    async with scene(script, output=f"{OFF}\nmax_attempts = 1") as (client, _, _edge):
        answer = await ask(client, chat())

    assert answer.status == 502
    assert orjson.loads(answer.body)["error"]["type"] == "run_error"


async def test_a_redirect_is_not_passed_on() -> None:
    script = answers(307, b"", {"location": "http://10.0.0.1/"})
    async with scene(script, output=f"{OFF}\nmax_attempts = 1") as (client, _, _edge):
        answer = await ask(client, chat())

    assert answer.status == 502
    assert b"10.0.0.1" not in answer.head + answer.body


@pytest.mark.parametrize("body", [b"", b"\x00\xff", b"<html>", b"{", b"x" * 300_000])
async def test_a_body_of_any_kind_passes_with_its_length(body: bytes) -> None:
    async with scene(answers(200, body, {"content-type": "application/x-any"})) as (
        client,
        _,
        edge,
    ):
        answer = await ask(client, chat())
        (row,) = await edge.settled()

    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["content-type"] == "application/x-any"
    assert row.status == "success"


async def test_usage_of_a_whole_answer_is_read() -> None:
    async with scene(answers(200, {"choices": [], "usage": USAGE})) as (client, _, edge):
        await ask(client, chat())
        (row,) = await edge.settled()

    assert (row.usage.output_tokens, row.usage.reported) == (5, True)
