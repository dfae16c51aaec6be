"""What a person sees of runs: frames in, Rich renderables out; nothing here prints or waits.

:class:`RunText` tells one run as running text: what the client got as it came, and between it, set
off by their own lines, what happened. :class:`Board` tells all runs: a line for each that ended
and for each failed attempt, and a table of those under way.
"""

from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from edge.tail.places import Frame
from edge.tail.shown import line, plain

MAX_ROWS = 20
MAX_LIVE = 10_000

_STYLE = {"success": "green", "cancelled": "yellow", "drained": "yellow"}


class RunText:
    """One run; ``feed`` each frame and print what comes back as it is."""

    def __init__(self) -> None:
        self._mid_line = False
        self._kind = ""
        self._attempt = 0

    def feed(self, frame: Frame) -> Text:
        """The text of a frame, with the line feeds that it needs; often empty."""
        match frame.get("type"):
            case "chunk":
                return self._chunk(frame.get("chunk"))
            case "answer":
                return self._chunk(frame.get("answer"))
            case "held":
                return self._held(frame)
            case "attempt.started":
                return self._line(_attempt_begins(frame))
            case _:
                told = line_of(frame)
                return self._line(told) if told is not None else Text()

    def note(self, text: str) -> Text:
        """Something that no frame says."""
        return self._line(Text(text, "yellow"))

    def _chunk(self, chunk: Any) -> Text:
        """A chunk, a whole answer, or an error in a chunk's place."""
        if not isinstance(chunk, dict):
            return self._line(Text(plain(chunk), "dim")) if chunk else Text()
        error = chunk.get("error")
        if error:
            message = error.get("message", error) if isinstance(error, dict) else error
            return self._line(Text(f"✗ the client was told: {line(message)}", "bold red"))
        told = Text()
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                told += self._choice(choice)
        return told

    def _choice(self, choice: dict[str, Any]) -> Text:
        told = Text()
        index = choice.get("index") or 0
        said = choice.get("delta") or choice.get("message") or {}
        for name in ("reasoning_content", "reasoning", "content"):
            if said.get(name) and isinstance(said[name], str):
                style = "" if name == "content" else "dim italic"
                told += self._flow(said[name], f"{name}{index}", index, style)
        for call in said.get("tool_calls") or ():
            function = call.get("function") or {}
            shown = f"→ {line(function.get('name'))}({plain(function.get('arguments', ''))})"
            told += self._line(Text(shown, "bold cyan"))
        return told

    def _flow(self, text: str, kind: str, index: int, style: str) -> Text:
        told = Text()
        if kind != self._kind:
            if self._mid_line:
                told.append("\n")
            if index:
                told.append(f"[choice {index}] ", "dim")
            self._kind = kind
        told.append(plain(text), style)
        self._mid_line = not text.endswith("\n")
        return told

    def _held(self, frame: Frame) -> Text:
        told = Text()
        for event in frame.get("held") or ():
            if event.get("kind") == "tool_call":
                shown = f"held → {line(event.get('name'))}({plain(event.get('arguments', ''))})"
                told += self._line(Text(f"{shown} as {line(event.get('origin'))}", "dim yellow"))
                if event.get("fault"):
                    told += self._line(Text(f"  {line(event['fault'])}", "red"))
            else:
                told += self._flow(str(event.get("text", "")), "held", 0, "dim yellow")
        return told

    def _line(self, text: Text) -> Text:
        """A line of its own."""
        before = "\n" if self._mid_line else ""
        self._mid_line, self._kind = False, ""
        return Text(before) + text + Text("\n")


@dataclass(slots=True)
class _Row:
    model: str
    key: str
    began_at: float
    attempt: int = 0
    provider: str = ""


