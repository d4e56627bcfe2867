"""An episode as pytest runs it, from reset to record, in its turn or ahead of it.

Both ways lead through here, so that an episode is the same whenever it runs. What the
infrastructure spoils is done once more, on a fresh sandbox and with a fresh agent.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.environments.base import Environment
from pytest_intercode.errors import InfrastructureError, SandboxError
from pytest_intercode.rollouts.episode import Halt, run_episode

if TYPE_CHECKING:
    from pytest_intercode.core.task import Task
    from pytest_intercode.plugin.session import IntercodeSession

__all__ = ["play", "reset"]


def reset(environment: Environment, task: Task) -> None:
    """Start an episode on a fresh sandbox.

    Raises:
        TaskError: the task cannot be set up.
        InfrastructureError: no sandbox could be had.
        ConfigurationError: the task is not what the environment needs.
    """
    try:
        environment.reset(task=task)
    except SandboxError:
        environment.reset(task=task)  # once more, on a fresh one


def play(
    session: IntercodeSession,
    environment: Environment,
    agent: Agent,
    name: str,
    apart: contextlib.AbstractContextManager[list[str]],
    halt: Halt | None = None,
) -> EpisodeRecord:
    """Let an agent act in an environment after its reset.

    Args:
        session: what the user asked for.
        environment: the environment.
        agent: the agent.
        name: what the record calls it.
        apart: keeps the process as it is, and returns the list of what the agent left.
        halt: what ends the episode from another thread.

    Raises:
        TaskError: nothing can be graded, as gold does not work; it is not tried again.
        InfrastructureError: it was spoiled twice.
        QuitRun: the user, who is the agent, wants to end the run.
        EpisodeHalted: it was ended from another thread.
    """
    task = environment.task
    assert task is not None
    attempts: list[str] = []
    with apart as left:
        while True:
            try:
                with session.stage(environment) as tell:
                    episode = run_episode(
                        agent,
                        environment,
                        environment.first,
                        timeout=session.timeout(task),
                        budget=session.settings.budget,
                        run_budget=session.spending.budget,
                        halt=halt,
                    )
                    tell(episode.headline)
                break
            except InfrastructureError as error:
                if attempts or not isinstance(error, SandboxError):
                    raise
                attempts.append(str(error))
                environment.reset(task=task)
                agent = agent.again() if agent.again else agent
    sandbox, image = session.made_of(environment, task)
    return replace(
        episode,
        attempts=tuple(attempts),
        agent=name,
        agent_arguments=session.settings.agent_arguments,
        sandbox=sandbox,
        image=image,
        left_behind=(*episode.left_behind, *left),
    )
