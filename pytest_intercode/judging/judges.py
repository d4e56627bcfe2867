"""The judges of a run: models that give a share of episodes' rewards, for the episode records.

Lightweight: the modules that ask models are imported when the first judge is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from pytest_intercode.core.judge import JudgeRecord
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.environments.recorded import outcome_with
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.gateway.lazy import LazyGateway
from pytest_intercode.gateway.settings import GatewaySettings
from pytest_intercode.results.recorded import had_feedback
from pytest_intercode.rewards.judged import judged_reward

if TYPE_CHECKING:
    from pytest_intercode.gateway.recording import EpisodeRecording
    from pytest_intercode.judging.hearing import Hearing

__all__ = ["Judges", "judged_record"]

Reaching: TypeAlias = Callable[[Callable[[str], None]], AbstractContextManager[None]]


class Judges:
    """Asks the judges of tasks; lightweight until the first is asked, and thread-safe.

    Args:
        settings: how models are reached; None to read environment variables.
    """

    def __init__(self, settings: GatewaySettings | None = None) -> None:
        self._gateway = LazyGateway(settings)

    def check(self, task: Task, *, replayed: bool = False) -> None:
        """Check that a task's judge can be asked, before anything is started for it.

        Args:
            task: the task.
            replayed: whether a separate recording answers.

        Raises:
            ConfigurationError: the judge cannot be asked.
        """
        if task.judge is None:
            return
        subject = f"{task.source or 'a task of your own'}: task {task.id!r}: judge"
        if problem := task.judge.find_problem():
            raise ConfigurationError(f"{subject}: {problem}")
        self._gateway.check(subject, replayed=replayed)

    def open(
        self, task: Task, purpose: str = "judge", recording: EpisodeRecording | None = None
    ) -> Hearing:
        """Return a hearing, which asks the judge of one episode; the caller has to close it.

        Args:
            task: the task, which has a judge.
            purpose: the purpose of the votes, the end of their name in recordings.
            recording: records or replays the votes; None if the run's settings apply.

        Raises:
            ConfigurationError: the judge cannot be asked.
        """
        from pytest_intercode.judging.hearing import Hearing

        self.check(task, replayed=recording is not None and recording.replayer is not None)
        return Hearing(task, self._gateway.open(), purpose, recording)

    def judge(self, task: Task, record: EpisodeRecord, reaching: Reaching) -> EpisodeRecord:
        """Return the record of an episode with its judge's share in the reward.

        An agent that ended in an error cannot gain a reward, so its judge is not asked, and the
        score is 0.

        Args:
            task: the task, which has a judge.
            record: the episode, graded only by its environment.
            reaching: returns a context in which others can call the given function to end the
                requests.

        Raises:
            JudgeError: the model gives no verdict; the error's ``record`` has the votes so far.
        """
        assert task.judge is not None
        if record.outcome == "agent-error":
            judge = task.judge
            votes = JudgeRecord(
                judge.model, judge.digest, judge.share, record.reward, product=judge.product
            )
            return judged_record(record, votes)
        from pytest_intercode.judging.question import describe_episode

        material = describe_episode(record)
        hearing = self.open(task)
        with hearing, reaching(hearing.stop):
            votes, failure = hearing.judge(material, record.reward)
        if failure is not None:
            failure.record = replace(record, judge=votes)
            raise failure
        return judged_record(record, votes)

    def close(self) -> None:
        """Close the gateway if it was opened; may be called twice."""
        self._gateway.close()


def judged_record(record: EpisodeRecord, votes: JudgeRecord) -> EpisodeRecord:
    """Return the record of an episode with its judge's share in the reward.

    Args:
        record: the episode, graded only by its environment.
        votes: the votes of its judge.
    """
    own_reward = Reward(record.reward, record.parts, record.reason, record.test_output)
    reward = judged_reward(own_reward, votes)
    outcome = outcome_with(record, reward.value)
    turns = record.turns
    if turns and not had_feedback(record):
        turns = (*turns[:-1], replace(turns[-1], reward=reward.value, parts=reward.parts))
    return replace(
        record,
        turns=turns,
        outcome=outcome,
        reward=reward.value,
        parts=reward.parts,
        reason=record.reason if outcome == "agent-error" else reward.reason,
        test_output=reward.test_output,
        judge=votes,
    )
