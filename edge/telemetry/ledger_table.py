"""A report of the ledger as a table in a terminal: the figures that a person looks at first.

CSV and JSON have all of them. Large numbers are shortened (``1.2M``), and the table is made to fit
into 80 columns; where it does not, it is as wide as it is.
"""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from edge.telemetry.ledger_report import Report, Value

HEADINGS = {
    "runs": "runs",
    "attempts": "tries",
    "success": "ok",
    "failed": "fails",
    "cancelled": "left",
    "repaired": "fixed",
    "input_tokens": "in",
    "output_tokens": "out",
    "wasted_tokens": "waste",
    "first_token_p50_s": "first",
    "total_p95_s": "p95",
}
"""The figures shown, and the short words above them."""

_NOTE = (
    "tries: attempts; left: the client left; in, out, waste: tokens; first: to the first token,"
    " median; p95: to the end, in 95 of 100."
)
_WIDEST = 1_000


def show(found: Report, *, groups: int, console: Console | None = None) -> None:
    """Print a report; its first ``groups`` columns are what it is grouped by."""
    out = console or Console()
    if not found.rows:
        out.print("The ledger holds no attempts of that time.")
        return
    names = [*found.columns[:groups], *HEADINGS]
    places = [found.columns.index(name) for name in names]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        justify = "left" if place < groups else "right"
        table.add_column(HEADINGS.get(name, name), justify=justify, no_wrap=True)  # type: ignore[arg-type]  # a literal of two
    for row in found.rows:
        # No markup: a client's word for a model is text.
        table.add_row(*(Text(shown(row[place], names[at])) for at, place in enumerate(places)))
    options = out.options.update(max_width=_WIDEST)
    out.width = max(out.width, Measurement.get(out, options, table).maximum)
    out.print(table)
    out.print(_NOTE, style="dim")


def shown(value: Value, name: str) -> str:
    """A value as a person reads it; ``name`` is its column's."""
    if value is None or value == "":
        return "-"
    if name.endswith("_s"):
        return f"{value:.2f}s"
    if not isinstance(value, int):
        return str(value)
    if value < 10_000:
        return str(value)
    if value < 1_000_000:
        return f"{value / 1e3:.0f}k"
    return f"{value / 1e6:.1f}M" if value < 1e9 else f"{value / 1e9:.1f}G"
