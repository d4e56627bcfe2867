"""Several submissions in one episode: after a failed one, the agent sees why, and goes on."""

from __future__ import annotations

import abc

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.text import pluralize
from pytest_intercode.core.turn import Observation, StepResult
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.swe.fields import SweFields

__all__ = ["SubmittingEnvironment"]


class SubmittingEnvironment(ShellEnvironment):
    """A shell whose tasks may let their agent submit several times.

    Each submission but the last, and each handing back, is graded. A failed one is a turn, whose
    observation is what the tests printed. The last grading gives the reward.

    Attributes:
        test_output: what the tests printed in the last grading; empty if they could not run.
    """

    test_output = ""

    def start(self, task: Task) -> None:
        """Start the episode's sandboxes."""
        self._max_submissions = SweFields.of(task).submissions
        self._failures: list[Reward] = []  # of the failed submissions so far
        super().start(task)

    @abc.abstractmethod
    def grade_early(self) -> Reward:
        """Grade the current state, from which the agent may go on; sets :attr:`test_output`."""

    @property
    def may_submit_again(self) -> bool:
        """Whether a failed submission returns the output of its tests, and the episode goes on."""
        return self._remaining_submissions > 1 and not self.over

    @property
    def submissions(self) -> int:
        """How many submissions were graded; 0 if the task allows only one.

        The end of an episode counts as one, unless nothing was done since a failed submission.
        """
        if self._max_submissions == 1:
            return 0
        is_failed = any(self.final is reward for reward in self._failures)
        is_last = self.over == "submitted" or (self.final is not None and not is_failed)
        return len(self._failures) + is_last

    def answer(self, message: str) -> str | None:
        """Return the user's reply or, if there is no user, what the tests print."""
        if self.has_user or not self.may_submit_again:
            return super().answer(message)
        observation, _, terminated, truncated, _ = self.submit()
        return None if terminated or truncated else str(observation)

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """End the episode, or let the agent go on after a failed submission."""
        if not self.may_submit_again:
            return super().handle_submission(action, answer)
        with self.phases.timed("tests"):
            reward = self.grade_early()
        if reward.value >= 1.0:
            self.episode.latest = reward
            return super().handle_submission(action, None)

        def show(_: str) -> Observation:
            self.episode.latest = reward  # nothing ran, so the state keeps this reward
            self._failures.append(reward)
            return Observation(self._describe(reward), executed=False)

        result = self.take_turn(action, show)
        self.episode.amend_turn(reward=reward.value, parts=reward.parts)
        return result

    @property
    def _remaining_submissions(self) -> int:
        return self._max_submissions - len(self._failures)

    def _describe(self, reward: Reward) -> str:
        remaining = pluralize(self._remaining_submissions, "more time")
        printed = f" They printed:\n\n{self.test_output}" if self.test_output else ""
        return f"The tests fail: {reward.reason}. You may submit {remaining}.{printed}\n"
