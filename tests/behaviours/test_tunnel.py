"""What nobody has to look at passes through as the bytes it is, and ends where its client does."""

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
import trio

from edge.core.run_events import AttemptEnded
from tests.fakes.gateway import CHAT, RunningGateway, ask, chat, gateway, send, tool
from tests.fakes.openai_scripts import (
    answers,
    call,
    error,
    hangs_up,
    refuses,
    silent,
    streams,
)
from tests.fakes.openai_server import (
    DONE,
    USAGE,
    Answer,
    Break,
    OpenAIServer,
    Script,
    event,
    openai_server,
)
from tests.fakes.raw_client import RawClient, RawResponse, connect

OFF = 'validate = "off"\nbuffer = "off"'
KEYS = '[[keys]]\nname = "a"\nkey = "env:EDGE_TEST_KEY"'


def config(*upstreams: OpenAIServer, output: str = OFF, target: str = "", **tables: str) -> str:
    """Providers ``gpu1``, ``gpu2``… in order behind ``*``; ``target`` is more of each target."""
    names = [f"gpu{number}" for number, _ in enumerate(upstreams, 1)]
    provider = tables.pop("provider", "")
    text = tables.pop("top", "")
    for name, upstream in zip(names, upstreams, strict=True):
        text += f'\n[[providers]]\nname = "{name}"\nbase_url = "{upstream.base_url}"\n{provider}\n'
    targets = ", ".join(f'{{ provider = "{name}"{target} }}' for name in names)
    text += f'[[routes]]\nmodel = "*"\npolicy = "ordered"\ntargets = [{targets}]\n'
    return text + "".join(f"[{n}]\n{body}\n" for n, body in {**tables, "output": output}.items())


@asynccontextmanager
async def scene(
    *scripts: Script, **tables: str
) -> AsyncGenerator[tuple[RawClient, OpenAIServer, RunningGateway]]:
    """A client, a gateway and one provider."""
    async with (
        openai_server(*scripts) as upstream,
        gateway(config(upstream, **tables)) as edge,
        connect(edge.url) as client,
    ):
        yield client, upstream, edge


async def post(
    client: RawClient, path: str, body: bytes | dict[str, Any], *headers: tuple[str, str]
) -> RawResponse:
    data = body if isinstance(body, bytes) else orjson.dumps(body)
    await client.request(path, method="POST", headers=headers, body=data)
    return await client.response()


def frames(upstream_body: bytes, size: int) -> Script:
    """A recorded stream, sent in pieces of ``size`` bytes."""

    async def script(answer: Answer) -> None:
        await answer.start()
        for at in range(0, len(upstream_body), size):
            await answer.send(upstream_body[at : at + size])
        await answer.end()

    return script


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

    assert answer.status == 503
    assert orjson.loads(answer.body)["error"]["code"] == "no_path"
    assert answer.headers["x-should-retry"] == "false"
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
    assert (answer.status, told["code"]) == (503, "no_path")
    assert "tunnel" in told["message"]
    assert answer.headers["x-should-retry"] == "false"


async def test_a_body_has_a_bound() -> None:
    async with scene(server="max_body_bytes = 1000") as (client, upstream, _):
        answer = await post(client, "/v1/embeddings", {"model": "m", "input": "x" * 1000})

    assert answer.status == 413
    assert upstream.asked == []


# Failures.


@pytest.mark.parametrize(
    "fails",
    [
        hangs_up,
        refuses(408),
        refuses(409),
        refuses(429),
        refuses(503),
        streams(error("no memory"), role=False),
        streams(Break.RESET, role=False),
        frames(b"", 1),
    ],
    ids=["hang-up", "408", "409", "429", "503", "error event", "reset", "nothing"],
)
async def test_before_the_first_byte_another_provider_is_asked(fails: Script) -> None:
    async with (
        openai_server(fails) as first,
        openai_server(streams("Hello")) as second,
        gateway(config(first, second)) as edge,
        connect(edge.url) as client,
    ):
        answer = await ask(client, chat(stream=True))
        rows = await edge.settled(2)

    assert answer.status == 200
    assert b"Hello" in answer.body
    assert answer.headers["x-edge-provider"] == "gpu2"
    assert answer.headers["x-edge-attempts"] == "2"
    assert [row.status for row in rows] == ["upstream_error", "success"]
    assert {row.path for row in rows} == {"tunnel"}


async def test_a_provider_that_keeps_failing_is_left_alone() -> None:
    async with (
        openai_server(refuses(503)) as first,
        openai_server() as second,
        gateway(config(first, second)) as edge,
        connect(edge.url) as client,
    ):
        for _ in range(12):
            assert (await ask(client, chat())).status == 200

        assert len(first.asked) < 12
        assert len(second.asked) == 12


