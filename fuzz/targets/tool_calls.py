"""Calls that models write as text, in every form there is: any text, in any cut, reads the same.

Nothing raises, whatever the text says. What is shown is never taken back: the answer's text only
grows. Sound calls hold one JSON object. Where no call and no reasoning is found, every word of the
text comes out as content, but for marks that belong to no text.
"""

import json
import re
from collections.abc import Iterable

from edge.core.contract import Contract, Tool
from edge.core.stream_events import ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta
from edge.core.toolcalls.reader import TextReader
from edge.core.toolcalls.vocabulary import vocabulary
from fuzz.draw import Draw, as_text, cut, finely
from tests.core.toolcalls.given_cases import CASES, contract_of, is_text_only, joined, pieces_of
from tests.core.toolcalls.rendered_forms import RENDERED

MAX_BYTES = 1500

OWN = (
    Tool(
        "save_it",
        {
            "type": "object",
            "properties": {
                "body": {"type": "string"},
                "count": {"type": "integer"},
                "flag": {"type": "boolean"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "meta": {"type": "object", "properties": {"deep": {"type": "array"}}},
            },
        },
    ),
    Tool("ping", {}),
    Tool("clock", {"type": "object", "properties": {"zone": {"type": "string"}}}),
)
TOOLS = {
    **{name: tool for case in CASES for name, tool in contract_of(case).tools.items()},
    **{tool.name: tool for tool in OWN},
}
CONTRACTS = (
    Contract(tools=TOOLS),
    Contract(tools={tool.name: tool for tool in OWN}),
    Contract(tools={"clock": OWN[2]}, tool_choice="named", allowed=frozenset({"clock"})),
    Contract(),
    Contract(xml_completion_tool="attempt_completion"),
)
CALLS = [
    ("save_it", {"body": 'x < "y"\n</parameter>', "count": 12, "tags": ["a", "é😀"]}),
    ("ping", {}),
]

_words = vocabulary((), True)
_MARKS = sorted(
    {
        mark.decode()
        for lexicon in (
            _words.answer, _words.thinking, _words.field, _words.opening, _words.strays,
        )
        for mark in lexicon.tokens
    },
    key=lambda mark: (-len(mark), mark),
)  # fmt: skip
WORDS = (
    *(mark.encode() for mark in _MARKS), b'{"name": "ping", "arguments": {}}', b"```json\n",
    b"<ping>", b"</ping>", b"clock(", b"ping{}", b'"', b"'", b"\\", b"\n", b" to=clock",
    b"<|message|>", b"<|end|>", b"<parameter=body>", b" " * 250, b"x" * 250, "é".encode() * 125,
    b"[" * 100,
)  # fmt: skip

Summary = tuple[str, str, list[ToolCallDelta]]


def check(data: bytes) -> None:
    """See the module's docstring."""
    draw = Draw(data)
    contract, live, truncated = draw.pick(CONTRACTS), draw.flag(), draw.flag()
    bound, seed = draw.pick((8388608, 8388608, 60)), draw.below(65536)
    text = as_text(draw.rest())

    def read(pieces: list[str]) -> Summary:
        return summary(contract, pieces, live=live, truncated=truncated, bound=bound)

    whole = read([text])
    if bound > len(text):  # else it depends on the cut where it is too much
        assert read(cut(text, seed)) == whole
        assert read(finely(text, seed)) == whole
        check_nothing_lost(text, whole)
    else:
        read(cut(text, seed))
    for call in whole[2]:
        if not call.fault:
            assert type(json.loads(call.arguments)) is dict, call


def summary(
    contract: Contract, pieces: list[str], *, live: bool, truncated: bool, bound: int
) -> Summary:
    """Content, reasoning and calls of a text in these pieces."""
    reader = TextReader(contract, live=live, max_held_bytes=bound)
    events: list[StreamEvent] = []
    for piece in pieces:
        events += reader.feed(piece)
    events += reader.finish(truncated=truncated)
    texts = [event.text for event in events if isinstance(event, TextDelta)]
    thoughts = [event.text for event in events if isinstance(event, ReasoningDelta)]
    assert all(texts), "an empty piece of text"
    assert all(thoughts), "an empty piece of reasoning"
    calls = [event for event in events if isinstance(event, ToolCallDelta)]
    return "".join(texts), "".join(thoughts), calls


def check_nothing_lost(text: str, read: Summary) -> None:
    """Every word that is no mark is in the content, the reasoning or a call."""
    content, reasoning, calls = read
    if calls or reasoning or any(mark in text for mark in _CHANNELS):
        return
    assert bare(content) == bare(text) or lacks_only_marks(content, text)


_CHANNELS = ("<|start|>", "<|channel|>", "<|message|>", "assistant")
_MARK = re.compile("|".join(map(re.escape, _MARKS)))


def bare(text: str) -> str:
    """Without marks and blanks; a mark that stands in another's middle makes one of it."""
    before = ""
    while text != before:
        before, text = text, "".join(_MARK.sub("", text).split())
    return text


def lacks_only_marks(content: str, text: str) -> bool:
    """Whether marks and blanks taken out of the text give the content.

    Which of them are taken out is the reader's choice, so all ways are tried: ``places`` maps a
    place in the text to what of the content can have been seen until there, blanks not counted.
    """
    content = "".join(content.split())
    places: dict[int, set[int]] = {0: {0}}
    for at, letter in enumerate(text):
        seen = places.pop(at, set())
        further = [at + len(mark) for mark in _MARKS if text.startswith(mark, at)]
        for place in further + [at + 1] * letter.isspace():
            places.setdefault(place, set()).update(seen)
        matched = {one + 1 for one in seen if content[one : one + 1] == letter}
        places.setdefault(at + 1, set()).update(matched)
    return len(content) in places[len(text)]


def seeds() -> Iterable[bytes]:
    """Each form as its model writes it, and the recorded answers whose calls are text."""
    for number, name in enumerate(sorted(RENDERED)):
        for text in (RENDERED[name](CALLS), f"<think>hm</think>Sure.\n{RENDERED[name](CALLS)}!"):
            yield bytes((1, number % 2, 0, 0, 0, number)) + text.encode()
    for number, case in enumerate(CASES[::2]):
        if is_text_only(case):
            text = "".join(text for field, text in joined(pieces_of(case)) if field == "content")
            cut_short = case["upstream"]["finish_reason"] == "length"
            yield bytes((0, number % 2, cut_short, 0, 0, number % 256)) + text.encode()
    yield b'\x02\x00\x00\x00\x00\x01{"zone": "a"}'
    yield b"\x04\x00\x00\x00\x00\x01<read_file>\n<path>a</path>\n</read_file>"
