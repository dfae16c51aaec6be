"""Every form in which models write tool calls, one row each.

A new model's form is a row here: its markers, what stands between them, and the kind of payload:

    JsonForm       JSON between markers              Tagged       text values between tags
    PythonicForm   NAME(K=V) as Python writes it     GemmaForm    call:NAME{K:V}
    ElementForm    nested elements                   FencedForm   JSON in a code fence

Rows that share a marker are tried in the order of the table. Channelled answers (harmony, Glimmer)
are not here: they are made of messages throughout, ``messages.py``. The markup of each form, with
sources, is described in the conformance notes of the project.
"""

from edge.core.toolcalls.call_objects import FIRST_KEYS
from edge.core.toolcalls.element_forms import ElementForm
from edge.core.toolcalls.fenced import FencedForm
from edge.core.toolcalls.gemma_forms import GemmaForm
from edge.core.toolcalls.json_forms import JsonForm
from edge.core.toolcalls.lexicon import Form
from edge.core.toolcalls.pythonic_forms import PythonicForm
from edge.core.toolcalls.shapes import (
    BLANKS,
    NAME,
    SPACE,
    Part,
    Shape,
    chars,
    either,
    group,
    maybe,
    sequence,
)
from edge.core.toolcalls.tagged_forms import Tagged
from edge.core.toolcalls.tagged_grammar import TaggedForm

_TOOL = group("name", NAME)
_KEY = group("key", NAME)
_QUOTE = maybe(either('"', "'"))
_FENCE = maybe("```", maybe("json"), SPACE)
_WORD = group("name", chars(r"[\w.\-]", 1, 128))
_PAIR_KEY = group("key", chars(r"[^<>]", 1, 256))


def _named(tag: str, name: Part) -> Part:
    """``<tag name="…">``, with double, single or no quotes."""
    return sequence(f"<{tag} name=", _QUOTE, name, _QUOTE, SPACE, ">")


_STRING_WORD = group("string", chars("[a-zA-Z]", 1, 8))
M3_PREFIX = "]<]minimax[>["
_DSML = "<｜DSML｜"
_SEPARATOR = either("<｜tool▁sep｜>", "<|tool▁sep|>", "<|tool_sep|>", "<｜tool_sep｜>")
_CALL_OBJECT = sequence(
    "{", SPACE, either('"', "'"), either(*sorted(FIRST_KEYS)), either('"', "'"), SPACE, ":"
)
_CALLS = Shape(maybe("[", SPACE), _CALL_OBJECT)


def _bars(*texts: str) -> tuple[str, ...]:
    """Spellings of DeepSeek's tokens: full-width or ASCII bars, low blocks or underscores."""
    full = [f"<｜{text}｜>" for text in texts]
    ascii_bars = [f"<|{text}|>" for text in texts]
    return (*full, *ascii_bars, *(text.replace("▁", "_") for text in ascii_bars))


PARTS = JsonForm(
    "functionary",
    (">>>",),
    head=Shape(_TOOL, BLANKS, maybe("\r"), "\n", SPACE),
    needs_offered=True,
)
GLIMMER = Tagged(
    TaggedForm(
        "glimmer",
        call=_named("atem:invoke", _TOOL),
        parameter=_named("atem:parameter", _KEY),
        parameter_start="<atem:parameter",
        value_close="</atem:parameter>",
        call_close="</atem:invoke>",
        wrappers=("<atem:function_calls>",),
        closers=("</atem:function_calls>",),
    )
)
CLINE = Tagged(
    TaggedForm(
        "cline",
        call=sequence("<", _WORD, ">"),
        parameter=sequence("<", group("key", chars(r"[\w.\-]", 1, 128)), ">"),
        parameter_start="<",
        value_close="</{key}>",
        call_close="</{name}>",
        layout="trim",
    )
)