WORD = event({"choices": [{"index": 0, "delta": {"content": "Hel"}}]})


@pytest.mark.parametrize("how", [Break.CLOSE, Break.RESET])
async def test_a_stream_that_breaks_between_events_ends_in_an_error_event(how: Break) -> None:
    async with scene(streams(WORD, how, role=False)) as (client, upstream, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    begun, told, done = answer.body.split(b"\n\n")[:3]
    assert begun + b"\n\n" == WORD
    assert json.loads(told.removeprefix(b"data: "))["error"]["type"] == "run_error"
    assert done == b"data: [DONE]"
    assert (row.status, row.bytes_out) == ("upstream_error", len(WORD))
    assert upstream.count("asked") == 1, "nothing is retried after the commit point"


async def test_a_stream_that_breaks_inside_an_event_is_cut() -> None:
    async with scene(streams(WORD + WORD[:50], Break.CLOSE, role=False)) as (client, _, edge):
        await send(client, chat(stream=True))
        await client.head()
        raw = await client.until_closed()
        (row,) = await edge.settled()

    assert b"error" not in raw
    assert not raw.endswith(b"0\r\n\r\n"), "no clean end"
    assert row.status == "upstream_error"


async def test_what_may_be_the_usage_event_is_dropped_when_the_stream_breaks_in_it() -> None:
    async with scene(streams(WORD + b'data: {"choices":[],"us', Break.CLOSE, role=False)) as (
        client,
        _,
        _edge,
    ):
        answer = await ask(client, chat(stream=True))

    assert answer.body.startswith(WORD + b'data: {"error"')


async def test_a_body_that_breaks_off_is_cut() -> None:
    async def script(answer: Answer) -> None:
        await answer._send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
            "started",
        )
        await answer.break_off(Break.CLOSE)

    async with scene(script) as (client, _, edge):
        await send(client, chat())
        head = await client.head()
        rest = await client.until_closed()
        (row,) = await edge.settled()

    assert (head.headers["content-length"], rest) == ("99", b"{")
    assert row.status == "upstream_error"


