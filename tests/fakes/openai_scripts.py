"""Ready-made scripts for the scripted model server, and the parts they are made of.

``streams(*parts)`` sends its parts one by one as an event stream, where a part is

    "text"              a content delta
    {"content": …}      any delta (``call(name, arguments)`` makes one with a whole tool call)
    b"data: …\\n\\n"       bytes as they are (``event(tree)`` and ``error(message)`` make some)
    trio.Event()        a pause until the test sets it
    Break.CLOSE         the connection ends here, in the middle
    Break.RESET         the connection breaks here

``answers`` gives a whole answer; ``refuses``, ``html`` and ``completes`` are kinds of it;
``silent`` and ``hangs_up`` give none. ``by_model`` and ``by_attempt`` choose among scripts.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from tests.fakes.openai_server import CREATED, DONE, USAGE, Answer, Break, Part, Script, event


def error(message: str, kind: str = "server_error", code: Any = None) -> bytes:
    """The bytes of an event that tells an error."""
    return event({"error": {"message": message, "type": kind, "param": None, "code": code}})


def call(
    name: str, arguments: object, *, identity: str = "call_1", index: int = 0
) -> dict[str, Any]:
    """A delta with one whole tool call; ``arguments`` that are no text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    function = {"name": name, "arguments": text}
    entry = {"index": index, "id": identity, "type": "function", "function": function}
    return {"tool_calls": [entry]}


def streams(
    *parts: Part,
    finish: str | None = "stop",
    usage: Mapping[str, int] | None = USAGE,
    done: bool = True,
    role: bool = True,
    headers: Mapping[str, str] | None = None,
) -> Script:
    """An event stream of ``parts``.

    Args:
        parts: see the module's docstring.
        finish: the finish reason, in a chunk of its own; None for no such chunk.
        usage: in a chunk of its own where the request asks for it; None for no such chunk.
        done: whether ``[DONE]`` is sent.
        role: whether a role chunk comes first.
        headers: beside the content type, or in its place.
    """

    async def script(answer: Answer) -> None:
        await answer.start(headers=headers)
        if role:
            await answer.chunk({"role": "assistant", "content": ""})
        for part in parts:
            await answer.part(part)
        if finish is not None:
            await answer.chunk({}, finish)
        if usage is not None:
            await answer.usage(usage)
        if done:
            await answer.send(DONE)
        await answer.end()

    return script


def calls(name: str, arguments: object, *before: Part) -> Script:
    """A stream that ends in one native tool call."""
    return streams(*before, call(name, arguments), finish="tool_calls")


def answers(
    status: int,
    body: object,
    headers: Mapping[str, str] | None = None,
    *,
    first: Sequence[Part] = (),
) -> Script:
    """A whole answer; a ``body`` that is not bytes is written as JSON.

    ``first`` holds pauses or a break that come before it.
    """
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def script(answer: Answer) -> None:
        for part in first:
            await answer.part(part)
        await answer.whole(status, data, headers)

    return script


def refuses(
    status: int,
    message: str = "refused",
    *,
    kind: str = "server_error",
    headers: Mapping[str, str] | None = None,
) -> Script:
    """An error status with an error object."""
    told = {"message": message, "type": kind, "param": None, "code": None}
    return answers(status, {"error": told}, headers)


def html(status: int = 200, text: str = "<html><body>Bad gateway</body></html>") -> Script:
    """A page, as proxies answer with."""
    return answers(status, text.encode(), {"content-type": "text/html"})


def completes(text: str) -> Script:
    """A whole ``chat.completion``, from a server that passes over ``stream: true``."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    completion = {
        "id": "chatcmpl-upstream",
        "object": "chat.completion",
        "created": CREATED,
        "model": "m",
        "choices": [choice],
        "usage": USAGE,
    }
    return answers(200, completion)


async def silent(answer: Answer) -> None:
    """Never answer, not even with a head."""
    del answer
    await trio.sleep_forever()


async def hangs_up(answer: Answer) -> None:
    """Close the connection in place of an answer."""
    await answer.break_off(Break.CLOSE)


def by_model(scripts: Mapping[str, Script]) -> Script:
    """The script of the request's model."""

    async def script(answer: Answer) -> None:
        await scripts[answer.asked.body["model"]](answer)

    return script


def by_attempt(*scripts: Script) -> Script:
    """The script of the attempt's number, whichever run it belongs to; the last one repeats."""

    async def script(answer: Answer) -> None:
        await scripts[min(answer.asked.attempt, len(scripts)) - 1](answer)

    return script
