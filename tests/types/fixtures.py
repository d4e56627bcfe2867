"""Tests with the fixtures of the plugin."""

from __future__ import annotations

import pytest

import pytest_intercode
from pytest_intercode import AgentLike, Environment, PendingEpisode, Task


@pytest.mark.intercode(suite="notes.yaml")
def is_solved(
    intercode_task: Task,
    intercode_environment: Environment,
    intercode_agent: AgentLike,
    intercode_episode: PendingEpisode,
) -> None:
    assert intercode_episode.reward == 1.0
    assert intercode_episode.run().task.id == intercode_task.id
    assert len(intercode_episode.turns) < intercode_environment.max_turns


def play_without_pytest() -> None:
    environment = pytest_intercode.make("bash", profile="paper", feedback="reward")
    observation, _info = environment.reset(seed=1)
    observation, reward, terminated, truncated, info = environment.step(observation)
    assert not terminated, (observation, reward, truncated, info)
    environment.close()
