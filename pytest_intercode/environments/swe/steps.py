"""The steps of a swe task, and the current step of an episode."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Step, Task
from pytest_intercode.environments.access import as_user
from pytest_intercode.errors import TaskError
from pytest_intercode.rewards.reward_file import reward_of_steps
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.system.archives import build_archive

__all__ = ["Steps"]

_SETUP_TIMEOUT = 120.0  # seconds for one setup command of a step


class Steps:
    """The steps of one episode; a task without steps is graded as a whole.

    Args:
        task: the task.

    Attributes:
        number: the number of the current step, counted from 0.
    """

    def __init__(self, task: Task) -> None:
        self.number = 0
        self._task = task
        self._rewards: list[Reward] = []  # of the earlier steps

    @property
    def is_last(self) -> bool:
        """Whether no step comes after the current one."""
        return self.number + 1 >= len(self._task.steps)

    @property
    def current(self) -> Step:
        """The current step of a task with steps."""
        return self._task.steps[self.number]

    def go_on(self, reward: Reward) -> None:
        """Go to the next step; the current one gets a reward."""
        self._rewards.append(reward)
        self.number += 1

    def task(self, number: int | None = None) -> Task:
        """Return the task with the verification of a step, by default of the current one."""
        task = self._task
        if not task.steps:
            return task
        step = task.steps[self.number if number is None else number]
        return replace(task, verification=step.verification)

    def overall(self, reward: Reward) -> Reward:
        """Return the reward of all steps so far, given that of the current step."""
        task = self._task
        return reward_of_steps([*self._rewards, reward], task.overall) if task.steps else reward

    def enter(self, sandbox: Sandbox, number: int | None = None) -> None:
        """Set up a step, by default the current one; does nothing for a task without steps.

        Raises:
            TaskError: its setup fails.
        """
        task = self._task
        if not task.steps:
            return
        step = task.steps[self.number if number is None else number]
        if step.archive is not None:
            files = replace(task, archive=step.archive, files={})
            sandbox.unpack(build_archive(files, time.time()))
        for command in step.setup:
            command = as_user(f"cd -- {shlex.quote(task.workdir)} && {command}", step.user)
            status, output = sandbox.admin(command, _SETUP_TIMEOUT)
            if status:
                message = output.decode("utf-8", "replace").strip()[-300:]
                raise TaskError(
                    f"{task.source}: task {task.id!r}: step {step.name!r}: its setup ended with "
                    f"status {status}: {message or 'no output'}"
                )
