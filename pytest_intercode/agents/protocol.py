"""What an agent is, and the one shape that the turn loop calls whatever the user wrote.

Users write one of these, sync or async::

    class MyAgent:                          class MyAgent:
        def reset(self, task): ...              def run(self, task, env):
        def act(self, observation):                 observation, *_ = env.step("ls")
            return "ls"                             env.submit()
        def close(self): ...

    def my_agent(observation):              def my_agent(task, env):
        return "ls"                             env.step("ls")

``reset`` and ``close`` are optional, and so is ``abort``: it is called from another thread when
the time is up, and ends what the agent waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pytest_intercode.core.task import Task, TaskView

__all__ = ["Agent", "AgentFactory", "NoRecording", "QuitRun"]


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
        abort: ends what the agent waits for, from another thread, when its time is up; quick,
            and callable at any moment, also twice.
    """

    style: Literal["step", "loop"]
    act: Callable[[Any], Any] = _nothing
    run: Callable[[TaskView, Any], Any] = _nothing
    reset: Callable[[TaskView], Any] = _nothing
    close: Callable[[], Any] = _nothing
    name: str = ""
    again: Callable[[], Agent] | None = None
    abort: Callable[[], Any] = _nothing


class NoRecording(Exception):
    """The recording that is replayed has no episode of this task; the task is skipped."""


class QuitRun(Exception):
    """The user, who is the agent, has enough of the whole run; the episode does not count."""


@dataclass(frozen=True)
class AgentFactory:
    """Makes a fresh agent for each episode.

    Attributes:
        name: the agent as the user named it.
        make: task to agent. Only agents of ours that must know gold (the oracle) look at more
            than ``task.view()``.
        feedback: ``reward`` for an agent that is made for rewards as feedback; it gets them unless
            ``--intercode-feedback`` says otherwise.
        terminal: it talks to the user's terminal.
        priced: False for an agent that reports tokens and no cost, so that money cannot be
            limited; None where that is not known.
        close: called once, when the run is over.
    """

    name: str
    make: Callable[[Task], Agent]
    feedback: Literal["", "reward"] = ""
    terminal: bool = False
    priced: bool | None = None
    close: Callable[[], None] = lambda: None
