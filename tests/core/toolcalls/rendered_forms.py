"""Each form as its model writes it: from calls to text, for reading back."""

import json
from collections.abc import Callable
from typing import Any

Call = tuple[str, dict[str, Any]]
Renderer = Callable[[list[Call]], str]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(value: Any) -> str:
    """A value as tagged forms write it: strings bare, the rest as JSON."""
    return value if isinstance(value, str) else _json(value)


def _list(calls: list[Call], name: str = "name", arguments: str = "arguments") -> str:
    return _json([{name: tool, arguments: given} for tool, given in calls])


def _each(template: Callable[[str, str], str]) -> Renderer:
    """One block a call: ``template`` is given the name and the arguments as JSON."""
    return lambda calls: "\n".join(template(name, _json(given)) for name, given in calls)


def _tagged(
    call: Callable[[str, str], str], parameter: Callable[[str, Any], str], before: str, behind: str
) -> Renderer:
    def render(calls: list[Call]) -> str:
        bodies = [
            call(name, "".join(parameter(key, value) for key, value in given.items()))
            for name, given in calls
        ]
        return before + "\n".join(bodies) + behind

    return render


def _qwen(calls: list[Call]) -> str:
    def body(name: str, given: dict[str, Any]) -> str:
        parts = [f"<parameter={k}>\n{_text(v)}\n</parameter>\n" for k, v in given.items()]
        return f"<tool_call>\n<function={name}>\n{''.join(parts)}</function>\n</tool_call>"

    return "\n".join(body(name, given) for name, given in calls)


def _pairs(prefix: str) -> Renderer:
    def body(name: str, given: dict[str, Any]) -> str:
        parts = [
            f"<{prefix}arg_key>{k}</{prefix}arg_key>\n"
            f"<{prefix}arg_value>{_text(v)}</{prefix}arg_value>\n"
            for k, v in given.items()
        ]
        return f"<{prefix}tool_call>{name}\n{''.join(parts)}</{prefix}tool_call>"

    return lambda calls: "\n".join(body(name, given) for name, given in calls)


def _dsml_parameter(key: str, value: Any) -> str:
    is_text = "true" if isinstance(value, str) else "false"
    opening = f'<｜DSML｜parameter name="{key}" string="{is_text}">'
    return f"{opening}{_text(value)}</｜DSML｜parameter>\n"


def _cline(calls: list[Call]) -> str:
    def body(name: str, given: dict[str, Any]) -> str:
        parts = [f"<{k}>{_text(v)}</{k}>\n" for k, v in given.items()]
        return f"<{name}>\n{''.join(parts)}</{name}>"

    return "\n".join(body(name, given) for name, given in calls)


_M3 = "]<]minimax[>["


