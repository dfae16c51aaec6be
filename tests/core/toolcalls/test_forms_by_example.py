"""Odd shapes of each form that public reports and test suites know, and what they mean."""

import json
from typing import Any

import pytest

from edge.core.contract import Contract, Tool
from tests.core.toolcalls.given_cases import calls_of, content_of, read, reasoning_of, summary

TEXT = {"type": "string"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "ping": {},
    "clock": {"zone": TEXT},
    "note": {"path": TEXT, "body": TEXT},
    "stock": {"sku": TEXT, "limit": {"type": "integer"}},
    "ask": {"question": TEXT, "options": {"type": "array", "items": TEXT}},
    "tune": {"gain": {"type": "number"}, "taps": {"type": "array"}, "label": TEXT},
}
CONTRACT = Contract(
    tools={
        name: Tool(name, {"type": "object", "properties": properties})
        for name, properties in PARAMETERS.items()
    }
)
PING: tuple[str, dict[str, Any]] = ("ping", {})
UTC: tuple[str, dict[str, Any]] = ("clock", {"zone": "UTC"})
HERMES_PING = '<tool_call>{"name": "ping", "arguments": {}}</tool_call>'
SECTION, CALL, ARGUMENTS, CALL_END, SECTION_END = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
QWEN_UTC = "<function=clock>\n<parameter=zone>\nUTC\n</parameter>\n</function>"

