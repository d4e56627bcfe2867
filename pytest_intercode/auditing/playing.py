"""Plays a few actions in an episode, without an agent, and keeps its end state."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.registry import environment_class
from pytest_intercode.errors import SandboxError
from pytest_intercode.sandboxes.provider import SandboxProvider
from pytest_intercode.suites.python_tests import entry_of

__all__ = ["Answer", "Played", "gold_answer", "play"]


@dataclass(frozen=True)
class Answer:
    """What is played: actions, and what is submitted after them.

    Attributes:
        actions: the actions.
        submitted: the text that is submitted, if any.
        what: what it is, for people.
        certain: it is certainly wrong; else a person has to judge.
        note: that it solves the task is worth a note, and is no fault.
    """

    actions: tuple[str, ...] = ()
    submitted: str = ""
    what: str = ""
    certain: bool = True
    note: bool = False

    @property
    def shown(self) -> str:
        """Its text, as evidence."""
        return "\n".join([*self.actions, f"submit {self.submitted}".rstrip()])


@dataclass(frozen=True)
class Played:
    """The end of an episode.

    Attributes:
        reward: the reward.
        observations: what was seen after each action that ran.
        state: both end states, as builtins.
        over: why the episode ended.
        seconds: the duration of its longest action.
    """

    reward: Reward
    observations: tuple[Observation, ...]
    state: Mapping[str, Any]
    over: str
    seconds: float

    @property
    def solved(self) -> bool:
        """Whether the reward reached 1.0."""
        return self.reward.value >= 1.0


def gold_answer(task: Task) -> Answer:
    """Return gold as an agent would play it."""
    if task.env == "ctf":
        return Answer(submitted=task.gold[0])
    name = entry_of(task).partition(".")[0] if task.env == "python" else ""
    return Answer(tuple(task.gold), name)


def play(
    provider: SandboxProvider,
    task: Task,
    answer: Answer,
    action_timeout: float | None = None,
    pause: float = 0.0,
) -> Played:
    """Play an answer on a fresh sandbox, once more if the first one broke.

    Args:
        provider: where sandboxes come from.
        task: the task.
        answer: what is played.
        action_timeout: seconds for an action; by default the task's own number.
        pause: seconds before the first action, in which gold is at work.

    Raises:
        TaskError: gold did not run to its end.
        InfrastructureError: no sandbox could be had.
    """
    try:
        return _play(provider, task, answer, action_timeout, pause)
    except SandboxError:
        return _play(provider, task, answer, action_timeout, pause)


def _play(
    provider: SandboxProvider,
    task: Task,
    answer: Answer,
    action_timeout: float | None,
    pause: float,
) -> Played:
    cls = environment_class(task.env, "strict")
    environment = cls(provider, action_timeout=action_timeout)
    observations: list[Observation] = []
    try:
        environment.reset(task=task)
        time.sleep(pause)
        for action in answer.actions:
            if environment.over:
                break
            observations.append(environment.step(action)[0])
        if not environment.over:
            environment.submit(answer.submitted)
        reward = environment.end("stopped")
        seconds = [turn.seconds for turn in environment.turns[: len(answer.actions)]]
        return Played(
            reward,
            tuple(observations),
            environment.end_state(),
            environment.over,
            max(seconds, default=0.0),
        )
    finally:
        environment.close()
