"""Turns a misspelt word into a hint: the known word that was probably meant."""

import difflib
import json
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` for the nearest known word, or nothing where none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def shown(value: object) -> str:
    """A value as a message may show it: on one line, at most 60 characters, texts in quotes."""
    plain = isinstance(value, str | bool)
    text = json.dumps(value, ensure_ascii=False) if plain else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
