"""Agents of each style, and rollouts of them."""

from __future__ import annotations

import asyncio

import pytest_intercode
from pytest_intercode import (
    AgentEnvironment,
    AgentLike,
    BudgetExhausted,
    LoopAgent,
    Observation,
    StepAgent,
    TaskView,
)


class Stepper:
    def reset(self, task: TaskView) -> None:
        self.plan = [task.query, "submit"]

    def act(self, observation: str) -> str:
        pytest_intercode.spend(input_tokens=len(observation), cost=0.01)
        return self.plan.pop(0)


class Later:
    async def act(self, observation: Observation) -> str:
        await asyncio.sleep(0)
        return "submit" if observation.turns_left < 2 or observation.executed else "ls"


class Looper:
    async def run(self, task: TaskView, env: AgentEnvironment) -> None:
        try:
            observation, reward, terminated, truncated, info = env.step(f"echo {task.id}")
            env.log(f"{reward} {info}")
            if not (terminated or truncated) and observation.executed:
                env.submit("42")
        except BudgetExhausted:
            env.log("nothing is left")


def step(observation: Observation) -> str:
    return observation.upper()


def loop(task: TaskView, env: AgentEnvironment) -> None:
    env.think(task.query)


stepper: StepAgent = Stepper()
later: StepAgent = Later()
looper: LoopAgent = Looper()
agents: list[AgentLike] = [stepper, later, looper, step, loop]


async def collect() -> list[float]:
    with pytest_intercode.run_rollouts("bash", Later, n=2) as records:
        rewards = [record.reward for record in records]
    async with pytest_intercode.run_rollouts("sql", loop, concurrency=4, buffer=0) as sql_records:
        return rewards + [record.reward async for record in sql_records]
