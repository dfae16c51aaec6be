"""Every case through the pure core, in every cut."""

import json
from typing import Any

import pytest

from edge.core.collect import Collector
from edge.core.emit import truthful_finish
from edge.core.normalize import Normalizer
from edge.core.output_policy import OutputPolicy
from edge.core.request_contract import contract_of
from edge.core.schemas import compile_contract
from edge.core.stream_events import StreamEvent
from edge.core.validate import judge
from edge.core.verdict import Invalid, Verdict
from edge.wire.openai_chat import chat_request
from tests.conformance.cases import (
    CASES,
    IDS,
    assert_answer,
    assert_names_the_fault,
    chunks_of,
    request_of,
)

CUTS = {"as given": 0, "by character": 1, "by three": 3, "by seventeen": 17, "whole": 1_000_000}


def verdict_on(case: dict[str, Any], cut: int, *, live: bool) -> Verdict:
    contract = contract_of(chat_request(request_of(case)))
    normalizer = Normalizer(contract, OutputPolicy(), live=live)
    collector = Collector()
    for chunk in chunks_of(case, cut):
        collector.feed(normalizer.feed(chunk))
    last: list[StreamEvent] = normalizer.finish()
    collector.feed(last)
    return judge(collector.output(), compile_contract(contract), OutputPolicy())


@pytest.mark.parametrize("live", [False, True], ids=["held", "live"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_case(case: dict[str, Any], cut: int, live: bool) -> None:
    verdict = verdict_on(case, cut, live=live)

    if case["expect"]["outcome"] == "invalid":
        assert isinstance(verdict, Invalid), verdict
        assert_names_the_fault(case, "; ".join(reason.message for reason in verdict.reasons))
        return
    assert not isinstance(verdict, Invalid), verdict
    (choice,) = verdict.output.choices
    got = {
        "content": choice.content,
        "reasoning": choice.reasoning,
        "calls": [(call.name, json.loads(call.arguments)) for call in choice.calls],
        "finish": truthful_finish(choice.finish, has_calls=bool(choice.calls)),
    }
    assert_answer(case, got, live=live)
