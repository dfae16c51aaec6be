"""``edge replay``: recorded answers, read and judged again before a person's eyes."""

from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console
from rich.text import Text

from edge.core.recording import NoRecording, RecordedRun, read_recording
from edge.core.replay_run import Decision, replay_run
from edge.errors import EdgeError
from edge.tail.shown import plain

_STYLE = {
    "run": "bold",
    "attempt": "bold",
    "then": "dim",
    "missing": "yellow",
    "held": "yellow",
    "released": "dim",
    "call": "cyan",
    "repair": "yellow",
    "valid": "green",
    "invalid": "red",
    "error": "red",
    "retry": "bold",
}


def replay_or_tell(
    file: Path, *, request: Path | None, output: str, as_json: bool, run_id: str = ""
) -> int:
    """Print every decision on the runs in ``file``, or on one; returns the exit status.

    It is 0 where every run's last answer is accepted, 2 where one is not, 1 where nothing could
    be replayed, which is told on stderr.
    """
    accepted = True
    try:
        body = orjson.loads(request.read_bytes()) if request else None
        for run in _chosen(read_recording(file.read_bytes()), run_id):
            last: Decision | None = None
            for last in replay_run(run, request=body, output=output):
                _print(last, as_json=as_json)
            accepted = accepted and last is not None and last.details.get("decision") == "accept"
    except (OSError, orjson.JSONDecodeError, NoRecording, EdgeError) as error:
        click.echo(f"edge: {file}: {plain(error)}", err=True)
        return 1
    return 0 if accepted else 2


def _chosen(runs: list[RecordedRun], run_id: str) -> list[RecordedRun]:
    chosen = [run for run in runs if run_id in ("", run.name)]
    if not chosen:
        raise NoRecording(f"there is no run {run_id!r} in it")
    return chosen


def line_of(decision: Decision) -> Text:
    """A decision as one line, indented by what it belongs to."""
    indent = {"run": "", "attempt": "  "}.get(decision.kind, "    ")
    head = "" if decision.kind in ("run", "attempt") else f"{decision.kind:<9}"
    message = plain(decision.message).replace("\n", "\\n")
    return Text.assemble(indent, (head, "dim"), (message, _STYLE.get(decision.kind, "")))


def _print(decision: Decision, *, as_json: bool) -> None:
    if as_json:
        told: dict[str, Any] = {"kind": decision.kind, "message": decision.message}
        click.echo(orjson.dumps({**told, **decision.details}).decode())
    else:
        Console(highlight=False).print(line_of(decision), soft_wrap=True)
