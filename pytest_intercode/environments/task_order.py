"""The order in which an environment takes its tasks if none is named: shuffled, by a seed.

It draws from its own random generator, never from Python's global one.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError, suggestion

__all__ = ["TaskOrder"]


class TaskOrder:
    """A list of tasks that is repeated forever, each time in another order.

    Args:
        tasks: the tasks, or a function that reads them when the first one is needed.
        env: the environment that all tasks are for; empty for any.
    """

    def __init__(self, tasks: Iterable[Task] | Callable[[], Iterable[Task]], env: str = "") -> None:
        self._source = tasks
        self._env = env
        self._tasks: list[Task] | None = None
        self._remaining: list[int] = []
        self._random: random.Random | None = None  # most environments are given their tasks

    @property
    def tasks(self) -> list[Task]:
        """The tasks, in the order of their suite.

        Raises:
            ConfigurationError: they cannot be read, or there are none.
        """
        if self._tasks is None:
            self._tasks = list(self._source() if callable(self._source) else self._source)
        if not self._tasks:
            raise ConfigurationError("there is no list of tasks; give a task: reset(task=...)")
        return self._tasks

    def choose(
        self, task: Task | None, *, seed: int | None, options: Mapping[str, Any] | None
    ) -> Task:
        """Return the task that the arguments of ``reset`` ask for, or the next one.

        Raises:
            ConfigurationError: there is no such task, or no such option.
        """
        if not isinstance(options or {}, Mapping):
            raise ConfigurationError(
                f"reset(): options={options!r:.60}: a dictionary is needed, such as "
                '{"task": "ID"}'
            )
        for name in options or ():
            if name != "task":
                raise ConfigurationError(f"reset() has no option {name!r}; allowed: task")
        if seed is not None:
            self.seed(seed)
        choice = (options or {}).get("task") if task is None else task
        if choice is None:
            return self.next()
        if isinstance(choice, str):
            return self.find(choice)
        if not isinstance(choice, Task):
            raise ConfigurationError(
                f"reset(): a task must be a Task or the id of one, not {type(choice).__name__}"
            )
        if self._env not in ("", choice.env):
            raise ConfigurationError(
                f"the task {choice.id!r} is for the environment {choice.env}, not for {self._env}"
            )
        return choice

    def seed(self, seed: int) -> None:
        """Start again; equal seeds give equal sequences of tasks.

        Raises:
            ConfigurationError: it is not a whole number.
        """
        try:
            self._random = random.Random(operator.index(seed))  # numpy's integers are not ints
        except TypeError:
            raise ConfigurationError(f"seed={seed!r:.40}: a whole number is needed") from None
        self._remaining = []

    def next(self) -> Task:
        """Return the next task; every task is taken once before any is taken again."""
        tasks = self.tasks
        if not self._remaining:
            self._random = self._random or random.Random()
            self._remaining = self._random.sample(range(len(tasks)), len(tasks))
        return tasks[self._remaining.pop()]

    def find(self, task_id: str) -> Task:
        """Return the task with an id.

        Raises:
            ConfigurationError: there is none.
        """
        for task in self.tasks:
            if task.id == task_id:
                return task
        near = suggestion(task_id, (task.id for task in self.tasks))
        raise ConfigurationError(f"there is no task {task_id!r} among these.{near}")
