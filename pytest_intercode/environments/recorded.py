"""Recorded episodes that are scored again, and what their actions show. Has no side effects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.core.record import EpisodeRecord, Outcome
from pytest_intercode.core.task import RewardOptions
from pytest_intercode.core.turn import Turn
from pytest_intercode.errors import IntercodeError
from pytest_intercode.results.recorded import is_ours

__all__ = [
    "REPLAY_ADVICE",
    "NotRecorded",
    "RecordedEpisode",
    "actions_of",
    "ends_with_skip",
    "missing_state",
    "outcome_with",
    "unsubmitted",
]

REPLAY_ADVICE = "run it again with --intercode-agent=replay:FILE --intercode-profile={profile}"


class NotRecorded(IntercodeError):
    """The record does not hold what the reward depends on; the message says what is missing."""


@dataclass(frozen=True)
class RecordedEpisode:
    """A recorded episode, and how it is to be scored.

    Attributes:
        record: the episode.
        state: the end states of both sides.
        played: the profile that it was played under.
        profile: the profile that it is scored under.
        options: the reward options to use; None for the recorded ones.
    """

    record: EpisodeRecord
    state: Mapping[str, Any]
    played: str
    profile: str
    options: RewardOptions | None

    def check_same(self, problem: str = "") -> None:
        """Refuse to score under a profile other than the one that the episode was played under.

        Args:
            problem: what is not recorded.

        Raises:
            NotRecorded: the episode was played under another profile.
        """
        if self.played != self.profile:
            raise self.not_recorded(problem or f"it was played as {self.played}")

    def not_recorded(self, problem: str) -> NotRecorded:
        """Return an error that says what is missing, and how to get it."""
        advice = REPLAY_ADVICE.format(profile=self.profile)
        return NotRecorded(f"{self.record.task.env}: {problem}: {advice}")


def missing_state(record: EpisodeRecord, content: str) -> NotRecorded:
    """Return the error for a record without an end state.

    Args:
        record: the episode.
        content: what InterCode's files do not hold.
    """
    env = record.task.env
    if is_ours(record):
        return NotRecorded(f"{env}: the record has no end state")
    return NotRecorded(
        f"{env}: InterCode's files do not contain {content}: "
        "run it again with --intercode-agent=replay:FILE"
    )


def unsubmitted(record: EpisodeRecord) -> bool:
    """Whether the last action of a recorded episode is not a submission."""
    actions = actions_of(record.turns[-1:])
    return not actions or not actions[-1].strip().startswith("submit")


def outcome_with(record: EpisodeRecord, reward: float) -> Outcome:
    """Return the outcome that the turn loop would give a recorded episode with another reward."""
    recorded = record.outcome
    if recorded == "agent-error":
        return recorded
    if reward >= 1.0:
        return "solved"
    if recorded in ("out-of-budget", "timed-out"):
        return recorded
    used_up = (
        is_ours(record)
        and recorded == "solved"
        and 0 < record.max_turns <= len(record.turns)
        and unsubmitted(record)
    )
    return "out-of-budget" if used_up else "failed"


def actions_of(turns: Iterable[Turn]) -> list[str]:
    """Return the actions, without the messages of turns that ran nothing."""
    return [turn.action for turn in turns if not turn.passed]


def ends_with_skip(record: EpisodeRecord) -> bool:
    """Whether an action ended the episode as InterCode's ``skip`` does."""
    return "skip" in actions_of(record.turns)
