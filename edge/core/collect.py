"""Folds stream events to a whole answer."""

from dataclasses import dataclass, field
from typing import Any

from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.echoes import drop_echoes
from edge.core.stream_events import (
    Extras,
    Finish,
    FinishReason,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    ToolCallDelta,
    UsageReport,
)


@dataclass(slots=True)
class _Choice:
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    finish: FinishReason | None = None
    delta: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)


class Collector:
    """``feed`` events in order, then ask for ``output``.

    Attributes:
        chars: characters of text and arguments so far; the run compares it with its bound.
        beside: characters, about, of what goes with the text (log probabilities, annotations).
    """

    def __init__(self) -> None:
        self._choices: dict[int, _Choice] = {}
        self._usage: dict[str, Any] | None = None
        self._top: dict[str, Any] = {}
        self.chars = 0
        self.beside = 0

    def feed(self, events: list[StreamEvent]) -> None:
        """Take the events of one read."""
        for event in events:
            kind = type(event)
            if kind is TextDelta:
                self._choice(event.choice).text.append(event.text)  # type: ignore[union-attr]
                self.chars += len(event.text)  # type: ignore[union-attr]
            elif kind is ReasoningDelta:
                self._choice(event.choice).reasoning.append(event.text)  # type: ignore[union-attr]
                self.chars += len(event.text)  # type: ignore[union-attr]
            else:
                self._feed_rare(event)

    def feed_texts(self, texts: list[str]) -> None:
        """Take pieces of text of choice 0."""
        self._choice(0).text.extend(texts)
        for text in texts:
            self.chars += len(text)

    def output(self) -> CollectedOutput:
        """The answer so far."""
        choices = tuple(
            CollectedChoice(
                index=index,
                content="".join(choice.text),
                reasoning="".join(choice.reasoning),
                calls=drop_echoes(tuple(choice.calls)),
                finish=choice.finish,
                delta_extras=choice.delta,
                beside_extras=choice.beside,
            )
            for index, choice in sorted(self._choices.items())
        )
        return CollectedOutput(choices=choices, usage=self._usage, top_extras=self._top)

    def _feed_rare(self, event: StreamEvent) -> None:
        match event:
            case ToolCallDelta():
                self._choice(event.choice).calls.append(event)
                self.chars += len(event.arguments)
            case Finish():
                self._choice(event.choice).finish = event.reason
            case UsageReport():
                self._usage = event.usage
            case Extras():
                self._top.update(event.top)
                if event.delta or event.beside:
                    choice = self._choice(event.choice)
                    self.beside += len(str(event.delta)) + len(str(event.beside))
                    merge(choice.delta, event.delta)
                    merge(choice.beside, event.beside)
            case _:  # pragma: no cover - the two text kinds are taken above
                pass

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
        return choice


def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    """Fold one chunk's extras into what came before, as a client folds chunks.

    Strings and lists grow, objects merge, anything else replaces.
    """
    for name, value in more.items():
        before = into.get(name)
        if isinstance(before, str) and isinstance(value, str):
            into[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            before.extend(value)
        elif isinstance(before, dict) and isinstance(value, dict):
            merge(before, value)
        else:
            into[name] = _copy(value)


def _copy(value: Any) -> Any:
    """A copy of the containers, so that folding never changes a chunk that others hold."""
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value
