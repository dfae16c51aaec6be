"""Which markers count in which part of an answer, out of the registry; built once a choice."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from edge.core.reasoning import ANSWER_TOKENS, ANSWER_WRAPPERS, THINK_TAGS
from edge.core.toolcalls.json_forms import JsonForm
from edge.core.toolcalls.lexicon import Form, Kind, Lexicon, Token
from edge.core.toolcalls.loose_tokens import (
    END_OF_TURN,
    GLANCES,
    ON_OWN_LINE,
    RESULTS,
    STRAY_TAGS,
    UNMARKED,
)
from edge.core.toolcalls.messages import START_MARKERS
from edge.core.toolcalls.registry import CLINE, FORMS, M3_PREFIX, PARTS
from edge.core.toolcalls.tagged_forms import Tagged


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The markers of each part.

    Attributes:
        answer: in the answer's text.
        thinking: in an open reasoning block.
        field: in the provider's reasoning field.
        opening: as the first thing of an answer.
        strays: behind a call, where they belong to nothing.
        tag: the token for ``<NAME>`` of an offered tool; None where that form is not looked for.
        has_parts: whether a bare tool name may start the answer.
        looks: whether calls are looked for at all.
    """

    answer: Lexicon
    thinking: Lexicon
    field: Lexicon
    opening: Lexicon
    strays: Lexicon
    tag: Token | None
    has_parts: bool
    looks: bool


@lru_cache(maxsize=64)
def vocabulary(names: tuple[str, ...], looks: bool) -> Vocabulary:
    """The markers of the forms named (empty: of all), and none of a call unless it ``looks``."""
    forms = [form for form in FORMS if looks and (not names or form.name in names)]
    calls = _call_tokens([*forms, *(RESULTS if looks else ())])
    marked = [token for token in calls if token.text not in UNMARKED]
    closers = _tokens(_all_closers(forms), Kind.CLOSER)
    opens = _tokens((tags.opening for tags in THINK_TAGS if tags.opening), Kind.THINK_OPEN)
    closes = _tokens((tags.closing for tags in THINK_TAGS), Kind.THINK_CLOSE)
    alone = _tokens((tags.closing for tags in THINK_TAGS if tags.alone), Kind.THINK_CLOSE)
    silent = _tokens((*ANSWER_TOKENS, *((M3_PREFIX,) if looks else ())), Kind.SILENT)
    ends = _tokens(END_OF_TURN, Kind.END)
    wraps = _tokens((tag for pair in ANSWER_WRAPPERS for tag in pair), Kind.WRAPPER)
    if PARTS in forms:
        silent.append(Token(">>>all\n", Kind.SILENT, on_own_line=True))
    messages = _tokens(START_MARKERS, Kind.MESSAGES) if not names or "harmony" in names else []
    return Vocabulary(
        answer=Lexicon([*ends, *wraps, *closers, *silent, *opens, *alone, *messages, *calls]),
        thinking=Lexicon([*opens, *marked, *closes]),
        field=Lexicon(marked),
        opening=Lexicon(opens),
        strays=Lexicon([*closers, *_tokens((*END_OF_TURN, *STRAY_TAGS), Kind.SILENT)]),
        tag=Token("<", Kind.CALL, (CLINE,)) if CLINE in forms else None,
        has_parts=PARTS in forms,
        looks=looks,
    )


def _call_tokens(forms: Iterable[Form]) -> list[Token]:
    rows: dict[str, list[Form]] = {}
    for form in forms:
        for opener in form.openers:
            rows.setdefault(opener, []).append(form)
    return [
        Token(
            opener,
            Kind.CALL,
            tuple(sharing),
            closes=tuple(dict.fromkeys(c for form in sharing for c in _pairs(form, opener))),
            on_own_line=opener in ON_OWN_LINE,
            glance=GLANCES.get(opener),
        )
        for opener, sharing in rows.items()
    ]


def _pairs(form: Form, opener: str) -> tuple[str, ...]:
    """The closers that make a pair with an opener, so that a body between them can be broken."""
    if opener in UNMARKED:
        return ()
    if isinstance(form, Tagged):
        return form.closers if opener in form.form.wrappers else ()
    if isinstance(form, JsonForm):
        return () if opener in form.begins or form.needs_offered else form.closers
    return form.closers


def _all_closers(forms: Iterable[Form]) -> list[str]:
    out: list[str] = []
    for form in forms:
        out += form.closers
        if isinstance(form, JsonForm):
            out += form.ends
        if isinstance(form, Tagged) and "{" not in form.form.call_close:
            out.append(form.form.call_close)
    return [text for text in dict.fromkeys(out) if text and text != "```"]


def _tokens(texts: Iterable[str], kind: Kind) -> list[Token]:
    return [Token(text, kind) for text in dict.fromkeys(texts)]