def _elements(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(f"{_M3}<{k}>{_elements(v)}{_M3}</{k}>" for k, v in value.items())
    if isinstance(value, list):
        return "".join(f"{_M3}<item>{_elements(v)}{_M3}</item>" for v in value)
    return _text(value)


def _m3(calls: list[Call]) -> str:
    bodies = [
        f'{_M3}<invoke name="{name}">{_elements(given)}{_M3}</invoke>\n' for name, given in calls
    ]
    return f"{_M3}<tool_call>\n{''.join(bodies)}{_M3}</tool_call>"


def _python(calls: list[Call]) -> list[str]:
    return [f"{name}({', '.join(f'{k}={v!r}' for k, v in g.items())})" for name, g in calls]


def _gemma_value(value: Any, delimiter: str) -> str:
    if isinstance(value, str):
        return f"{delimiter}{value}{delimiter}"
    if isinstance(value, dict):
        fields = ",".join(f"{k}:{_gemma_value(v, delimiter)}" for k, v in value.items())
        return "{" + fields + "}"
    if isinstance(value, list):
        return "[" + ",".join(_gemma_value(item, delimiter) for item in value) + "]"
    return _json(value)


def _gemma(before: str, behind: str, delimiter: str) -> Renderer:
    return lambda calls: "".join(
        f"{before}call:{name}{_gemma_value(given, delimiter)}{behind}" for name, given in calls
    )


def _deepseek(calls: list[Call]) -> str:
    bodies = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{_json(given)}\n"
        "```<｜tool▁call▁end｜>"
        for name, given in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "\n".join(bodies) + "<｜tool▁calls▁end｜>"


def _kimi(calls: list[Call]) -> str:
    bodies = [
        f"<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>{_json(given)}"
        "<|tool_call_end|>"
        for index, (name, given) in enumerate(calls)
    ]
    return f"<|tool_calls_section_begin|>{''.join(bodies)}<|tool_calls_section_end|>"


def _harmony(calls: list[Call]) -> str:
    return "<|start|>".join(
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{_json(given)}"
        "<|call|>"
        if index == 0
        else f"assistant<|channel|>commentary to=functions.{name}<|message|>{_json(given)}<|call|>"
        for index, (name, given) in enumerate(calls)
    )


def _step3(calls: list[Call]) -> str:
    bodies = []
    for name, given in calls:
        parts = [
            f'<steptml:parameter name="{k}">{_text(v)}</steptml:parameter>'
            for k, v in given.items()
        ]
        invoke = f'<steptml:invoke name="{name}">{"".join(parts)}</steptml:invoke>'
        bodies.append(f"<｜tool_call_begin｜>{invoke}<｜tool_call_end｜>")
    return "<｜tool_calls_begin｜>" + "<｜tool_sep｜>".join(bodies) + "<｜tool_calls_end｜>"


RENDERED: dict[str, Renderer] = {
    "hermes": _each(
        lambda n, a: f'<tool_call>\n{{"name": {_json(n)}, "arguments": {a}}}\n</tool_call>'
    ),
    "qwen3-coder": _qwen,
    "seed-oss": _tagged(
        lambda n, body: f"<function={n}>\n{body}</function>\n",
        lambda k, v: f"<parameter={k}>{_text(v)}</parameter>\n",
        "<seed:tool_call>\n",
        "</seed:tool_call>",
    ),
    "minimax-m2": _tagged(
        lambda n, body: f'<invoke name="{n}">\n{body}</invoke>\n',
        lambda k, v: f'<parameter name="{k}">{_text(v)}</parameter>\n',
        "<minimax:tool_call>\n",
        "</minimax:tool_call>",
    ),
    "dsml": _tagged(
        lambda n, body: f'<｜DSML｜invoke name="{n}">\n{body}</｜DSML｜invoke>\n',
        _dsml_parameter,
        "<｜DSML｜function_calls>\n",
        "</｜DSML｜function_calls>",
    ),
    "glimmer": _tagged(
        lambda n, body: f'<atem:invoke name="{n}">\n{body}</atem:invoke>\n',
        lambda k, v: f'<atem:parameter name="{k}">{_text(v)}</atem:parameter>\n',
        "<atem:function_calls>\n",
        "</atem:function_calls>",
    ),
    "minicpm5": _tagged(
        lambda n, body: f'<function name="{n}">{body}</function>',
        lambda k, v: f'<param name="{k}">{_text(v)}</param>',
        "",
        "",
    ),
    "step3": _step3,
    "minimax-m3": _m3,
    "function-tag": _each(lambda n, a: f"<function={n}>{a}</function>"),
    "mistral": _each(lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{a}"),
    "mistral-list": lambda calls: f"[TOOL_CALLS] {_list(calls)}",
    "llama-json": lambda calls: (
        "<|python_tag|>" + "; ".join(_json({"name": n, "parameters": given}) for n, given in calls)
    ),
    "kimi-k2": _kimi,
    "deepseek": _deepseek,
    "granite": lambda calls: f"<|tool_call|> {_list(calls)}",
    "granite-20b": _each(lambda n, a: f'<function_call> {{"name": {_json(n)}, "arguments": {a}}}'),
    "phi4": lambda calls: f"functools{_list(calls)}",
    "command-r": lambda calls: (
        f"<|START_ACTION|>{_list(calls, 'tool_name', 'parameters')}<|END_ACTION|>"
    ),
    "command-r-plus": lambda calls: (
        f"Action: ```json\n{_list(calls, 'tool_name', 'parameters')}\n```"
    ),
    "functionary": _each(lambda n, a: f">>>{n}\n{a}"),
    "internlm": _each(
        lambda n, a: (
            f'<|action_start|><|plugin|>{{"name": {_json(n)}, "parameters": {a}}}<|action_end|>'
        )
    ),
    "nemotron": lambda calls: f"<TOOLCALL>{_list(calls)}</TOOLCALL>",
    "tool-calls": lambda calls: f"<tool_calls>{_list(calls)}</tool_calls>",
    "apertus": lambda calls: (
        f"<|tools_prefix|>{_json([{n: given} for n, given in calls])}<|tools_suffix|>"
    ),
    "gigachat": _each(
        lambda n, a: (
            "<|message_sep|>\n\nfunction call<|role_sep|>\n"
            f'{{"name": {_json(n)}, "arguments": {a}}}'
        )
    ),
    "gigachat-3.1": _each(
        lambda n, a: f'<|function_call|>{{"name": {_json(n)}, "arguments": {a}}}'
    ),
    "inkling": _each(
        lambda n, a: (
            f"<|message_model|>{n}<|content_invoke_tool_json|>"
            f'{{"name": {_json(n)}, "args": {a}}}<|end_message|>'
        )
    ),
    "glm": _pairs(""),
    "longcat": _pairs("longcat_"),
    "longcat-json": _each(
        lambda n, a: (
            f'<longcat_tool_call>{{"name": {_json(n)}, "arguments": {a}}}</longcat_tool_call>'
        )
    ),
    "llama-pythonic": lambda calls: f"<|python_start|>[{', '.join(_python(calls))}]<|python_end|>",
    "python-tag": lambda calls: "<|python_tag|>" + "; ".join(_python(calls)),
    "lfm2": lambda calls: f"<|tool_call_start|>[{', '.join(_python(calls))}]<|tool_call_end|>",
    "lfm2-json": lambda calls: f"<|tool_call_start|>{_list(calls)}<|tool_call_end|>",
    "llama4-json": lambda calls: (
        "<|python_start|>"
        + "; ".join(_json({"name": n, "parameters": g}) for n, g in calls)
        + "<|python_end|>"
    ),
    "olmo3": lambda calls: "<function_calls>\n" + "\n".join(_python(calls)) + "\n</function_calls>",
    "pythonic": lambda calls: f"[{', '.join(_python(calls))}]",
    "gemma4": _gemma("<|tool_call>", "<tool_call|>", '<|"|>'),
    "functiongemma": _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    "fenced-json": lambda calls: f"```json\n{_list(calls)}\n```",
    "json": lambda calls: "; ".join(_json({"name": n, "parameters": g}) for n, g in calls),
    "cline": _cline,
    "harmony": _harmony,
}
"""Form name → how it is written."""

TRIMS = frozenset({"cline"})
"""Forms in which white space around a text value means nothing."""

TEXT_VALUES = frozenset(
    {
        "qwen3-coder",
        "seed-oss",
        "minimax-m2",
        "dsml",
        "glimmer",
        "minicpm5",
        "step3",
        "minimax-m3",
        "glm",
        "longcat",
        "cline",
    }
)
"""Forms whose values are text that the schema types."""

DELIMITERS = {"gemma4": '<|"|>', "functiongemma": "<escape>", "minimax-m3": _M3}
"""What a string in these forms can never hold, since they have no escape for it."""

VALUE_CLOSERS = {
    "qwen3-coder": "</parameter>",
    "seed-oss": "</parameter>",
    "minimax-m2": "</parameter>",
    "dsml": "</｜DSML｜parameter>",
    "glimmer": "</atem:parameter>",
    "minicpm5": "</param>",
    "step3": "</steptml:parameter>",
    "glm": "</arg_value>",
    "longcat": "</longcat_arg_value>",
    "cline": "</body>",
}
"""The tag that closes a value, which a value may hold."""
