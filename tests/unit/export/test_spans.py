"""Records as spans: whatever was recorded, what is sent is whole, and has no text of anybody's."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from pytest_intercode.export.spans import Span, spans_of
from pytest_intercode.results.format import from_row
from tests.unit.export.test_export import KINDS, row


def below(span: Span) -> Iterator[Span]:
    """Yield a span and all below it."""
    yield span
    for child in span.children:
        yield from below(child)


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_record_has_its_spans(kind: str, content: bool) -> None:
    record = from_row(KINDS[kind])
    root = spans_of(record, content=content)
    spans = list(below(root))
    turns = [span for span in spans if span.name.startswith("turn ")]
    assert len(turns) == len(record.turns)
    assert root.attributes["intercode.outcome"] == record.outcome
    assert any(span.name == "verifier" for span in spans) == record.graded
    for span in spans:
        assert math.isfinite(span.start)
        assert math.isfinite(span.end)
        for attributes in (span.attributes, *(event.attributes for event in span.events)):
            for value in attributes.values():
                assert isinstance(value, (str, int, float, list))
                assert not isinstance(value, float) or math.isfinite(value)
                str(value).encode()
    whole = repr(spans)
    for turn in record.turns:
        for text in (turn.action, turn.observation, turn.thought):
            assert content or len(text) < 12 or text not in whole
    assert content == ("intercode.task.query" in root.attributes)


def test_tokens_of_no_turn_are_in_a_span_of_the_agents() -> None:
    """Its requests for titles, and a last answer, are spent as well."""
    made = row(usage={"requests": 3, "input_tokens": 100, "output_tokens": 10, "cost": 0.5})
    used = {"requests": 1, "input_tokens": 30, "output_tokens": 2, "cost": 0.1}
    count = len(made["turn_history"]["actions"])
    made["turn_usage"] = [used] + [{"requests": 0, "input_tokens": 0, "output_tokens": 0}] * (
        count - 1
    )
    root = spans_of(from_row(made))
    [agent] = [span for span in root.children if span.name.startswith("invoke_agent")]
    chats = [span for span in below(agent) if span.kind == "client"]
    assert [span.attributes["gen_ai.usage.input_tokens"] for span in chats] == [30, 70]
    assert [span.attributes["intercode.requests"] for span in chats] == [1, 2]
    assert agent.attributes["gen_ai.usage.input_tokens"] == 100
    assert agent.attributes["intercode.cost"] == 0.5
