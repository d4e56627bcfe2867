"""The reward of a recorded episode under a profile, from its record and nothing else.

Where the record does not hold what a profile compares, :class:`NotRecorded` says what is missing;
nothing is guessed. Calls the reward functions, and touches nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.recorded import (
    REPLAY_ADVICE,
    NotRecorded,
    RecordedEpisode,
    ends_with_skip,
)
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.results.recorded import is_ours

__all__ = ["played_profile", "score", "state_of"]


def played_profile(record: EpisodeRecord) -> str:
    """Return the profile that an episode was played under, whatever it was scored by since."""
    if not is_ours(record):
        return "paper"  # as InterCode plays
    first = record.rescored_from
    return record.profile if first is None else first.profile


def score(
    record: EpisodeRecord, profile: str, task: Task | None = None, *, todays: bool = False
) -> Reward:
    """Return the reward of a recorded episode.

    Args:
        record: the episode.
        profile: ``strict`` or ``paper``.
        task: its task, for what InterCode's own files do not hold.
        todays: go by the reward options of ``task``, not by those that were recorded.

    Raises:
        NotRecorded: the record does not hold enough.
    """
    env, played = record.task.env, played_profile(record)
    state = state_of(record, task)
    options = task.reward if task is not None and todays else None
    kind = kind_of(env)
    try:
        if played == profile == "paper" and ends_with_skip(record) and not kind.scores_skipped:
            return Reward(0.0)
        reward = kind.score(RecordedEpisode(record, state, played, profile, options))
        if not isinstance(reward.reason, str):
            raise TypeError(reward.reason)
        return reward
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError):
        advice = REPLAY_ADVICE.format(profile=profile)
        problem = f"{env}: the recorded end state is cut, or of another version"
        raise NotRecorded(f"{problem}: {advice}") from None


def state_of(record: EpisodeRecord, task: Task | None = None) -> Mapping[str, Any]:
    """Return the recorded end states of both sides.

    Raises:
        NotRecorded: the record holds none, and they cannot be had from its actions.
    """
    if record.state:
        return record.state
    if is_ours(record) and ends_with_skip(record):
        return {}
    return kind_of(record.task.env).state_of_actions(record, task)
