"""The hooks that conftest files and other plugins may implement; docs/hooks.md uses each.

Environments are not added by a hook but by ``pytest_intercode.register_environment``, because they
also exist without pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_intercode.agents.protocol import AgentLike
    from pytest_intercode.core.record import EpisodeRecord
    from pytest_intercode.core.task import Task
    from pytest_intercode.environments.base import Environment


def pytest_intercode_modify_tasks(config: pytest.Config, tasks: list[Task]) -> None:
    """Called after the tasks of a suite are read, before they become items.

    Args:
        config: pytest's configuration.
        tasks: the tasks; edit the list in place to drop, add, reorder or replace some.
    """


@pytest.hookspec(firstresult=True)
def pytest_intercode_make_agent(config: pytest.Config, task: Task) -> AgentLike | None:
    """Called when an episode needs an agent; stops at the first result that is not None.

    With ``--intercode-concurrency`` it is called on the episode's own thread. It is also called
    before a project test is recorded or replayed; an agent that it returns there is closed without
    having acted, and the test fails, as a recording names the agent of ``--intercode-agent``.

    Args:
        config: pytest's configuration.
        task: the task, gold included: pass on ``task.view()``, not the task.

    Returns:
        An object with ``act(observation)`` or ``run(task, env)``, or None to leave it to
        ``--intercode-agent``.
    """


@pytest.hookspec(firstresult=True)
def pytest_intercode_make_environment(config: pytest.Config, task: Task) -> Environment | None:
    """Called when an episode needs an environment; stops at the first result that is not None.

    With ``--intercode-concurrency`` it is called on the episode's own thread. It is also called
    where ``--intercode-resume`` has a result of the task, to check whether its sandbox is the same;
    that environment is closed without a reset.

    Args:
        config: pytest's configuration.
        task: the task.

    Returns:
        An environment that has not been reset, or None for the one that the task names.
    """


def pytest_intercode_log_episode(config: pytest.Config, task: Task, episode: EpisodeRecord) -> None:
    """Called after an episode has ended and been graded, in its item's turn and process.

    Args:
        config: pytest's configuration.
        task: the task, gold included; the record holds no gold.
        episode: the record of the episode.
    """
