"""Tokens around calls that are no calls: made-up results, ends of turns, and how openers count."""

import re

from edge.core.toolcalls.lexicon import Form
from edge.core.toolcalls.results import ResultForm

RESULTS: tuple[Form, ...] = (
    ResultForm("<tool_response>", "</tool_response>"),
    ResultForm("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
    ResultForm("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    ResultForm("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
    ResultForm("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"),
    ResultForm("<function_response>", "</function_response>"),
    ResultForm("<function_results>", "</function_results>"),
    ResultForm("<start_function_response>", "<end_function_response>"),
    ResultForm("<|tool_response>", "<tool_response|>"),
)
"""What a model makes up behind its own call, as if the tool had answered."""

ON_OWN_LINE = frozenset({">>>", "Action:", "call:", "```"})
"""Openers that only count as the first thing on their line."""

GLANCES: dict[str, re.Pattern[bytes]] = {
    "{": re.compile(rb"\{[ \t\r\n]{0,512}(?:[\"']|\Z)"),
    "[": re.compile(rb"\[[ \t\r\n]{0,512}(?:[A-Za-z_{]|\Z)"),
}
"""What plain brackets have to look like before a block is tried; code is full of them."""

UNMARKED = frozenset({"{", "[", "```", "call:", ">>>", "Action:", "functools["})
"""Openers that are ordinary text as well; inside reasoning they are not looked for."""

END_OF_TURN: tuple[str, ...] = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eom|>",
    "<|eot|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_role|>",
    "<|END_OF_TURN_TOKEN|>",
    "<end_of_turn>",
    "<turn|>",
    "<｜end▁of▁sentence｜>",
    "<|end▁of▁sentence|>",
    "<|end_of_sentence|>",
    "<|content_model_end_sampling|>",
    "<SPECIAL_12>",
    "<SPECIAL_11>",
)
"""Special tokens that end a turn: behind a call, and at the very end, they are no text."""

STRAY_TAGS: tuple[str, ...] = ("</s>",)
"""The same where they could be meant as text, unless they stand behind a call."""
