"""What is taken out of log lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.telemetry.secrets import MASK, MIN_LENGTH, SecretMask


def test_a_configured_secret_is_hidden_wherever_it_stands() -> None:
    mask = SecretMask(["hunter2"])

    assert mask.hide('{"event": "hunter2hunter2 and hunter2"}') == (
        f'{{"event": "{MASK}{MASK} and {MASK}"}}'
    )


def test_secrets_can_be_added_and_stay() -> None:
    mask = SecretMask(["first-secret"])
    mask.add(["second-secret"])
    mask.add([])

    assert mask.hide("first-secret, second-secret") == f"{MASK}, {MASK}"


def test_one_that_begins_another_does_not_leave_its_rest() -> None:
    assert SecretMask(["secret", "secret-more"]).hide("a secret-more b") == f"a {MASK} b"


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8))
def test_no_form_in_which_a_line_shows_a_secret_keeps_it(secret: str) -> None:
    mask = SecretMask([secret])
    for line in (secret, json.dumps({"told": secret}), repr([secret]), repr(secret.encode())):
        assert secret not in mask.hide(line)
        assert json.dumps(secret)[1:-1] not in mask.hide(line)


def test_values_too_short_to_be_secret_do_not_spoil_every_line() -> None:
    mask = SecretMask(["", "a", "x" * (MIN_LENGTH - 1)])

    assert mask.hide("a line with xxx") == "a line with xxx"


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("Authorization: Bearer abc.DEF-123", f"Authorization: {MASK}"),
        ("sent Bearer abcdef123 to it", f"sent Bearer {MASK} to it"),
        ('{"authorization": "Bearer abcdef"}', f'{{"authorization": "{MASK}"}}'),
        (r'{"a": "{\"authorization\": \"token abcdef\"}"}', None),
        ("(b'authorization', b'Bearer abcdef')", None),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz", f"Proxy-Authorization: {MASK}"),
        ("x-api-key: abcdef", f"x-api-key: {MASK}"),
        ("api_key='abcdef'", f"api_key='{MASK}'"),
        ("incorrect key sk-proj-abcdef12345 given", f"incorrect key {MASK} given"),
        ("AUTHORIZATION: BEARER abcdef", f"AUTHORIZATION: {MASK}"),
    ],
)
def test_what_looks_like_credentials_is_hidden_too(line: str, hidden: str | None) -> None:
    told = SecretMask().hide(line)

    assert told == hidden if hidden else MASK in told
    assert "abcdef" not in told
    assert "dXNlcjpwYXNz" not in told


@pytest.mark.parametrize(
    "line",
    [
        "the key team-a may not see it",
        "a basic question of task-7",
        '{"event": "run ended", "key": "team-a", "tokens": 12}',
        "the bearer of news",
        "the environment variable GPU1_KEY is not set",
    ],
)
def test_words_are_left_alone(line: str) -> None:
    assert SecretMask().hide(line) == line
