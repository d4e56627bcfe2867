"""Compares two runs of gold, made at different times in sandboxes of their own.

Each run was graded against a gold of its own; here the first run is graded against the gold of the
second. Pure functions of recorded end states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.auditing.playing import Played
from pytest_intercode.rewards.bash_strict import bash_strict_reward_again
from pytest_intercode.rewards.options import options_again
from pytest_intercode.rewards.sql_changes import sql_changes_reward_again
from pytest_intercode.rewards.sql_strict import sql_rows_reward_again

__all__ = ["difference"]

_SHOWN = 300  # characters of each side


def difference(env: str, first: Played, second: Played) -> str:
    """Say how two runs of gold differ; return nothing if they leave the same.

    Args:
        env: the environment.
        first: one run.
        second: the other one.
    """
    if any(run.over == "budget" and not run.solved for run in (first, second)):
        return ""  # gold was cut short, and is not comparable to one that ran to its end
    if env == "bash":
        return _bash(first, second)
    if env == "sql":
        return _sql(first, second)
    if env == "python":
        verdicts = [json.dumps(run.state.get("tests")) for run in (first, second)]
        return "" if verdicts[0] == verdicts[1] else f"tests: {verdicts[0]}, then {verdicts[1]}"
    rewards = first.reward.value, second.reward.value
    return "" if rewards[0] == rewards[1] else f"rewards: {rewards[0]:.2f}, then {rewards[1]:.2f}"


def _bash(first: Played, second: Played) -> str:
    for run in (first, second):
        if not run.solved:
            return _bash_difference(run.state["agent"], run.state["gold"])
    if "counted" in first.state or "counted" in second.state:
        return ""  # too many paths were recorded as a number alone
    agent, gold = dict(first.state["agent"]), dict(second.state["gold"])
    # What one of them never touched is there as it was at the start.
    for side, other in ((agent, gold), (gold, agent)):
        side["entries"] = {**_untouched(other), **side["entries"]}
    crossed = bash_strict_reward_again({**second.state, "agent": agent, "gold": gold})
    return "" if crossed.value >= 1.0 else _bash_difference(agent, gold)


def _untouched(other: Mapping[str, Any]) -> dict[str, Any]:
    return {path: other["before"].get(path) for path in other["touched"]}


def _bash_difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    said = []
    if mine["output"] != theirs["output"]:
        a, b = _apart(mine["output"], theirs["output"])
        said.append(f"output: {a!r}, then {b!r}")
    paths = sorted(mine.get("entries", {}).keys() | theirs.get("entries", {}).keys())
    unlike = [
        path
        for path in paths
        if mine.get("entries", {}).get(path) != theirs.get("entries", {}).get(path)
    ]
    if unlike:
        said.append(f"on disk: {', '.join(unlike[:5])}")
    return "; ".join(said) or "the end states"


def _apart(mine: str, theirs: str) -> tuple[str, str]:
    """Return the first lines that differ, shortened."""
    for left, right in zip(mine.split("\n"), theirs.split("\n"), strict=False):
        if left != right:
            return left[:_SHOWN], right[:_SHOWN]
    return mine[:_SHOWN], theirs[:_SHOWN]


def _sql(first: Played, second: Played) -> str:
    for run in (first, second):
        if not run.solved:
            return _sides(run.state)
    if not first.state or not second.state:
        return ""
    crossed = {**second.state, "agent": first.state["agent"]}
    if "added" in crossed["agent"]:
        reward = sql_changes_reward_again(crossed)
    else:
        reward = sql_rows_reward_again(crossed, options_again(crossed["options"]))
    return "" if reward.value >= 1.0 else _sides(crossed)


def _sides(state: Mapping[str, Any]) -> str:
    a, b = (json.dumps(state.get(side), ensure_ascii=False, default=str) for side in _SIDES)
    return f"{a[:_SHOWN]}, then {b[:_SHOWN]}"


_SIDES = ("agent", "gold")
