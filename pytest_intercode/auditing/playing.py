"""Plays a few actions in an episode, without an agent; keeps and compares end states."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.reward import Reward
from pytest_intercode.core.task import Task, TaskView
from pytest_intercode.core.turn import Observation
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.registry import kind_of
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["Played", "describe_difference", "play"]


@dataclass(frozen=True)
class Played:
    """The end of an episode.

    Attributes:
        reward: the reward.
        observations: the observation of each action that ran.
        state: both end states, as builtins.
        end_reason: why the episode ended.
        seconds: the duration of its longest action.
    """

    reward: Reward
    observations: tuple[Observation, ...]
    state: Mapping[str, Any]
    end_reason: str
    seconds: float

    @property
    def solved(self) -> bool:
        """Whether the reward reached 1.0."""
        return self.reward.value >= 1.0


def play(
    provider: SandboxProvider,
    task: Task,
    answer: Answer,
    action_timeout: float | None = None,
    pause: float = 0.0,
) -> Played:
    """Play an answer in a fresh sandbox, again if the first sandbox failed; no judge is asked.

    Args:
        provider: where sandboxes come from.
        task: the task.
        answer: the answer to play.
        action_timeout: seconds for an action; by default the task's own limit.
        pause: seconds to wait before the first action, while gold runs.

    Raises:
        TaskError: gold did not run to its end.
        InfrastructureError: no sandbox is available.
    """
    observations: list[Observation] = []

    def act(_: TaskView, env: AgentEnvironment) -> None:
        observations.clear()  # of an attempt that failed with its sandbox
        time.sleep(pause)
        for action in answer.actions:
            observation, _reward, terminated, truncated, _info = env.step(action)
            observations.append(observation)
            if terminated or truncated:
                return
        env.submit(answer.submitted or "")

    spec = RolloutSpec(replace(task, judge=None), action_timeout=action_timeout)
    rollout = Rollout(spec, Services(provider, isolate=lambda: contextlib.nullcontext([])))
    try:
        environment = rollout.make_environment()
        rollout.prepare(environment)
        record = rollout.run(
            Agent("loop", run=act, judges_gold=True, is_scripted=True), environment
        )
        return Played(
            Reward(record.reward, record.parts, record.reason),
            tuple(observations),
            record.state,
            environment.over,
            max((turn.seconds for turn in record.turns[: len(observations)]), default=0.0),
        )
    finally:
        rollout.close()


def describe_difference(env: str, *runs: Played) -> str:
    """Describe how the end states of runs of gold differ; empty if they are equal.

    Gold is deterministic if an agent that plays it a second later is graded 1.0 against it: both
    start from the same files, with the same times.

    Args:
        env: the environment.
        runs: episodes of an agent that played gold.
    """
    if any(run.end_reason == "budget" and not run.solved for run in runs):
        return ""  # gold was cut short: its end states cannot be compared
    kind = kind_of(env)
    for run in runs:
        if not run.solved and (difference := kind.describe_unequal(run.state)):
            return difference
    first = runs[0]
    for run in runs[1:]:
        if difference := kind.describe_changed(first.state, run.state):
            return difference
        if run.reward.value != first.reward.value:
            return f"rewards: {first.reward.value:.2f}, then {run.reward.value:.2f}"
    return ""