RECOVERED: list[tuple[str, str, list[tuple[str, dict[str, Any]]], str]] = [
    # what is odd, the text, the calls, the text that stays
    ("qwen3: no opening wrapper", QWEN_UTC + "\n</tool_call>", [UTC], ""),
    ("qwen3: no wrapper, text on both sides", f"Hm.\n{QWEN_UTC}\nOk.", [UTC], "Hm.\nOk."),
    (
        "qwen3: two functions in a block",
        f"<tool_call>\n<function=ping>\n</function>\n{QWEN_UTC}\n</tool_call>",
        [PING, UTC],
        "",
    ),
    (
        "qwen3: names in quotes, all on one line",
        '<tool_call><function="clock"><parameter="zone">UTC</parameter></function></tool_call>',
        [UTC],
        "",
    ),
    (
        "qwen3: a value closed by the function's close",
        "<tool_call>\n<function=clock>\n<parameter=zone>\nUTC\n</function>\n</tool_call>",
        [UTC],
        "",
    ),
    (
        "qwen3: JSON arguments in the function tag",
        '<tool_call><function=clock>{"zone": "UTC"}</function></tool_call>',
        [UTC],
        "",
    ),
    ("glm: name and JSON", '<tool_call>clock {"zone": "UTC"}</tool_call>', [UTC], ""),
    (
        "glm: inline pairs",
        "<tool_call>clock<arg_key>zone</arg_key><arg_value>UTC</arg_value></tool_call>",
        [UTC],
        "",
    ),
    (
        "glm: the first of two blocks is not closed",
        "<tool_call>ping\n<tool_call>clock\n<arg_key>zone</arg_key>\n"
        "<arg_value>UTC</arg_value>\n</tool_call>",
        [PING, UTC],
        "",
    ),
    ("hermes: a fence inside the tags", "<tool_call>\n```json\n" + HERMES_PING[11:-12]
     + "\n```\n</tool_call>", [PING], ""),
    ("hermes: two objects in a block", "<tool_call>\n" + '{"name": "ping"}\n' * 2
     + "</tool_call>", [PING, PING], ""),
    ("hermes: the outer brace missing", '<tool_call>{"name": "ping", "arguments": {}</tool_call>',
     [PING], ""),
    ("hermes: null arguments", '<tool_call>{"name": "ping", "arguments": null}</tool_call>',
     [PING], ""),
    ("hermes: the opening marker twice", "<tool_call>\n" + HERMES_PING, [PING], ""),
    ("hermes: the first of two blocks is not closed", HERMES_PING[:-12] + "\n" + HERMES_PING,
     [PING, PING], ""),
    ("mistral: a marker for each list", '[TOOL_CALLS] [{"name": "ping"}]' * 2, [PING, PING], ""),
    ("mistral: one marker, two calls", '[TOOL_CALLS]ping[ARGS]{}clock[ARGS]{"zone": "UTC"}',
     [PING, UTC], ""),
    ("mistral: a stop token behind", "[TOOL_CALLS]ping[ARGS]{}</s>", [PING], ""),
    ("llama: objects joined by semicolons", '{"name": "ping", "parameters": {}}; '
     '{"name": "clock", "parameters": {"zone": "UTC"}}', [PING, UTC], ""),
    ("llama: an end token behind", '<|python_tag|>{"name": "ping", "parameters": {}}<|eom_id|>',
     [PING], ""),
    ("llama: pythonic behind the tag", '<|python_tag|>clock(zone="UTC")', [UTC], ""),
    ("pythonic: text on both sides", "I will. [ping()] Ok?", [PING], "I will. Ok?"),
    ("pythonic: JSON's words and nesting",
     '[tune(gain=1, taps=[null, {"a": true}], label="it\'s")]',
     [("tune", {"gain": 1, "taps": [None, {"a": True}], "label": "it's"})], ""),
    ("pythonic: the bracket missing", "[ping()", [PING], ""),
    ("kimi: end markers missing", f"{SECTION}{CALL}functions.ping:0{ARGUMENTS}{{}}"
     f'{CALL}functions.clock:1{ARGUMENTS}{{"zone": "UTC"}}{SECTION_END}', [PING, UTC], ""),
    ("kimi: no prefix, no section", f"{CALL}ping:7{ARGUMENTS}{{}}{CALL_END}", [PING], ""),
    ("kimi: text and a token behind",
     f"{SECTION}{CALL}ping:0{ARGUMENTS}{{}}{CALL_END}{SECTION_END}Done.<|im_end|>", [PING],
     "Done."),
    ("deepseek: ASCII bars, end token",
     "<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>ping\n```json\n{}\n"
     "```<|tool▁call▁end|><|tool▁calls▁end|><｜end▁of▁sentence｜>", [PING], ""),
    ("dsml: one parameter wraps all", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="clock">\n'
     '<｜DSML｜parameter name="arguments" string="false">{"zone": "UTC"}</｜DSML｜parameter>\n'
     "</｜DSML｜invoke>\n</｜DSML｜function_calls>", [UTC], ""),
    ("minimax m1: the closer missing", '<tool_calls>\n{"name": "ping"}\n{"name": "ping"}',
     [PING, PING], ""),
    ("harmony: spaces behind markers", "<|channel|> commentary to=functions.ping "
     "<|constrain|> json <|message|> {} <|call|>", [PING], ""),
    ("harmony: the recipient's header begins in the prompt",
     " to=functions.ping<|channel|>commentary json<|message|>{}<|call|>", [PING], ""),
    ("harmony: free words in the header",
     "<|channel|>commentary I call to=functions.ping<|message|>{}<|call|>", [PING], ""),
    ("harmony: a made-up result is dropped", "<|channel|>commentary to=functions.ping<|message|>{}"
     "<|call|><|start|>functions.ping to=assistant<|channel|>commentary<|message|>pong<|end|>"
     "<|start|>assistant<|channel|>final<|message|>It pongs.<|return|>", [PING], "It pongs."),
    ("hermes: a made-up result is dropped",
     HERMES_PING + "\n<tool_response>\npong\n</tool_response>\nIt pongs.", [PING], "It pongs."),
    ("command-r: fenced actions", 'Action: ```json\n[{"tool_name": "ping", "parameters": {}}]\n```',
     [PING], ""),
    ("functionary: all without its marker", 'all\nHm.\n>>>clock\n{"zone": "UTC"}', [UTC], "Hm."),
    ("hunyuan: within the answer's tags", "<think>\nhm\n</think>\n<answer>\n<tool_calls>"
     '[{"name": "ping", "arguments": {}}]</tool_calls>\n</answer>', [PING], ""),
    ("gemma: round brackets and equals", '<|tool_call>call:clock(zone=<|"|>UTC<|"|>)<tool_call|>',
     [UTC], ""),
    ("gemma: bare", 'call:clock{zone:<|"|>UTC<|"|>}', [UTC], ""),
    ("gemma: stray closers", "<|tool_call>call:ping{}<tool_call|><tool_call|><turn|>", [PING], ""),
    ("minicpm: CDATA", '<function name="note"><param name="path">a</param><param name="body">'
     "<![CDATA[x </param> y]]></param></function>",
     [("note", {"path": "a", "body": "x </param> y"})], ""),
    ("lfm2: JSON in its markers", '<|tool_call_start|>[{"name": "ping"}]<|tool_call_end|>', [PING],
     ""),
    ("cline: nested elements", "<ask>\n<question>Which?</question>\n<options>\n<o>a</o>\n<o>b</o>\n"
     "</options>\n</ask>", [("ask", {"question": "Which?", "options": ["a", "b"]})], ""),
    ("cline: two calls, text between", "<ping></ping>\nand\n<clock>\n<zone>UTC</zone>\n</clock>",
     [PING, UTC], "and"),
    ("fences: two, and nothing else", '```json\n{"name": "ping", "args": {}}\n```\n' * 2,
     [PING, PING], ""),
    ("glimmer: messages", ' to=self<|message|>hm<|eom|><|start|>assistant to=ping<|message|>'
     '<atem:function_calls>\n<atem:invoke name="ping">\n</atem:invoke>\n</atem:function_calls>'
     "<|eot|>", [PING], ""),
]  # fmt: skip

