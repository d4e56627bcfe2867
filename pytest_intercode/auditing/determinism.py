"""Whether gold is deterministic: an agent that plays gold a second later is graded against gold.

Both start from the same files, with the same times. Pure functions of recorded end states.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_intercode.auditing.playing import Played

__all__ = ["describe_difference"]

_MAX_CHARACTERS = 300  # of each side


def describe_difference(env: str, *runs: Played) -> str:
    """Describe how the end states of runs of gold differ; empty if they are equal.

    Args:
        env: the environment.
        runs: episodes of an agent that played gold.
    """
    if any(run.end_reason == "budget" and not run.solved for run in runs):
        return ""  # gold was cut short: its end states cannot be compared
    for run in runs:
        if env in ("bash", "sql") and not run.solved:
            describe = _describe_bash if env == "bash" else _describe_both
            return describe(run.state["agent"], run.state["gold"])
    first = runs[0]
    for run in runs[1:]:
        if env == "python" and run.state != first.state:
            return _describe_both(first.state, run.state)
        if run.reward.value != first.reward.value:
            return f"rewards: {first.reward.value:.2f}, then {run.reward.value:.2f}"
    return ""


def _describe_bash(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    differences = []
    if first["output"] != second["output"]:
        a, b = _find_first_difference(first["output"], second["output"])
        differences.append(f"output: {a!r}, then {b!r}")
    entries = [side.get("entries", {}) for side in (first, second)]
    paths = sorted(entries[0].keys() | entries[1].keys())
    changed_paths = [path for path in paths if entries[0].get(path) != entries[1].get(path)]
    if changed_paths:
        differences.append(f"on disk: {', '.join(changed_paths[:5])}")
    return "; ".join(differences) or "the end states"


def _find_first_difference(first: str, second: str) -> tuple[str, str]:
    """Return the first lines that differ, shortened."""
    for first_line, second_line in zip(first.split("\n"), second.split("\n"), strict=False):
        if first_line != second_line:
            return first_line[:_MAX_CHARACTERS], second_line[:_MAX_CHARACTERS]
    return first[:_MAX_CHARACTERS], second[:_MAX_CHARACTERS]


def _describe_both(first: Any, second: Any) -> str:
    a, b = (json.dumps(side, ensure_ascii=False, default=str) for side in (first, second))
    return f"{a[:_MAX_CHARACTERS]}, then {b[:_MAX_CHARACTERS]}"
