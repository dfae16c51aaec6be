"""The bare ASGI app of the floors: what hypercorn's trio worker costs before anything is done.

It answers for itself what the fake provider would answer, with no upstream, no routing and no
decoding, so that nothing but the server stands between the two clocks.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import trio

from benchmarks import wire_text
from benchmarks.wire_text import Plan

Message: TypeAlias = dict[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[Message]]

JSON_HEADERS = [(b"content-type", b"application/json")]
SSE_HEADERS = [(b"content-type", b"text/event-stream")]


async def app(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    plan = Plan.read(body)
    if wire_text.STREAMED.search(body):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, receive, nursery.cancel_scope)
            await _stream(plan, send)
            nursery.cancel_scope.cancel()
    else:
        answer = wire_text.whole_answer(call=plan.call)
        await send({"type": "http.response.start", "status": 200, "headers": JSON_HEADERS})
        await send({"type": "http.response.body", "body": answer})


async def _live(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})


async def _watch(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _stream(plan: Plan, send: Send) -> None:
    script = wire_text.CALL if plan.call else wire_text.TEXT
    await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
    await send({"type": "http.response.body", "body": script.opening, "more_body": True})
    due = trio.current_time()
    for number in range(plan.chunks):
        if number == plan.silent_after:
            await trio.sleep_forever()
        if plan.gap_us:
            await trio.sleep_until(due)
            due += plan.gap_us / 1e6
        data = script.before + wire_text.stamp() + script.after
        await send({"type": "http.response.body", "body": data, "more_body": True})
    # Without more_body here: the end of the answer looks like a disconnect to _watch.
    await send({"type": "http.response.body", "body": script.ending})
