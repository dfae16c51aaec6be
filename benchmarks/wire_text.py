"""The bytes that the fake provider, the bare floor and the load agree on.

A request carries its plan inside the user's message, so that it survives every path:

    plan=CHUNKS,GAP_US,SILENT_AFTER,CALL,ID.

* ``CHUNKS``: content chunks of the answer, each written on its own.
* ``GAP_US``: microseconds between two chunks; 0 writes them as fast as the socket takes them.
* ``SILENT_AFTER``: stop talking after so many chunks, until the client leaves; -1 never does.
* ``CALL``: 1 answers with one tool call whose arguments are streamed over the chunks.
* ``ID``: a number by which a client's leaving is told apart.

Every chunk carries ``@`` and the 18 digits of the provider's monotonic clock in nanoseconds, taken
just before the write. Both processes are on one machine and share that clock, so a client that
subtracts the stamp from its own clock has the chunk's whole way.
"""

import re
from dataclasses import dataclass
from time import monotonic_ns

STAMP = re.compile(rb"@(\d{18})")
STAMP_LEN = 19
PLAN = re.compile(rb"plan=(\d+),(\d+),(-?\d+),(\d+),(\d+)\.")
STREAMED = re.compile(rb'"stream"\s*:\s*true')
USAGE_ASKED = re.compile(rb'"include_usage"\s*:\s*true')

_OPEN = (
    b'{"id":"chatcmpl-fake","object":"chat.completion.chunk","created":1700000000,"model":"fake",'
    b'"choices":[{"index":0,"delta":'
)
_SHUT = b',"finish_reason":null}]}'
_USAGE = b'"usage":{"prompt_tokens":9,"completion_tokens":9,"total_tokens":18}'
TOOLS = (
    b'[{"type":"function","function":{"name":"note","parameters":{"type":"object","properties":'
    b'{"text":{"type":"string"},"times":{"type":"integer"}},"required":["text"],'
    b'"additionalProperties":false}}}]'
)
STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


def _event(delta: bytes) -> bytes:
    return b"data: " + _OPEN + delta + _SHUT + b"\n\n"


def http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def stamp() -> bytes:
    return b"%018d" % monotonic_ns()


@dataclass(frozen=True, slots=True)
class Script:
    """The events of one kind of answer; a content event is ``before + stamp() + after``."""

    opening: bytes
    before: bytes
    after: bytes
    ending: bytes
    ending_with_usage: bytes


def _ending(reason: bytes, *, usage: bool, last: bytes = b"") -> bytes:
    finish = b"data: " + _OPEN + b'{},"finish_reason":"' + reason + b'"}]}\n\n'
    count = (
        b'data: {"id":"chatcmpl-fake","object":"chat.completion.chunk","created":1700000000,'
        b'"model":"fake","choices":[],' + _USAGE + b"}\n\n"
    )
    return last + finish + (count if usage else b"") + b"data: [DONE]\n\n"


def _script(opening: bytes, delta: bytes, reason: bytes, last: bytes = b"") -> Script:
    before, _, after = _event(delta).partition(b"STAMP")
    return Script(
        opening=opening,
        before=before,
        after=after,
        ending=_ending(reason, usage=False, last=last),
        ending_with_usage=_ending(reason, usage=True, last=last),
    )


TEXT = _script(_event(b'{"role":"assistant","content":""}'), b'{"content":"@STAMP "}', b"stop")


def _arguments(text: bytes) -> bytes:
    return b'{"tool_calls":[{"index":0,"function":{"arguments":"' + text + b'"}}]}'


CALL = _script(
    _event(
        b'{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call_1","type":'
        b'"function","function":{"name":"note","arguments":"{\\"text\\":\\""}}]}'
    ),
    _arguments(b"@STAMP "),
    b"tool_calls",
    _event(_arguments(b'\\",\\"times\\":3}')),
)


def whole_answer(*, call: bool) -> bytes:
    """The body of an answer that is not streamed, with one stamp in it."""
    if call:
        message = (
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function",'
            b'"function":{"name":"note","arguments":"{\\"text\\":\\"@' + stamp() + b'\\"}"}}]}'
        )
    else:
        message = b'{"role":"assistant","content":"@' + stamp() + b'"}'
    reason = b"tool_calls" if call else b"stop"
    return (
        b'{"id":"chatcmpl-fake","object":"chat.completion","created":1700000000,"model":"fake",'
        b'"choices":[{"index":0,"message":' + message + b',"finish_reason":"' + reason + b'"}],'
    ) + (_USAGE + b"}")


def http_answer(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


@dataclass(frozen=True, slots=True)
class Plan:
    """What a request asks of the fake provider."""

    chunks: int = 8
    gap_us: int = 0
    silent_after: int = -1
    call: bool = False
    id: int = 0

    def text(self) -> bytes:
        """As it stands in a request."""
        fields = (self.chunks, self.gap_us, self.silent_after, self.call, self.id)
        return b"plan=%d,%d,%d,%d,%d." % fields

    @staticmethod
    def read(body: bytes) -> "Plan":
        """The plan in a request's body, or the default one."""
        found = PLAN.search(body)
        if found is None:
            return Plan()
        chunks, gap_us, silent_after, call, ident = map(int, found.groups())
        return Plan(chunks, gap_us, silent_after, bool(call), ident)


def request_body(model: str, plan: Plan, *, stream: bool, tools: bool) -> bytes:
    """A chat completion request that carries ``plan``."""
    return b'{"model":"%b","messages":[{"role":"user","content":"%b"}],"stream":%b%b}' % (
        model.encode(),
        plan.text(),
        b"true" if stream else b"false",
        b',"tools":' + TOOLS if tools else b"",
    )
