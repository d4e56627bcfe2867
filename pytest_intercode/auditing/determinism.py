"""Whether gold is deterministic: an agent that plays gold a second later is graded against gold.

Both start from the same files, with the same times. Pure functions of recorded end states.
"""

from __future__ import annotations

from pytest_intercode.auditing.playing import Played
from pytest_intercode.environments.registry import kind_of

__all__ = ["describe_difference"]


def describe_difference(env: str, *runs: Played) -> str:
    """Describe how the end states of runs of gold differ; empty if they are equal.

    Args:
        env: the environment.
        runs: episodes of an agent that played gold.
    """
    if any(run.end_reason == "budget" and not run.solved for run in runs):
        return ""  # gold was cut short: its end states cannot be compared
    kind = kind_of(env)
    for run in runs:
        if not run.solved and (difference := kind.describe_unequal(run.state)):
            return difference
    first = runs[0]
    for run in runs[1:]:
        if difference := kind.describe_changed(first.state, run.state):
            return difference
        if run.reward.value != first.reward.value:
            return f"rewards: {first.reward.value:.2f}, then {run.reward.value:.2f}"
    return ""
