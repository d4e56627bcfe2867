"""What the formats have in common: actions as tool calls, facts, and texts that suit JSON."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.turn import Turn
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.system.nesting import is_too_deep

__all__ = ["Call", "answer_of", "call_of", "clean", "facts_of", "filled", "tools_of"]

# The recorded form of a call of an agent's own tool other than a shell.
_OWN_TOOL_CALL = re.compile(r"([\w.-]+)\((\{.*\})\)", re.DOTALL)


class Call(NamedTuple):
    """A call of a tool."""

    name: str
    arguments: dict[str, Any]


def call_of(env: str, turn: Turn) -> Call | None:
    """Return the call of a turn; None if the agent sent nothing that could be run."""
    if turn.passed:
        return None
    words = turn.action.strip().split(None, 1)
    if words[:1] == ["submit"]:
        answer = turn.answer if turn.answer is not None else "".join(words[1:])
        return Call("submit", {"answer": answer} if answer else {})
    match = _OWN_TOOL_CALL.fullmatch(turn.action) if turn.executed is None else None
    if match is not None:
        with contextlib.suppress(ValueError, RecursionError):
            arguments = json.loads(match[2])
            if not is_too_deep(arguments):
                return Call(match[1], arguments)
    name, argument, _ = kind_of(env).tool
    return Call(name, {argument: turn.action})


def answer_of(record: EpisodeRecord) -> str:
    """Return the answer that the agent submitted, or otherwise the last observation."""
    for turn in reversed(record.turns):
        call = call_of(record.task.env, turn)
        if call is not None and call.arguments.get("answer"):
            return str(call.arguments["answer"])
        if turn.observation:
            return turn.observation
    return ""


def tools_of(record: EpisodeRecord) -> list[dict[str, Any]] | None:
    """Return the tools that an agent had, as functions in OpenAI's form.

    These are its environment's; None for an agent with other tools, which are not known.
    """
    env = record.task.env
    name, argument, description = kind_of(env).tool
    called = {call.name for turn in record.turns if (call := call_of(env, turn)) is not None}
    if called - {name, "submit"}:
        return None
    submit = "End the episode, with an answer in words or without one."
    return [
        _function(name, argument, description, required=True),
        _function("submit", "answer", submit, required=False),
    ]


def _function(name: str, argument: str, description: str, *, required: bool) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument] if required else [],
            },
        },
    }


def facts_of(record: EpisodeRecord) -> dict[str, Any]:
    """Return the facts of a record besides its trajectory, without gold and end states."""
    task = record.task
    facts = clean(
        {
            "reward": record.reward,
            "outcome": record.outcome,
            **filled(
                {
                    "reward_parts": dict(record.parts),
                    "reason": record.reason,
                    "detail": record.detail,
                    "task": task.id,
                    "env": task.env,
                    "suite": task.suite,
                    "dataset": task.dataset,
                    "hardness": task.hardness,
                    "tags": list(task.tags),
                    "repeat": task.repeat,
                    "treatment": task.treatment,
                    "profile": record.profile,
                    "reward_function": record.reward_function,
                    "max_turns": record.max_turns,
                    "seconds": record.seconds,
                    "sandbox": record.sandbox,
                    "image": record.image,
                    "node_id": record.node_id,
                    "log": record.log,
                    "attempts": list(record.attempts),
                    "left_behind": list(record.left_behind),
                    "refused_hosts": list(record.refused_hosts),
                    "calls": [vars(call) for call in record.calls],
                    "task_digest": task.digest,
                }
            ),
        }
    )
    return dict(facts)


def filled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without the empty ones."""
    return {name: value for name, value in values.items() if value not in (None, "", [], {}, 0)}


def clean(value: Any) -> Any:
    """Return builtins that strict readers of JSON accept.

    Numbers that are not finite become None, and halves of surrogate pairs become escapes.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {clean(name): clean(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(member) for member in value]
    return value