async def test_a_stream_without_its_end_is_no_success() -> None:
    async with scene(streams("Hel", finish=None, done=False, usage=None)) as (client, _, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()

    assert b'"type":"run_error"' in answer.body
    assert (row.status, row.category) == ("upstream_error", "protocol")


@pytest.mark.parametrize("after", [Break.RESET, trio.Event()], ids=["breaks", "lingers"])
async def test_what_happens_behind_done_harms_nobody(after: Break | trio.Event) -> None:
    async with scene(streams("Hello", DONE, after)) as (client, upstream, edge):
        answer = await ask(client, chat(stream=True))
        (row,) = await edge.settled()
        await upstream.happened("closed" if isinstance(after, trio.Event) else "broke")

    assert answer.body.endswith(DONE)
    assert row.status == "success"


async def test_a_client_that_leaves_with_done_has_not_given_up() -> None:
    async with scene(streams("Hello", DONE, trio.Event())) as (client, upstream, edge):
        await send(client, chat(stream=True))
        await client._until(DONE)
        await client.hang_up()
        await upstream.happened("closed")
        (row,) = await edge.settled()

    assert row.status == "success"


@pytest.mark.parametrize(
    ("script", "stream", "category", "status"),
    [
        (silent, True, "first_token_timeout", 504),
        (streams("Hel", trio.Event()), True, "idle_timeout", 200),
    ],
)
async def test_a_silent_provider_is_given_up_on(
    script: Script, stream: bool, category: str, status: int
) -> None:
    waits = "first_token_timeout_s = 0.3\nidle_timeout_s = 0.1"
    async with scene(script, provider=waits, output=f"{OFF}\nmax_attempts = 1") as (
        client,
        upstream,
        edge,
    ):
        answer = await ask(client, chat(stream=stream))
        (row,) = await edge.settled()
        await upstream.happened("closed")

    assert answer.status == status
    assert b'"type":"run_timeout"' in answer.body
    assert (row.status, row.category) == ("timeout", category)


async def test_an_answer_that_is_not_streamed_has_no_first_token_to_wait_for() -> None:
    ready = trio.Event()
    async with scene(
        answers(200, {"usage": USAGE}, first=[ready]), provider="first_token_timeout_s = 0.05"
    ) as (client, upstream, _):
        await send(client, chat())
        await upstream.happened("asked")
        await trio.sleep(0.1)
        ready.set()

        assert (await client.response()).status == 200


async def test_a_run_has_its_time() -> None:
    async with scene(silent, output=f"{OFF}\nrun_timeout_s = 0.1") as (client, upstream, edge):
        answer = await ask(client, chat())
        (row,) = await edge.settled()
        await upstream.happened("closed")

    assert answer.status == 504
    assert (row.status, row.category) == ("timeout", "run_timeout")


# The end from outside.


async def silent_after_head(answer: Answer) -> None:
    await answer.start()
    await trio.sleep_forever()


async def words_without_end(answer: Answer) -> None:
    await answer.start()
    while True:
        await answer.send(WORD)
        await trio.sleep(0.001)


PHASES = pytest.mark.parametrize(
    ("script", "phase"),
    [
        (silent, "connecting"),
        (silent_after_head, "waiting"),
        (streams("Hel", trio.Event()), "streaming"),
        (words_without_end, "streaming"),
    ],
    ids=["no head", "no first byte", "silence in mid-answer", "streaming"],
)


@PHASES
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_client_that_leaves_ends_it_at_the_provider(
    script: Script, phase: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(script) as (client, upstream, edge):
        await client.request(path, method="POST", body=orjson.dumps(chat(stream=True)))
        await upstream.happened("asked")
        await reached(edge, phase)

        await client.hang_up()

        await upstream.happened("closed")
        (row,) = await edge.settled()
    assert given_up(row) == ("cancelled", "give_up", phase)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("tables", [{"provider": "max_concurrent = 1"}, {"limits": "max_runs = 1"}])
async def test_a_client_that_leaves_the_queue(tables: dict[str, str]) -> None:
    async with scene(words_without_end, **tables) as (first, upstream, edge):
        await send(first, chat(stream=True))
        await reached(edge, "streaming")
        async with connect(edge.url) as second:
            await send(second, chat(stream=True))
            await reached(edge, "queued")
            await second.hang_up()
            await until(lambda: bool(edge.rows()))
        assert given_up(edge.rows()[0]) == ("cancelled", "give_up", "queued")
        assert len(upstream.asked) == 1
        await first.hang_up()
        await edge.settled(2)


async def test_a_client_that_leaves_the_pause_before_a_retry() -> None:
    async with scene(refuses(503, headers={"retry-after": "7"})) as (client, upstream, edge):
        await send(client, chat())
        await reached(edge, "retrying")
        await client.hang_up()
        rows = await edge.settled(2)

    assert [row.status for row in rows] == ["upstream_error", "cancelled"]
    assert len(upstream.asked) == 1


async def test_a_client_that_reads_nothing_holds_the_provider_and_then_has_given_up() -> None:
    async def flood(answer: Answer) -> None:
        await answer.start()
        while True:
            await answer.send(WORD * 500)

    async with (
        openai_server(flood) as upstream,
        gateway(config(upstream, server="write_timeout_s = 0.2")) as edge,
        connect(edge.url, receive_buffer=4096) as client,
    ):
        await send(client, chat(stream=True))
        await until(lambda: bool({"closed", "reset"} & set(upstream.kinds())))
        (row,) = await edge.settled()

    assert (row.status, row.category) == ("cancelled", "give_up")


@PHASES
async def test_a_run_is_cancelled_by_its_id(script: Script, phase: str) -> None:
    async with scene(script) as (client, upstream, edge), connect(edge.url) as other:
        await send(client, chat(stream=True))
        await upstream.happened("asked")
        await reached(edge, phase)
        (run,) = edge.gateway.desk.registry.live()

        await other.request(f"/v1/runs/{run.id}", method="DELETE")
        assert (await other.response()).status == 200

        answer = await client.response()
        await upstream.happened("closed")
        (row,) = await edge.settled()
    assert b'"type":"run_cancelled"' in answer.body
    assert answer.status == (200 if phase == "streaming" else 499)
    assert (row.status, row.category) == ("cancelled", "run_cancelled")


async def test_no_heartbeats_come_into_the_bytes() -> None:
    pause = trio.Event()
    async with scene(streams("Hel", pause, "lo"), output=f"{OFF}\nheartbeat_s = 0.01") as (
        client,
        _,
        edge,
    ):
        await send(client, chat(stream=True))
        await reached(edge, "streaming")
        await trio.sleep(0.05)
        pause.set()
        answer = await client.response()

    assert b": heartbeat" not in answer.body


async def reached(edge: RunningGateway, phase: str) -> None:
    await until(lambda: [run.phase for run in edge.gateway.desk.registry.live()][-1:] == [phase])


async def until(happened: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while True:
            if happened():
                return
            await trio.sleep(0.001)


def given_up(row: AttemptEnded) -> tuple[str, str, str]:
    return row.status, row.category, row.phase
