"""The ledger's report in a terminal."""

import io

import pytest
from rich.console import Console

from edge.telemetry.ledger_report import FIGURES, Report, Value
from edge.telemetry.ledger_table import HEADINGS, show, shown


def printed(found: Report, *, width: int = 80) -> str:
    out = io.StringIO()
    show(found, groups=1, console=Console(file=out, width=width))
    return out.getvalue()


def of(model: str, **figures: Value) -> Report:
    values = [figures.get(name, 1_234) for name in FIGURES]
    return Report(("model", *FIGURES), ((model, *values),))


def test_a_usual_table_fits_into_80_columns() -> None:
    lines = printed(of("coder", first_token_p50_s=0.5, total_p95_s=12.345)).splitlines()

    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["model", *HEADINGS.values()]
    assert lines[3].split() == ["coder", *["1234"] * 9, "0.50s", "12.35s"]


def test_nothing_is_cut_off_where_it_does_not_fit() -> None:
    name = "a-very-long-name/of-a-model"

    assert name in printed(of(name), width=30)


def test_a_name_with_brackets_is_shown_as_it_is() -> None:
    assert "[bold]coder[/bold]" in printed(of("[bold]coder[/bold]"))


def test_no_attempts_are_told_in_words() -> None:
    assert "no attempts" in printed(Report(("model", *FIGURES), ()))


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        (None, "total_p95_s", "-"),
        ("", "key", "-"),
        (9_999, "runs", "9999"),
        (12_345, "input_tokens", "12k"),
        (1_234_567, "input_tokens", "1.2M"),
        (1_234_567_890, "input_tokens", "1.2G"),
        (0.123, "first_token_p50_s", "0.12s"),
    ],
)
def test_values_are_shortened(value: Value, name: str, text: str) -> None:
    assert shown(value, name) == text
