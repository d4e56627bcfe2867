"""An episode as the page's trajectory view reads it: its turns, its facts, its end state.

Rows are not trusted: InterCode's own lack most of what ours have, and lists may be short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_intercode.page.endstates import compared
from pytest_intercode.results.tries import Try

__all__ = ["episode"]


def episode(each: Try) -> dict[str, Any]:
    """Return what the page shows of an episode; what is empty is left out."""
    row = each.row
    made = {
        "query": row.get("query"),
        "outcome": each.outcome,
        "reward": each.reward,
        "parts": row.get("reward_parts"),
        "reason": row.get("reason"),
        "detail": row.get("detail"),
        "log": row.get("log"),
        "seconds": row.get("seconds"),
        "usage": _usage(row.get("usage")),
        "left": row.get("left_behind"),
        "attempts": [str(attempt) for attempt in row.get("attempts") or []],
        "node": row.get("node_id"),
        "image": row.get("image"),
        "max_turns": (row.get("summary") or {}).get("turns_max"),
        "turns": _turns(row),
        "state": compared(row),
    }
    return {name: value for name, value in made.items() if value not in (None, "", [], {})}


def _turns(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    history = row["turn_history"]
    columns = {
        "action": history["actions"],
        "observation": history.get("observations"),
        "thought": history.get("thoughts"),
        "executed": history.get("valid_action"),
        "reward": _graded(row),
        "seconds": row.get("turn_seconds"),
        "thinking": row.get("turn_agent_seconds"),
        "passed": row.get("turn_passed"),
        "answer": row.get("turn_answers"),
        "log": row.get("turn_logs"),
        "parts": row.get("turn_parts"),
        "usage": [_usage(each) for each in row.get("turn_usage") or []],
    }
    turns = []
    for at in range(len(history["actions"])):
        turn = {name: _at(column, at) for name, column in columns.items()}
        turns.append({k: v for k, v in turn.items() if v not in (None, "", [], {})})
    return turns


def _at(column: Any, at: int) -> Any:
    return column[at] if isinstance(column, Sequence) and at < len(column) else None


def _graded(row: Mapping[str, Any]) -> list[float | None]:
    """Return each turn's reward, None where the state was not graded."""
    rewards = list(row["turn_history"].get("rewards") or [])
    parts = row.get("turn_parts")
    if not isinstance(parts, list):
        return rewards
    return [
        reward if reward or _at(parts, at) or at == len(rewards) - 1 else None
        for at, reward in enumerate(rewards)
    ]


def _usage(usage: Any) -> dict[str, Any]:
    """Return what was used up, without what was not counted."""
    if not isinstance(usage, dict):
        return {}
    return {name: value for name, value in usage.items() if value}
