"""How models mark their reasoning in text, and what may be found in a provider's reasoning field.

A block of reasoning stands at the start of the answer: opened and closed, opened and never closed
(a call or the end of the answer ends it), or only closed, because the opening tag was part of the
prompt. Later mentions of the tags are text. A second closing tag is dropped.

Channelled answers (gpt-oss) name their reasoning in message headers: ``toolcalls/messages.py``.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThinkTags:
    """A pair of tags.

    Attributes:
        opening: empty where a model only writes the closing one.
        alone: whether the closing tag ends reasoning that was never opened.
    """

    opening: str
    closing: str
    alone: bool = True


THINK_TAGS: tuple[ThinkTags, ...] = (
    ThinkTags("<think>", "</think>"),  # most models
    ThinkTags("<thinking>", "</thinking>"),  # XML agents
    ThinkTags("<seed:think>", "</seed:think>"),  # Seed-OSS
    ThinkTags("<mm:think>", "</mm:think>"),  # MiniMax M3
    ThinkTags("<longcat_think>", "</longcat_think>"),  # LongCat
    ThinkTags("[THINK]", "[/THINK]"),  # Mistral
    ThinkTags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command-R7B, Command A
    ThinkTags("<|channel>thought\n", "<channel|>"),  # Gemma 4
    ThinkTags("<|content_thinking|>", "<|end_message|>", alone=False),  # Inkling
    ThinkTags("<|message_model|><|content_thinking|>", "<|end_message|>", alone=False),
    ThinkTags("", "[BEGIN FINAL RESPONSE]"),  # Apriel
)
"""Every pair that is known; one line makes another model's."""

ANSWER_WRAPPERS: tuple[tuple[str, str], ...] = (
    ("<answer>", "</answer>"),  # Hunyuan
    ("<response>", "</response>"),  # Granite 3
)
"""Tags around the answer, right behind its reasoning; anywhere else they are text."""

ANSWER_TOKENS: tuple[str, ...] = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "[END FINAL RESPONSE]",
    "<|message_model|><|content_text|>",
    "<|content_text|>",
    "<|end_message|>",
    "<|content_model_end_sampling|>",
)
"""Special tokens around the answer itself: markup, never text."""

CLOSING_WRAPPER: dict[str, str] = dict(ANSWER_WRAPPERS)

CLOSING_OF: dict[str, str] = {tags.opening: tags.closing for tags in THINK_TAGS if tags.opening}