FORMS: tuple[Form, ...] = (
    JsonForm(
        "function-tag",
        ("<function=",),
        head=Shape(_QUOTE, _TOOL, _QUOTE, ">", SPACE),
        closers=("</function>",),
        needs_offered=True,
    ),
    # Text values between tags.
    Tagged(
        TaggedForm(
            "qwen3-coder",
            call=sequence("<function=", _QUOTE, _TOOL, _QUOTE, SPACE, ">"),
            parameter=sequence("<parameter=", _QUOTE, _KEY, _QUOTE, SPACE, ">"),
            parameter_start="<parameter=",
            value_close="</parameter>",
            call_close="</function>",
            wrappers=("<tool_call>",),
            closers=("</tool_call>",),
            starts=("<function=",),
            layout="line",
            bare_json=True,
        )
    ),
    Tagged(
        TaggedForm(
            "seed-oss",
            call=sequence("<function=", _QUOTE, _TOOL, _QUOTE, SPACE, ">"),
            parameter=sequence("<parameter=", _QUOTE, _KEY, _QUOTE, SPACE, ">"),
            parameter_start="<parameter=",
            value_close="</parameter>",
            call_close="</function>",
            wrappers=("<seed:tool_call>",),
            closers=("</seed:tool_call>",),
        )
    ),
    Tagged(
        TaggedForm(
            "minimax-m2",
            call=_named("invoke", _TOOL),
            parameter=_named("parameter", _KEY),
            parameter_start="<parameter",
            value_close="</parameter>",
            call_close="</invoke>",
            wrappers=("<minimax:tool_call>", "<function_calls>"),
            closers=("</minimax:tool_call>", "</function_calls>"),
            starts=("<invoke name=",),
        )
    ),
    Tagged(
        TaggedForm(
            "dsml",
            call=sequence(f'{_DSML}invoke name="', _TOOL, '"', SPACE, ">"),
            parameter=sequence(
                f'{_DSML}parameter name="',
                _KEY,
                '"',
                maybe(SPACE, 'string="', _STRING_WORD, '"'),
                SPACE,
                ">",
            ),
            parameter_start=f"{_DSML}parameter",
            value_close="</｜DSML｜parameter>",
            call_close="</｜DSML｜invoke>",
            wrappers=(f"{_DSML}function_calls>", f"{_DSML}tool_calls>"),
            closers=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
            starts=(f"{_DSML}invoke name=",),
            unwraps=True,
        )
    ),
    Tagged(
        TaggedForm(
            "step3",
            call=sequence(
                maybe("<｜tool_call_begin｜>", SPACE),
                maybe("function", _SEPARATOR, SPACE),
                _named("steptml:invoke", _TOOL),
            ),
            parameter=_named("steptml:parameter", _KEY),
            parameter_start="<steptml:parameter",
            value_close="</steptml:parameter>",
            call_close="</steptml:invoke>",
            after_call=("<｜tool_call_end｜>", "<｜tool_sep｜>"),
            wrappers=("<｜tool_calls_begin｜>",),
            closers=("<｜tool_calls_end｜>",),
            starts=("<｜tool_call_begin｜>", "<steptml:invoke"),
        )
    ),
    Tagged(
        TaggedForm(
            "minicpm5",
            call=_named("function", _TOOL),
            parameter=_named("param", _KEY),
            parameter_start="<param",
            value_close="</param>",
            call_close="</function>",
            starts=("<function name=",),
        )
    ),
    GLIMMER,
    ElementForm("minimax-m3", M3_PREFIX),
    # JSON between markers.
    JsonForm(
        "hermes",
        ("<tool_call>",),
        head=Shape(SPACE, _FENCE),
        closers=("</tool_call>",),
        joined=",;",
    ),
    JsonForm(
        "mistral",
        ("[TOOL_CALLS]",),
        head=Shape(
            SPACE,
            _TOOL,
            SPACE,
            maybe("[CALL_ID]", chars(r"[\w\-]", 1, 64), SPACE),
            maybe("[ARGS]"),
            SPACE,
        ),
        again=Shape(SPACE, NAME, either("[ARGS]", "[CALL_ID]")),
        closers=("[/TOOL_CALLS]",),
        close_optional=True,
    ),
    JsonForm(
        "mistral-list",
        ("[TOOL_CALLS]",),
        closers=("[/TOOL_CALLS]",),
        close_optional=True,
    ),
    JsonForm("llama-json", ("<|python_tag|>",), joined=";,"),
    JsonForm(
        "kimi-k2",
        (
            "<|tool_calls_section_begin|>",
            "<|tool_call_section_begin|>",
            "<|tool_call_begin|>",
        ),
        head=Shape(
            SPACE,
            maybe("functions."),
            _TOOL,
            maybe(":", chars("[0-9]", 1, 9)),
            SPACE,
            "<|tool_call_argument_begin|>",
            SPACE,
        ),
        begins=("<|tool_call_begin|>",),
        ends=("<|tool_call_end|>",),
        closers=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
    ),
    JsonForm(
        "deepseek",
        (*_bars("tool▁calls▁begin"), *_bars("tool▁call▁begin")),
        head=Shape(SPACE, maybe("function", _SEPARATOR), _TOOL, maybe(_SEPARATOR), SPACE, _FENCE),
        begins=_bars("tool▁call▁begin"),
        ends=_bars("tool▁call▁end"),
        closers=_bars("tool▁calls▁end"),
    ),
    JsonForm("granite", ("<|tool_call|>",), closers=("<|/tool_call|>",), close_optional=True),
    JsonForm(
        "granite-20b", ("<function_call>",), closers=("</function_call>",), close_optional=True
    ),
    JsonForm("phi4", ("functools[",), in_opener=1),
    JsonForm("command-r", ("<|START_ACTION|>",), closers=("<|END_ACTION|>",)),
    JsonForm(
        "command-r-plus",
        ("Action:",),
        head=Shape(SPACE, "```", maybe("json"), SPACE),
        closers=("```",),
    ),
    PARTS,
    JsonForm(
        "internlm",
        ("<|action_start|>",),
        head=Shape(SPACE, maybe("<|plugin|>"), SPACE),
        closers=("<|action_end|>",),
    ),
    JsonForm("nemotron", ("<TOOLCALL>",), closers=("</TOOLCALL>",)),
    JsonForm("tool-calls", ("<tool_calls>",), closers=("</tool_calls>",), joined=",;"),
    JsonForm("apertus", ("<|tools_prefix|>",), closers=("<|tools_suffix|>",)),
    JsonForm(
        "gigachat",
        ("<|message_sep|>",),
        head=Shape(SPACE, "function call", "<|role_sep|>", SPACE),
    ),
    JsonForm("gigachat-3.1", ("<|function_call|>",)),
    JsonForm(
        "inkling",
        ("<|message_model|>", "<|content_invoke_tool_json|>"),
        head=Shape(
            maybe(SPACE, maybe(NAME), "<|content_invoke_tool_json|>"),
            SPACE,
        ),
        closers=("<|end_message|>",),
    ),
    # Key and value pairs; behind JSON, since both may stand in the same tags.
    *(
        Tagged(
            TaggedForm(
                name,
                call=_WORD,
                parameter=sequence(
                    f"<{prefix}arg_key>",
                    _PAIR_KEY,
                    f"</{prefix}arg_key>",
                    SPACE,
                    f"<{prefix}arg_value>",
                ),
                parameter_start=f"<{prefix}arg_key>",
                value_close=f"</{prefix}arg_value>",
                wrappers=(f"<{prefix}tool_call>",),
                closers=(f"</{prefix}tool_call>",),
                bare_json=True,
            )
        )
        for name, prefix in (("glm", ""), ("longcat", "longcat_"))
    ),
    JsonForm("longcat-json", ("<longcat_tool_call>",), closers=("</longcat_tool_call>",)),
    # Call syntax.
    PythonicForm("llama-pythonic", ("<|python_start|>",), closers=("<|python_end|>",)),
    PythonicForm("python-tag", ("<|python_tag|>",)),
    PythonicForm("lfm2", ("<|tool_call_start|>",), closers=("<|tool_call_end|>",)),
    JsonForm("lfm2-json", ("<|tool_call_start|>",), closers=("<|tool_call_end|>",)),
    JsonForm("llama4-json", ("<|python_start|>",), joined=";", closers=("<|python_end|>",)),
    PythonicForm("olmo3", ("<function_calls>",), closers=("</function_calls>",)),
    PythonicForm("pythonic", ("[",), unmarked=True),
    GemmaForm(
        "gemma4",
        ("<|tool_call>", "call:"),
        closers=("<tool_call|>",),
        delimiter='<|"|>',
        bare=("call:",),
    ),
    GemmaForm(
        "functiongemma",
        ("<start_function_call>",),
        closers=("<end_function_call>",),
        delimiter="<escape>",
    ),
    # Without a marker: an offered tool's name shows what is meant.
    FencedForm(
        JsonForm(
            "fenced-json",
            ("```",),
            head=Shape(maybe(either("json", "JSON", "tool_call", "tool_code")), SPACE),
            closers=("```",),
            needs_offered=True,
            looks_like=_CALLS,
        )
    ),
    JsonForm(
        "json",
        ("{", "["),
        head=Shape(),
        in_opener=1,
        joined=";",
        needs_offered=True,
        looks_like=_CALLS,
    ),
    CLINE,
)

FORM_NAMES: tuple[str, ...] = (*(form.name for form in FORMS), "harmony")
"""Names for ``output.forms``."""
