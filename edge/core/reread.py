"""Reads a collected text for calls after the fact, for answers that were taken in as plain text."""

from dataclasses import replace

from edge.core.collect import Collector
from edge.core.collected import CollectedChoice, CollectedOutput
from edge.core.contract import Contract
from edge.core.output_policy import OutputPolicy
from edge.core.toolcalls.reader import TextReader


def read_calls(
    output: CollectedOutput, contract: Contract, policy: OutputPolicy
) -> CollectedOutput:
    """The answer with the calls read that its text holds; choices with calls stay as they are."""

    def read(choice: CollectedChoice) -> CollectedChoice:
        return choice if choice.calls else _read(choice, contract, policy)

    return replace(output, choices=tuple(map(read, output.choices)))


def _read(choice: CollectedChoice, contract: Contract, policy: OutputPolicy) -> CollectedChoice:
    reader = TextReader(
        contract,
        recover=policy.recover,
        repair=policy.repair,
        forms=policy.forms,
        max_held_bytes=policy.max_held_bytes,
        choice=choice.index,
        live=False,
    )
    collector = Collector()
    collector.feed(reader.feed(choice.content))
    collector.feed(reader.finish(truncated=choice.finish == "length"))
    found = collector.output().choices
    if not found:
        return choice
    (read,) = found
    return replace(
        choice,
        content=read.content,
        reasoning=choice.reasoning + read.reasoning,
        calls=read.calls,
    )
