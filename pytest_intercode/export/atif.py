"""Episodes as trajectories in ATIF 1.7, one file for each, in a folder.

One turn is one step of the agent: its call, and the observation as the call's result. A message to
its user is also a step of the agent, and the reply is a step of the user. Facts that have no place
in ATIF (the reward, its parts, the outcome, times) are in ``extra``. Tests check the files against
all rules of Harbor's RFC 0001, ``rfcs/0001-trajectory-format.md``.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_intercode.core.conversation import Exchange, group_by_turn
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.tokens import full_prompt
from pytest_intercode.core.turn import Turn
from pytest_intercode.core.usage import Usage
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.export.actions import call_of, clean, facts_of, filled, tools_of
from pytest_intercode.export.source import Source

__all__ = ["trajectory", "write"]

_UNKNOWN = "unknown"


def write(source: Source, folder: Path) -> None:
    """Write a file for every try into a folder: ``TASK.json``, ``TASK~2.json`` for a second try.

    Files in the folder with other names are kept.

    Raises:
        ConfigurationError: the folder cannot be written to.
    """
    partial_folder = folder.with_name(f".intercode-{secrets.token_hex(8)}")
    try:
        partial_folder.mkdir(parents=True)
        for brief, record in source:
            name = brief.name if brief.repeat == 1 else f"{brief.name}~{brief.repeat}"
            text = json.dumps(
                trajectory(record, brief.cell), ensure_ascii=False, allow_nan=False, indent=1
            )
            (partial_folder / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        folder.mkdir(exist_ok=True)
        for path in partial_folder.iterdir():
            path.replace(folder / path.name)
    except OSError as error:
        raise ConfigurationError(
            f"--output={folder}: cannot be written: {error.strerror}"
        ) from None
    finally:
        shutil.rmtree(partial_folder, ignore_errors=True)


def trajectory(record: EpisodeRecord, cell: str = "") -> dict[str, Any]:
    """Return a record in the form of ATIF.

    Args:
        record: the record.
        cell: its agent and treatment, if the file has several.
    """
    task = record.task
    name = "/".join(filter(None, (task.suite_name, task.id)))
    dialogue = group_by_turn(record.dialogue, len(record.turns))
    parts = [_message("user", task.query), *_exchange_steps(dialogue.get(0, ()))]
    for number, turn in enumerate(record.turns, 1):
        parts += [_step(record, number, turn), *_exchange_steps(dialogue.get(number, ()))]
    steps = [{"step_id": number, **part} for number, part in enumerate(parts, 1)]
    arguments = dict(record.agent_arguments)
    usage = record.usage
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": clean(".".join(filter(None, (name, str(task.repeat), cell)))),
        "agent": _drop_unknown(
            name=clean(record.agent) or _UNKNOWN,
            version=clean(arguments.get("version", "")) or _UNKNOWN,
            model_name=clean(arguments.get("model")),
            tool_definitions=tools_of(record),
            extra={"arguments": clean(arguments)} if arguments else None,
        ),
        "steps": steps,
        "final_metrics": _drop_unknown(
            total_prompt_tokens=usage.input_tokens if usage else None,
            total_completion_tokens=usage.output_tokens if usage else None,
            total_cached_tokens=usage.cached_tokens or None,
            total_cost_usd=clean(usage.cost),
            total_steps=len(steps),
            extra=_parts_of(usage),
        ),
        "extra": facts_of(record),
    }


def _drop_unknown(**values: object) -> dict[str, Any]:
    """Return an object without the keys whose values are not known."""
    return {name: value for name, value in values.items() if value is not None}


def _message(source: str, text: str) -> dict[str, Any]:
    """Return a step that is only a message."""
    return {"source": source, "message": clean(text)}


def _exchange_steps(exchanges: Sequence[Exchange]) -> Iterator[dict[str, Any]]:
    """Yield the steps of what agent and user said."""
    for exchange in exchanges:
        yield _message("agent", exchange.message)
        if exchange.reply is not None:
            yield _message("user", exchange.reply)


def _step(record: EpisodeRecord, number: int, turn: Turn) -> dict[str, Any]:
    """Return the step of a turn; the number is the turn's, from 1."""
    call = call_of(record.task.env, turn)
    name = f"call_{number}"
    observation = clean(turn.observation)
    results = []
    if call is None:
        results = [{"content": observation}] if observation else []
    elif observation or call.name != "submit":
        results = [{"source_call_id": name, "content": observation}]
    thought = clean(turn.thought) or None
    usage = turn.usage
    # Gold's turns call no model. For other agents that report no usage, this is not known.
    scripted = record.agent == "oracle" and not thought and not usage
    return _drop_unknown(
        source="agent",
        message=clean(turn.action) if call is None else "",
        model_name=clean(record.agent_arguments.get("model")),
        reasoning_content=thought,
        tool_calls=call
        and [
            {"tool_call_id": name, "function_name": call.name, "arguments": clean(call.arguments)}
        ],
        observation={"results": results} if results else None,
        metrics=_drop_unknown(**_metrics(usage), **_tokens(record, turn)) or None,
        llm_call_count=0 if scripted else usage.requests or None,
        extra=_extra(turn) or None,
    )


def _tokens(record: EpisodeRecord, turn: Turn) -> dict[str, list[Any]]:
    """Return the tokens of a turn's last request, from which the turn comes, if it has any."""
    number = max(turn.model_calls, default=-1)
    if not 0 <= number < len(record.model_calls):
        return {}
    call = record.model_calls[number]
    tokens: dict[str, list[Any]] = {
        "prompt_token_ids": list(full_prompt(record.model_calls, number)),
        "completion_token_ids": list(call.completion_ids),
        "logprobs": list(call.logprobs),
    }
    return {name: values for name, values in tokens.items() if values}


def _metrics(usage: Usage) -> dict[str, Any]:
    if not usage:
        return {}
    return _drop_unknown(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens or None,
        cost_usd=clean(usage.cost),
        extra=_parts_of(usage),
    )


def _parts_of(usage: Usage) -> dict[str, int] | None:
    """Return the kinds of tokens for which ATIF has no name."""
    token_counts = {
        "cache_write_tokens": usage.cache_write_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
    }
    return {name: number for name, number in token_counts.items() if number} or None


def _extra(turn: Turn) -> dict[str, Any]:
    extra = filled(
        {
            "reward": turn.reward,
            "reward_parts": dict(turn.parts),
            "seconds": turn.seconds,
            "agent_seconds": turn.agent_seconds,
            "log": turn.log,
        }
    )
    if turn.executed is not None:
        extra["executed"] = turn.executed
    return dict(clean(extra))
