"""A pytest plugin whose environment only pretends: no sandbox, every answer is right.

Loaded by ``-p benchmarks.pretend`` for runs of so many tasks that sandboxes would take an hour; the
rest is pytest, our items, the agent's thread, grading, reports and tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_intercode.core.reward import Reward
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.base import Environment
from pytest_intercode.plugin.run import run_of

if TYPE_CHECKING:
    import pytest

    from pytest_intercode.core.task import Task
    from pytest_intercode.sandboxes.protocol import SandboxSpec
    from pytest_intercode.sandboxes.provider import SandboxProvider


class Pretence(Environment):
    """Runs nothing."""

    name = "bash"

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        """Need none."""
        return []

    def start(self, task: Task) -> None:
        """Start nothing."""

    def execute(self, action: str) -> Observation:
        """Return nothing, as most actions of the thinker do."""
        return Observation("", executed=True, status=0)

    def grade(self, answer: str | None) -> Reward:
        """Grade everything as right."""
        return Reward(1.0, {"output": 1.0})

    def stop(self) -> None:
        """End nothing."""

    def interrupt(self) -> None:
        """Interrupt nothing."""


def pytest_intercode_make_environment(config: pytest.Config, task: Task) -> Environment:
    """Give every task an environment that pretends."""
    return Pretence(run_of(config).composition.provider)
