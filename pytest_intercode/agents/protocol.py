"""What an agent is, and the one shape that the turn loop calls whatever the user wrote.

Users write one of these, sync or async::

    class MyAgent:                          class MyAgent:
        def reset(self, task): ...              def run(self, task, env):
        def act(self, observation):                 observation, *_ = env.step("ls")
            return "ls"                             env.submit()
        def close(self): ...

    def my_agent(observation):              def my_agent(task, env):
        return "ls"                             env.step("ls")

``reset`` and ``close`` are optional.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pytest_intercode.suites.task import Task, TaskView

__all__ = ["Agent", "AgentFactory", "NoRecording"]


def _nothing(*_: object) -> None:
    return None


@dataclass
class Agent:
    """One instance of an agent for one episode.

    Attributes:
        style: ``step`` is asked for one action at a time, ``loop`` drives the episode itself.
        act: observation to action (step style).
        run: task and environment to nothing (loop style).
        reset: called with the task before the first action (step style).
        close: called when the episode is over.
        name: what to call it where the user gave it no name.
        again: makes a fresh one for the same task, for an episode that has to be run again.
    """

    style: Literal["step", "loop"]
    act: Callable[[Any], Any] = _nothing
    run: Callable[[TaskView, Any], Any] = _nothing
    reset: Callable[[TaskView], Any] = _nothing
    close: Callable[[], Any] = _nothing
    name: str = ""
    again: Callable[[], Agent] | None = None


class NoRecording(Exception):
    """The recording that is replayed has no episode of this task; the task is skipped."""


@dataclass(frozen=True)
class AgentFactory:
    """Makes a fresh agent for each episode.

    Attributes:
        name: the agent as the user named it.
        make: task to agent. Only agents of ours that must know gold (the oracle) look at more
            than ``task.view()``.
    """

    name: str
    make: Callable[[Task], Agent]
