"""Episodes as chat messages with their reward, a line of JSON for each, for trainers.

The form is that of TRL's conversational datasets and of OpenAI's fine-tuning files: ``messages``
with ``role`` and ``content``. The task's text and observations are the user's messages, and actions
are the assistant's, so that roles alternate as chat templates require. Other keys are further
columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_intercode.core.conversation import Exchange, group_by_turn
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.export.actions import clean
from pytest_intercode.export.source import Source
from pytest_intercode.system.files import writing

__all__ = ["write"]


def write(source: Source, output: Path) -> None:
    """Write every try of a results file, one after the other.

    Raises:
        ConfigurationError: the output cannot be written.
    """
    with writing(output, option="--output") as file:
        for _, record in source:
            line = json.dumps(clean(_example(record)), ensure_ascii=True, allow_nan=False)
            file.write(line.encode("ascii") + b"\n")


def _example(record: EpisodeRecord) -> dict[str, Any]:
    task = record.task
    return {
        "messages": _messages(record),
        "reward": record.reward,
        "outcome": record.outcome,
        "task": task.id,
        "env": task.env,
        "suite": task.suite_name,
        "repeat": task.repeat,
        "agent": record.agent,
        "model": record.agent_arguments.get("model", ""),
        **({"treatment": task.treatment} if task.treatment else {}),
    }


def _messages(record: EpisodeRecord) -> list[dict[str, str]]:
    dialogue = group_by_turn(record.dialogue, len(record.turns))
    messages = [{"role": "user", "content": record.task.query}, *_exchanges(dialogue.get(0, ()))]
    for number, turn in enumerate(record.turns, 1):
        message = {"role": "assistant", "content": turn.action}
        if turn.thought:
            message["reasoning_content"] = turn.thought
        messages.append(message)
        if turn.observation or number < len(record.turns) or number in dialogue:
            messages.append({"role": "user", "content": turn.observation})
        messages += _exchanges(dialogue.get(number, ()))
    if record.dialogue and not messages[-1]["content"]:  # the last message was not answered
        messages.pop()
    return messages


def _exchanges(exchanges: Sequence[Exchange]) -> Iterator[dict[str, str]]:
    """Yield the messages of what agent and user said; a missing answer is an empty message."""
    for exchange in exchanges:
        yield {"role": "assistant", "content": exchange.message}
        yield {"role": "user", "content": exchange.reply or ""}
