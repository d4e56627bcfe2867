"""A user's typed project: ``mypy --strict`` finds what is wrong in it, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

AGENTS = """\
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
            if not terminated and observation.executed:
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
every: list[AgentLike] = [stepper, later, looper, step, loop]


async def collect() -> list[float]:
    with pytest_intercode.run_rollouts("bash", Later, n=2) as records:
        rewards = [record.reward for record in records]
    async with pytest_intercode.run_rollouts("sql", loop, concurrency=4, buffer=0) as more:
        return rewards + [record.reward async for record in more]
"""

ENVIRONMENT = """\
from __future__ import annotations

from pytest_intercode import (
    Environment,
    Observation,
    Reward,
    SandboxProvider,
    SandboxSpec,
    Task,
    register_environment,
)


@register_environment
class Echo(Environment):
    name = "echo"

    @classmethod
    def sandboxes(cls, task: Task, provider: SandboxProvider) -> list[SandboxSpec]:
        return []

    def start(self, task: Task) -> None:
        self.said: list[str] = []

    def execute(self, action: str) -> Observation:
        self.said.append(action)
        return Observation(action, status=0)

    def grade(self, answer: str | None) -> Reward:
        return Reward(float(bool(self.said)), {"said": 1.0})

    def stop(self) -> None:
        self.said.clear()

    def interrupt(self) -> None:
        pass
"""

CONFTEST = """\
from __future__ import annotations

from dataclasses import replace

import pytest
from agents import Looper, Stepper
from environment import Echo

from pytest_intercode import (
    AgentLike,
    Environment,
    EpisodeRecord,
    Outcome,
    SandboxProvider,
    Task,
    Turn,
)


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
"""

TEST_MINE = """\
from __future__ import annotations

import pytest

import pytest_intercode
from pytest_intercode import AgentLike, Environment, PendingEpisode, Task


@pytest.mark.intercode(suite="notes.yaml")
def test_mine(
    intercode_task: Task,
    intercode_environment: Environment,
    intercode_agent: AgentLike,
    intercode_episode: PendingEpisode,
) -> None:
    assert intercode_episode.reward == 1.0
    assert intercode_episode.run().task.id == intercode_task.id
    assert len(intercode_episode.turns) < intercode_environment.max_turns


def test_without_pytest() -> None:
    environment = pytest_intercode.make("bash", profile="paper", feedback="reward")
    observation, info = environment.reset(seed=1)
    observation, reward, terminated, truncated, info = environment.step(observation)
    environment.close()
"""

WRONG = """\
from __future__ import annotations

from pytest_intercode import AgentEnvironment, AgentLike, LoopAgent, StepAgent, make


class Number:
    def act(self, observation: str) -> int:
        return 1

    def run(self, task: str, env: AgentEnvironment) -> None: ...


step: StepAgent = Number()  # wrong
loop: LoopAgent = Number()  # wrong
none: AgentLike = 3  # wrong
make("bash", profile="papr")  # wrong
"""


def test_mypy_finds_what_is_wrong_and_nothing_else(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    sources = {
        "agents.py": AGENTS,
        "environment.py": ENVIRONMENT,
        "conftest.py": CONFTEST,
        "test_mine.py": TEST_MINE,
        "wrong.py": WRONG,
    }
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    kept = getattr(pytestconfig, "cache", None)  # what mypy knows of the package, for the next run
    cache = kept.mkdir("mypy") if kept is not None else tmp_path / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--hide-error-context"]
    done = subprocess.run(
        [*command, "--config-file=", f"--cache-dir={cache}", *sources],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^(\w+\.py:\d+): error: ", done.stdout, re.MULTILINE)
    lines = WRONG.splitlines()
    expected = [f"wrong.py:{n}" for n, line in enumerate(lines, 1) if line.endswith("  # wrong")]
    assert found == expected, done.stdout + done.stderr
