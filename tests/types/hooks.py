"""The hooks and the fixture of a conftest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_intercode import (
    AgentLike,
    Environment,
    EpisodeRecord,
    Outcome,
    SandboxProvider,
    Task,
    Turn,
)
from tests.types.agents import Looper, Stepper
from tests.types.environments import Echo


def pytest_intercode_modify_tasks(tasks: list[Task]) -> None:
    tasks[:] = [replace(task, max_turns=3) for task in tasks]


def pytest_intercode_make_agent(task: Task) -> AgentLike | None:
    return Stepper() if task.env == "echo" else None


def pytest_intercode_make_environment(task: Task) -> Environment | None:
    return Echo(SandboxProvider()) if task.env == "echo" else None


def pytest_intercode_log_episode(config: pytest.Config, episode: EpisodeRecord) -> None:
    turns: tuple[Turn, ...] = episode.turns
    outcome: Outcome = episode.outcome
    print(outcome, [turn.action for turn in turns], episode.task.id, config.rootpath)


@pytest.fixture
def intercode_agent() -> AgentLike:
    return Looper()