class Board:
    """All runs; ``feed`` each frame, print the line that comes back, and show ``table``."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def feed(self, frame: Frame) -> Text | None:
        """The line that stays of a frame, if it leaves one."""
        run_id = str(frame.get("run_id"))
        row = self._rows.get(run_id)
        match frame.get("type"):
            case "run.started":
                if len(self._rows) < MAX_LIVE:
                    self._rows[run_id] = _Row(
                        line(frame.get("model"), 40), line(frame.get("key"), 24), _at(frame)
                    )
                return None
            case "attempt.started":
                if row is not None:
                    row.attempt = int(frame.get("attempt") or 0)
                    row.provider = line(frame.get("provider"), 24)
                return None
            case "run.finished":
                self._rows.pop(run_id, None)
        told = line_of(frame)
        if told is None:
            return None
        head = Text.assemble((line(run_id, 40), "dim"), "  ", (row.model if row else "", "bold"))
        return Text.assemble(head, "  ", told)

    def note(self, text: str) -> Text:
        """Something that no frame says; runs that ended meanwhile would stay for ever."""
        self._rows.clear()
        return Text(text, "yellow")

    def table(self, now: float) -> Table:
        """The runs under way, the newest first; ``now`` is seconds since 1970."""
        count = len(self._rows)
        title = f"{count} run{'' if count == 1 else 's'} under way"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for name in ("run", "model", "key", "provider", "attempt", "age"):
            table.add_column(name, no_wrap=True, header_style="dim")
        for run_id in list(reversed(self._rows))[:MAX_ROWS]:
            row = self._rows[run_id]
            age = f"{max(0.0, now - row.began_at):.1f}s"
            cells = (run_id, row.model, row.key, row.provider, str(row.attempt or "-"), age)
            table.add_row(*map(Text, cells))
        if count > MAX_ROWS:
            table.add_row(Text(f"… and {count - MAX_ROWS} more", "dim"))
        return table


def line_of(frame: Frame) -> Text | None:
    """A frame as one line; None for types that make none."""
    match frame.get("type"):
        case "run.started":
            kind = "streamed" if frame.get("stream") else "whole"
            who = f" for {line(frame['key'])}" if frame.get("key") else ""
            return Text(f"{frame.get('run_id')}  {line(frame.get('model'))}, {kind}{who}", "bold")
        case "attempt.failed":
            return _attempt_failed(frame)
        case "run.finished":
            return _run_ends(frame)
        case "gap":
            return Text(f"… {frame.get('missed')} frames were missed", "yellow")
        case _:
            return None


def _attempt_begins(frame: Frame) -> Text:
    how = ", constrained" if frame.get("constrained") else ""
    told = f"── attempt {frame.get('attempt')}: {line(frame.get('provider'))}"
    return Text(f"{told} {line(frame.get('model'))} ({line(frame.get('path'))}{how})", "dim")


def _attempt_failed(frame: Frame) -> Text:
    why = line(frame.get("category") or frame.get("status"))
    reason = f": {line(frame['reason'])}" if frame.get("reason") else ""
    return Text(f"✗ attempt {frame.get('attempt')} {why}{reason}", "red")


def _run_ends(frame: Frame) -> Text:
    status = line(frame.get("status"))
    attempts = frame.get("attempts") or []
    usage, timings = frame.get("usage") or {}, frame.get("timings") or {}
    told = [f"{len(attempts)} attempt{'' if len(attempts) == 1 else 's'}"]
    if usage:
        about = "" if usage.get("reported") else "about "
        told.append(f"{usage.get('input_tokens')} → {about}{usage.get('output_tokens')} tokens")
    for name, key in (("first token", "first_token_s"), ("held", "held_s"), ("total", "total_s")):
        if timings.get(key):
            told.append(f"{name} {timings[key]:.2f}s")
    error = f" ({line(frame['error_type'])})" if frame.get("error_type") else ""
    mark = "✓" if status == "success" else "■"
    return Text(f"{mark} {status}{error}: {', '.join(told)}", _STYLE.get(status, "bold red"))


def _at(frame: Frame) -> float:
    at = frame.get("at")
    return float(at) if isinstance(at, int | float) else 0.0