FAULTY: list[tuple[str, str, str]] = [
    ("not a number", '<tool_call>{"name": "tune", "arguments": {"gain": NaN}}</tool_call>', "NaN"),
    ("inner quotes",
     '<tool_call>{"name": "clock", "arguments": {"zone": "a "b" c"}}</tool_call>', "JSON"),
    ("a lone surrogate",
     '<tool_call>{"name": "clock", "arguments": {"zone": "\\ud83d"}}</tool_call>', "surrogate"),
    ("no name", '<tool_call>{"arguments": {"zone": "UTC"}}</tool_call>', "name"),
    ("no name in a list", '[TOOL_CALLS] [{"arguments": {}}]', "name"),
    ("arguments as a list", '<tool_call>{"name": "ping", "arguments": [1]}</tool_call>', "object"),
    ("a key without a value", "<tool_call>stock\n<arg_key>sku</arg_key>\n</tool_call>", "sku"),
    ("a parameter that swallows the next one", "<tool_call>\n<function=note>\n<parameter=path>\n"
     "a.txt\n<parameter=body>\nhi\n</parameter>\n</function>\n</tool_call>", "body"),
    ("DSML with unsound JSON", '<｜DSML｜function_calls><｜DSML｜invoke name="stock">'
     '<｜DSML｜parameter name="limit" string="false">{x</｜DSML｜parameter></｜DSML｜invoke>'
     "</｜DSML｜function_calls>", "limit"),
    ("a keyword twice", "[tune(gain=1, gain=2)]", "gain"),
    ("a value that is no literal", "[clock(zone=now)]", "zone"),
    ("harmony with broken JSON",
     "<|channel|>commentary to=functions.clock<|message|>{zone}<|call|>", "JSON"),
    ("another format's tags", '<note>\n<parameter name="path">a</parameter>\n</note>', "path"),
    ("a bare word in gemma's syntax", "<|tool_call>call:clock{zone:abc}<tool_call|>", "zone"),
    ("kimi with broken JSON", f"{CALL}clock:0{ARGUMENTS}{{zone}}{CALL_END}", "JSON"),
    ("kimi: a section of something else", f"{SECTION}clock in UTC{SECTION_END}", "markers"),
]  # fmt: skip

TEXTS = [
    "The tag <function=ping> starts a call.",
    f"Its calls stand between {SECTION} and {SECTION_END} always.",
    "The <tool_call> tag opens and </tool_call> closes a call.",
    f"Write `{HERMES_PING}` to call.",
    f"```xml\n{HERMES_PING}\n```\nis how.",
    f"Example:\n\n> {HERMES_PING}\n\nis how.",
    "The [TOOL_CALLS] marker starts it.",
    "Kimi writes <|tool_call_begin|> before each call.",
    "I will use the <ping> tool and <clock> too.",
    "Wrap it in <clock>…</clock> tags.",
    '<clock class="x"><zone>t</zone></clock>',
    "call [ping(x)] in code",
    '{"name": "ping"}',
    '{"name": "Alder", "arguments": {"height": 3}}',
    '["a", "b"]',
    "[tune up] the car",
    '>>> import x\n>>> ping()\n{"a": 1}',
    ">>>unknown\n{}",
    "all\nthe things",
    '```json\n{"name": "unknown", "arguments": {}}\n```',
    '```python\n{"name": "ping", "arguments": {}}\n```',
    "Use <|im_end|> to end.",
    "The <answer> tag</answer>",
    " to=you my friend",
    "  two spaces before, and a newline behind \n",
    "\ufeffHello",
    "a" + " " * 5000 + "b",
]


@pytest.mark.parametrize(
    ("text", "calls", "rest"),
    [(text, calls, rest) for _, text, calls, rest in RECOVERED],
    ids=[why for why, *_ in RECOVERED],
)
def test_an_odd_shape_is_read(
    text: str, calls: list[tuple[str, dict[str, Any]]], rest: str
) -> None:
    events = read(CONTRACT, [("content", text)])
    assert [call.fault for call in calls_of(events) if call.fault] == []
    assert [(call.name, json.loads(call.arguments)) for call in calls_of(events)] == calls
    assert content_of(events) == rest
    assert summary(read(CONTRACT, [("content", char) for char in text])) == summary(events)


@pytest.mark.parametrize(
    ("text", "word"),
    [(text, word) for _, text, word in FAULTY],
    ids=[why for why, *_ in FAULTY],
)
def test_a_call_without_a_lossless_reading_is_a_fault_that_names_the_place(
    text: str, word: str
) -> None:
    events = read(CONTRACT, [("content", text)])
    assert word in " ".join(call.fault for call in calls_of(events))
    assert summary(read(CONTRACT, [("content", char) for char in text])) == summary(events)


def test_a_marker_cut_by_the_length_limit_is_a_cut_call_and_shows_no_part_of_itself() -> None:
    events = read(CONTRACT, [("content", "Hm <tool_ca")], truncated=True)
    assert content_of(events) == "Hm"
    assert "length" in calls_of(events)[0].fault
    assert content_of(read(CONTRACT, [("content", "Hm <tool_ca")])) == "Hm <tool_ca"


def test_thousands_of_false_markers_stay_text() -> None:
    text = "<tool_call>\nno call\n" * 5000
    events = read(CONTRACT, [("content", text)])
    assert content_of(events) == text
    assert calls_of(events) == []


@pytest.mark.parametrize("text", TEXTS)
def test_text_about_calls_stays_text_byte_for_byte(text: str) -> None:
    for pieces in ([text], list(text)):
        events = read(CONTRACT, [("content", piece) for piece in pieces])
        assert calls_of(events) == []
        assert content_of(events) == text
        assert reasoning_of(events) == ""
