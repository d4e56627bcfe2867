"""The ctf environment, paper profile: InterCode 1.0.2 with its quoting and its ``cd``.

Four things differ: every episode has a fresh sandbox, which holds only the assets of its own task;
an action that timed out is really killed; ``submit`` without a flag is a wrong flag, where
InterCode raises; and the sandbox's first process stays guarded, because its memory holds the text
of setup, which may contain a flag.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation, Profile, StepResult
from pytest_intercode.environments.ctf.strict import CtfEnvironment
from pytest_intercode.environments.paper import PaperShell, split_words
from pytest_intercode.rewards.ctf import ctf_paper_reward
from pytest_intercode.sandboxes.protocol import SandboxSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PaperCtfEnvironment", "split_ctf_action"]

_INCORRECT = "Submitted flag is incorrect. Keep trying!"
_PYTHON = ("python -c", "python3 -c")


def split_ctf_action(action: str) -> list[str] | None:
    """Split an action into the words of a process, as InterCode does; None if it cannot be split.

    The action is one word for a shell. Python is called without a shell, so that a pipe after it
    becomes two more arguments.
    """
    if action.startswith(_PYTHON):
        return split_words(action)
    escaped = action.replace("'", "'\\''")
    return split_words(f"/bin/bash -c '{escaped}'")


class PaperCtfEnvironment(PaperShell, CtfEnvironment):
    """Capture the flag as in InterCode."""

    profile: Profile = "paper"

    @classmethod
    def spec(cls, task: Task, provider: SandboxProvider) -> SandboxSpec:
        """Return the strict sandbox, but with the engine's own host name and variables."""
        return replace(super().spec(task, provider), hostname=None, variables=())

    def start(self, task: Task) -> None:
        """Start the sandbox, in the task's directory."""
        self._directory = task.workdir
        super().start(task)

    def _split(self, action: str) -> list[str] | None:
        return split_ctf_action(action)

    def submission(self, action: str) -> str | None:
        """Return what follows ``submit`` in an action that begins with it."""
        return action.partition(" ")[2] if action.startswith("submit") else None

    def handle_submission(self, action: str, answer: str | None) -> StepResult:
        """Take the first word of the answer as the flag."""
        words = (answer or "").split()
        return super().handle_submission(action, words[0] if words else None)

    def _reply_wrong(self, _: str) -> Observation:
        return Observation(_INCORRECT)

    def _reply_empty(self, _: str) -> Observation:
        return Observation(_INCORRECT)

    def grade(self, answer: str | None) -> Reward:
        """Compare the submitted flags with gold, ignoring case."""
        return ctf_paper_reward(self._submitted, self._digest())
