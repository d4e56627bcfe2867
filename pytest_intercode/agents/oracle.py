"""The oracle: plays gold. If the oracle fails, the suite has a broken task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.arguments import read_arguments
from pytest_intercode.agents.protocol import Agent, AgentFactory
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.environments.registry import kind_of

__all__ = ["make_factory", "make_oracle"]


def make_factory(name: str, _: str, arguments: Mapping[str, str], __: Path) -> AgentFactory:
    """Return the factory of ``--intercode-agent=oracle``."""
    read_arguments(name, arguments)
    return AgentFactory(name, make_oracle)


def make_oracle(task: Task) -> Agent:
    """Return an agent that runs the task's gold, command by command, or submits its flag."""
    answer = kind_of(task.env).gold_answer(task)
    actions = [*answer.actions]
    if answer.submitted is not None:
        actions.append(f"submit {answer.submitted}".rstrip())

    def run(_: TaskView, env: AgentEnvironment) -> None:
        for action in actions:
            *_rest, terminated, truncated, _info = env.step(action)
            if terminated or truncated:
                return

    return Agent("loop", run=run, is_scripted=True)
