"""Whether gold is deterministic: an agent that plays gold a second later is graded against gold.

Both start from the same files, with the same times. Pure functions of recorded end states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.auditing.playing import Played

__all__ = ["difference"]

_SHOWN = 300  # characters of each side


def difference(env: str, *runs: Played) -> str:
    """Describe how the end states of runs of gold differ; empty if they are equal.

    Args:
        env: the environment.
        runs: episodes of an agent that played gold.
    """
    if any(run.over == "budget" and not run.solved for run in runs):
        return ""  # gold was cut short: its end states cannot be compared
    for run in runs:
        if env in ("bash", "sql") and not run.solved:
            describe = _bash_difference if env == "bash" else _both
            return describe(run.state["agent"], run.state["gold"])
    first = runs[0]
    for run in runs[1:]:
        if env == "python" and run.state != first.state:
            return _both(first.state, run.state)
        if run.reward.value != first.reward.value:
            return f"rewards: {first.reward.value:.2f}, then {run.reward.value:.2f}"
    return ""


def _bash_difference(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    said = []
    if mine["output"] != theirs["output"]:
        a, b = _first_difference(mine["output"], theirs["output"])
        said.append(f"output: {a!r}, then {b!r}")
    entries = [side.get("entries", {}) for side in (mine, theirs)]
    paths = sorted(entries[0].keys() | entries[1].keys())
    unlike = [path for path in paths if entries[0].get(path) != entries[1].get(path)]
    if unlike:
        said.append(f"on disk: {', '.join(unlike[:5])}")
    return "; ".join(said) or "the end states"


def _first_difference(mine: str, theirs: str) -> tuple[str, str]:
    """Return the first lines that differ, shortened."""
    for left, right in zip(mine.split("\n"), theirs.split("\n"), strict=False):
        if left != right:
            return left[:_SHOWN], right[:_SHOWN]
    return mine[:_SHOWN], theirs[:_SHOWN]


def _both(mine: Any, theirs: Any) -> str:
    a, b = (json.dumps(side, ensure_ascii=False, default=str) for side in (mine, theirs))
    return f"{a[:_SHOWN]}, then {b[:_SHOWN]}"
