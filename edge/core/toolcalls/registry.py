"""Every form in which models write tool calls, one row each.

A new model's form is a row here: the markers, what stands between them, and the kind of payload.
Rows that share a marker are tried in the order of the table.
"""

from dataclasses import dataclass
from functools import lru_cache

from edge.core.reasoning import ANSWER_WRAPPERS, THINK_TAGS
from edge.core.toolcalls.json_forms import JsonForm
from edge.core.toolcalls.lexicon import Form, Kind, Lexicon, Token
from edge.core.toolcalls.shapes import BLANKS, NAME, SPACE, Shape, group, maybe

TOOL = group("name", NAME)

HERMES = JsonForm("hermes", ("<tool_call>",), closers=("</tool_call>",), joined=",;")
PARTS = JsonForm(
    "functionary",
    (">>>",),
    head=Shape(TOOL, BLANKS, maybe("\r"), "\n", SPACE),
    needs_offered=True,
)

FORMS: tuple[Form, ...] = (HERMES, PARTS)
END_OF_TURN: tuple[str, ...] = ("<|im_end|>",)


FORM_NAMES: tuple[str, ...] = tuple(form.name for form in FORMS)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The markers that count in each part of an answer."""

    answer: Lexicon
    thinking: Lexicon
    field: Lexicon
    opening: Lexicon
    strays: Lexicon
    tag: Token | None
    has_parts: bool


@lru_cache(maxsize=64)
def vocabulary(names: tuple[str, ...], looks: bool) -> Vocabulary:
    """The markers of the forms named (empty: of all), and none of a call unless it ``looks``."""
    forms = [form for form in FORMS if looks and (not names or form.name in names)]
    by_opener: dict[str, list[Form]] = {}
    for form in forms:
        for opener in form.openers:
            by_opener.setdefault(opener, []).append(form)
    calls = [
        Token(opener, Kind.CALL, tuple(rows), tuple(c for r in rows for c in r.closers))
        for opener, rows in by_opener.items()
    ]
    closers = {c for f in forms for c in f.closers}
    opens = [Token(t.opening, Kind.THINK_OPEN) for t in THINK_TAGS if t.opening]
    closes = [Token(t.closing, Kind.THINK_CLOSE) for t in THINK_TAGS]
    silent = [Token(t, Kind.SILENT) for t in ANSWER_WRAPPERS]
    owed = [Token(t, Kind.CLOSER) for t in closers]
    return Vocabulary(
        answer=Lexicon([*owed, *calls, *opens, *closes, *silent]),
        thinking=Lexicon([*calls, *opens, *closes]),
        field=Lexicon(calls),
        opening=Lexicon(opens),
        strays=Lexicon([*owed, *(Token(t, Kind.SILENT) for t in END_OF_TURN)]),
        tag=None,
        has_parts=PARTS in forms,
    )
