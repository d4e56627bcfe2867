"""The oracle: plays gold. A suite whose oracle fails has a broken task."""

from __future__ import annotations

from typing import Any

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.suites.task import Task, TaskView

__all__ = ["make_oracle"]


def make_oracle(task: Task) -> Agent:
    """Return an agent that runs the task's gold, command by command, and submits."""

    def run(_: TaskView, env: Any) -> None:
        for command in task.gold:
            *_rest, terminated, truncated, _info = env.step(command)
            if terminated or truncated:
                return

    return Agent("loop", run=run)
