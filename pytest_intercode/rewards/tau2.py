"""The reward of tau2-bench: the product of the criteria that a task names.

Criteria are about the end state and about what was said. The formulas are those of its evaluator:
sierra-research/tau2-bench at a2c02472, ``src/tau2/evaluator``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.core.reward import Reward

__all__ = ["tau2_reward"]

_FAILURES = {
    "DB": "the database is not as gold leaves it",
    "ENV_ASSERTION": "what has to hold of the end state does not",
    "ACTION": "a call of gold's was not made",
    "COMMUNICATE": "the customer was not told all of what gold tells",
}


def tau2_reward(state: Mapping[str, Any]) -> Reward:
    """Return the reward of a conversation.

    Args:
        state: its end state, as the environment records it.
    """
    criteria, agent, checks = state["criteria"], state["agent"], state["checks"]
    if agent["premature"]:
        return Reward(0.0, {}, f"it came to no end: {agent['premature']}")
    values = {
        "DB": checks["db"] or not _is_compared(criteria),
        "ENV_ASSERTION": all(checks["assertions"]),
        "ACTION": all(
            any(_is_call(call, action) for call in agent["calls"])
            for action in criteria.get("actions") or ()
        ),
        "COMMUNICATE": all(
            _is_said(text, agent["conversation"]) for text in criteria.get("communicate_info") or ()
        ),
    }
    basis = criteria.get("reward_basis", ("DB", "COMMUNICATE"))
    parts = {name.lower(): float(values[name]) for name in values if name in basis}
    reason = "; ".join(_FAILURES[name] for name in values if name in basis and not values[name])
    return Reward(float(all(parts.values())), parts, reason)


def _is_compared(criteria: Mapping[str, Any]) -> bool:
    """Whether there is anything to compare the end state with."""
    return not (criteria.get("actions") is None and criteria.get("env_assertions") is None)


def _is_call(call: Mapping[str, Any], action: Mapping[str, Any]) -> bool:
    """Whether a call equals gold's in the arguments that count: by default, all of the call's."""
    names = action.get("compare_args")
    keys = call["arguments"].keys() if names is None else names
    values, gold_values = (
        {name: value for name, value in side["arguments"].items() if name in keys}
        for side in (call, action)
    )
    return bool(call["name"] == action["name"]) and (not keys or values == gold_values)


def _is_said(text: str, conversation: Sequence[Mapping[str, str]]) -> bool:
    """Whether the agent said a text in one of its messages, whose commas are ignored."""
    messages = (line["agent"] for line in conversation if line.get("agent", "").strip())
    return any(text.lower() in message.lower().replace(",", "") for message in messages)
