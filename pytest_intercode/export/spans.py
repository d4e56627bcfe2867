"""A record as spans of OpenTelemetry: the rollout, its agent, its turns, their calls, the verifier.

Names are those of OpenTelemetry's semantic conventions for generative AI and for tests, which are
in development (https://github.com/open-telemetry/semantic-conventions-genai, read at 1.41 of its
text in the main repository). Names that these do not have begin with ``intercode.``. Spans contain
no text of a task, an agent or a model, unless contents are requested. Pure: times are the record's,
in seconds since the epoch, and nothing of OpenTelemetry is imported.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, TypeAlias

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.text import clipped
from pytest_intercode.core.tokens import ModelCall
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.export.actions import call_of, clean

__all__ = ["Span", "SpanEvent", "spans_of"]

Value: TypeAlias = str | int | float | bool | Sequence[str]

_MAX_CONTENT = 16_384  # characters of a text in an attribute
_SANDBOX_PHASES = ("build", "start")
_VERIFIER_PHASES = ("carry", "tests", "gold")
_STATUSES = {True: "pass", False: "fail"}


@dataclass(frozen=True)
class SpanEvent:
    """Something that happened in a span: its name, its time, and its attributes."""

    name: str
    time: float
    attributes: Mapping[str, Value]


@dataclass
class Span:
    """A span, with those below it.

    Attributes:
        name: its name.
        start: when it began, in seconds since the epoch.
        end: when it ended.
        attributes: its attributes, by their names.
        kind: ``client`` for a request to a model, ``internal`` for everything else.
        failed: whether it ended in an error.
        events: what happened in it.
        children: the spans below it.
    """

    name: str
    start: float
    end: float
    attributes: dict[str, Value]
    kind: Literal["client", "internal"] = "internal"
    failed: bool = False
    events: list[SpanEvent] = field(default_factory=list)
    children: list[Span] = field(default_factory=list)


def spans_of(record: EpisodeRecord, *, content: bool = False) -> Span:
    """Return the span of a rollout, with all spans below it.

    Args:
        record: the record.
        content: include the task's text, actions and observations, and why it failed.
    """
    began, seconds = record.phases.get("agent", (0.0, record.seconds))
    agent_start = began or time.time() - seconds
    starts = [start for start, _ in record.phases.values()]
    ends = [start + duration for start, duration in record.phases.values()]
    root = Span(
        str(clean(f"rollout {record.task.id}")),
        min([agent_start, *starts]),
        max([agent_start + seconds, *ends]),
        _of_rollout(record),
        failed=not record.graded or record.outcome == "agent-error",
    )
    if root.failed:
        root.attributes["error.type"] = record.outcome
    if content:
        root.attributes |= {"intercode.task.query": _text(record.task.query)}
        root.attributes |= {"intercode.reason": _text(record.reason)} if record.reason else {}
    phases = record.phases.items()
    for name, (start, duration) in phases:
        if name in _SANDBOX_PHASES:
            root.children.append(Span(f"sandbox {name}", start, start + duration, {}))
    if "agent" in record.phases or record.turns:
        root.children.append(_agent_span(record, agent_start, agent_start + seconds, content))
    verifiers = [(name, *times) for name, times in phases if name in _VERIFIER_PHASES]
    if verifiers or record.graded:
        root.children.append(_verifier_span(record, verifiers, root.end))
    return root


def _of_rollout(record: EpisodeRecord) -> dict[str, Value]:
    task = record.task
    return _filled(
        {
            "test.case.name": record.node_id or task.id,
            "test.case.result.status": _STATUSES[record.succeeded],
            "test.suite.name": task.suite_name,
            "intercode.run.name": record.run_name,
            "intercode.task.id": task.id,
            "intercode.task.environment": task.env,
            "intercode.task.repeat": task.repeat,
            "intercode.profile": record.profile,
            "intercode.sandbox": record.sandbox,
            "intercode.host": record.host,
            "intercode.outcome": record.outcome,
        }
    ) | {**_number("intercode.reward", record.reward), "intercode.turns": len(record.turns)}


def _agent_span(record: EpisodeRecord, start: float, end: float, content: bool) -> Span:
    name, model = record.agent, record.agent_arguments.get("model", "")
    attributes = _filled(
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": name,
            "gen_ai.agent.version": record.agent_arguments.get("version", ""),
            "gen_ai.request.model": model,
        }
    )
    span = Span(
        str(clean(f"invoke_agent {name}".strip())),
        start,
        end,
        attributes | _usage(record.usage),
        failed=record.outcome == "agent-error",
    )
    if span.failed:
        span.attributes["error.type"] = record.outcome
    instant, remaining, numbers = start, record.usage, set(range(len(record.model_calls)))
    for number, turn in enumerate(record.turns, 1):
        # For an agent in the sandbox, turns are read from its requests, so they have no times.
        child = _turn_span(record, number, turn, min(instant, end), content)
        span.children.append(child)
        instant = child.end
        remaining = remaining.without(turn.usage)
        numbers -= set(turn.model_calls)
    # Requests that led to no turn: titles, summaries, and a last answer.
    rest = [record.model_calls[number] for number in sorted(numbers)]
    span.children += _model_spans(record, rest, remaining, min(instant, end), end)
    return span


def _turn_span(record: EpisodeRecord, number: int, turn: Turn, start: float, content: bool) -> Span:
    tool_start = start + turn.agent_seconds
    end = tool_start + turn.seconds
    span = Span(f"turn {number}", start, end, {"intercode.turn.number": number})
    calls = [
        record.model_calls[index] for index in turn.model_calls if index < len(record.model_calls)
    ]
    span.children += _model_spans(record, calls, turn.usage, start, tool_start)
    call = call_of(record.task.env, turn)
    if call is not None:
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": clean(call.name),
            "gen_ai.tool.type": "function",
        }
        if turn.status is not None:
            attributes["process.exit.code"] = turn.status
        if content:
            attributes["gen_ai.tool.call.arguments"] = _text(turn.action)
            attributes["gen_ai.tool.call.result"] = _text(turn.observation)
        span.children.append(
            Span(str(clean(f"execute_tool {call.name}")), tool_start, end, attributes)
        )
    return span


def _model_spans(
    record: EpisodeRecord, calls: Sequence[ModelCall], usage: Usage, start: float, end: float
) -> Iterator[Span]:
    """Yield a span for each request whose tokens were kept, or else one for the whole turn."""
    model = record.agent_arguments.get("model", "")
    for call in calls:
        attributes = _filled({"gen_ai.response.model": call.model})
        if call.finish_reason:
            attributes["gen_ai.response.finish_reasons"] = [call.finish_reason]
        tokens = Usage(
            requests=1,
            input_tokens=call.kept_ids + len(call.prompt_ids),
            output_tokens=len(call.completion_ids),
        )
        yield _model_span(call.model, attributes | _usage(tokens), start, end, "openai")
    if usage.tokens and not calls:
        yield _model_span(model, _usage(usage), start, end)


def _model_span(
    model: str, attributes: Mapping[str, Value], start: float, end: float, provider: str = ""
) -> Span:
    request = _filled(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
        }
    )
    return Span(str(clean(f"chat {model}".strip())), start, end, request | {**attributes}, "client")


def _usage(usage: Usage) -> dict[str, Value]:
    if not usage.tokens:
        return {}
    numbers: dict[str, Value] = {
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "intercode.requests": usage.requests,
        "intercode.cost": usage.cost or 0.0,
    }
    return {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        **_filled(numbers),
    }


def _verifier_span(
    record: EpisodeRecord, phases: Sequence[tuple[str, float, float]], end: float
) -> Span:
    start = min((start for _, start, _ in phases), default=end)
    attributes = _filled({"intercode.reward_function": record.reward_function})
    span = Span("verifier", start, end, attributes)
    span.children += [
        Span(f"verifier {name}", began, began + seconds, {}) for name, began, seconds in phases
    ]
    scores = chain([("reward", record.reward)], record.parts.items()) if record.graded else ()
    for name, value in scores:
        score: dict[str, Value] = {
            "gen_ai.evaluation.name": clean(name),
            **_number("gen_ai.evaluation.score.value", value),
        }
        if name == "reward":
            score["gen_ai.evaluation.score.label"] = record.outcome
        span.events.append(SpanEvent("gen_ai.evaluation.result", end, score))
    return span


def _filled(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the non-empty values, with texts that can be sent."""
    return {name: clean(value) for name, value in values.items() if value}


def _number(name: str, value: float) -> dict[str, Value]:
    """Return an attribute with a number; none if JSON does not have the number."""
    return {name: float(value)} if math.isfinite(value) else {}


def _text(text: str) -> str:
    return str(clean(clipped(text, _MAX_CONTENT)))
