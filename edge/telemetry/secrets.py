"""Takes secrets out of log lines.

What is configured as a secret is looked for in every form in which a line may show it; besides,
whatever looks like credentials of a request is taken out, for there are secrets that we are never
told: wrong keys, and those of providers behind providers.
"""

import json
import re
from collections.abc import Iterable

MASK = "[redacted]"

MIN_LENGTH = 4
"""Shorter values stand in every second line by chance, and keep nothing secret."""

_CREDENTIALS = re.compile(
    r"""(?xi)
    (?P<name>
        \b (?: proxy-authorization | authorization | x-api-key | api[_-]?key )
        \\? ["']? \s* [:=,] \s* (?: b (?= ["'\\] ) )? \\? ["']?
    )
    (?: \w+ \s+ )? [^\s"'\\,;)}\]]{4,}       # with its scheme, if it has one
    | (?P<scheme> \b bearer \s+ ) [\w.~+/=-]{6,}
    | \b sk-[\w-]{8,}
    """
)
_HINTS = ("earer", "uthorization", "pi-key", "pi_key", "pikey", "sk-", "EARER", "ATION", "KEY")
"""One of them is in whatever the pattern finds, as far as it is written in the usual ways."""


class SecretMask:
    """Replaces secrets in text by ``[redacted]``."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._longest_first: tuple[str, ...] = ()
        self.add(secrets)

    def add(self, secrets: Iterable[str]) -> None:
        """Hide these too, from now on."""
        for secret in secrets:
            if len(secret) >= MIN_LENGTH:
                self._forms |= {secret, repr(secret)[1:-1], json.dumps(secret)[1:-1]}
                self._forms.add(json.dumps(secret, ensure_ascii=False)[1:-1])
        # A secret may be the beginning of another one.
        self._longest_first = tuple(sorted(self._forms, key=len, reverse=True))

    def hide(self, text: str) -> str:
        """The same text without secrets."""
        for secret in self._longest_first:
            if secret in text:
                text = text.replace(secret, MASK)
        if any(hint in text for hint in _HINTS):
            text = _CREDENTIALS.sub(_masked, text)
        return text


def _masked(found: re.Match[str]) -> str:
    return f"{found['name'] or found['scheme'] or ''}{MASK}"
