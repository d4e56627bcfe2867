"""Trains a small policy on bundled bash tasks, only from the rewards of its episodes.

    pip install pytest-intercode numpy
    python examples/train_policy.py --seed 1

The policy reads a task's query and picks one of eight commands: a softmax over weights of the
query's words, which all tasks share. At first it picks at random. In each step it tries each task a
few times, and commands that did better than the other tries at their task become likelier
(REINFORCE, with the group's mean as baseline, as in GRPO). Equal seeds give equal results.
"""

import argparse
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy

import pytest_intercode
from pytest_intercode import (
    AgentEnvironment,
    EpisodeRecord,
    SandboxProvider,
    SandboxSettings,
    Task,
    TaskView,
)

TASKS = (
    *("access-log-server-errors", "tools-executable", "current-release-link"),
    *("conf-unix-line-endings", "spool-empty-files", "production-pool-size"),
    *("restore-one-file", "warehouse-stock-value"),
)
COMMANDS = (
    "find tools -name '*.sh' -exec chmod 755 {} +",
    "ln -sfn releases/1.10.1 current",
    "grep -c '\" 5[0-9][0-9] ' access.log",
    "sed -i '/^.production/,/^$/ s/^pool_size = .*/pool_size = 40/' config/database.ini",
    "find conf -name '*.conf' -exec sed -i 's/\\r$//' {} +",
    'awk -F, \'$2=="LEJ" {sum+=$3*$4} END {printf "%.2f\\n", sum}\' inventory.csv',
    "find spool -empty -type f ! -name .gitkeep -delete",
    "mkdir restored; tar xzf backups/nightly.tar.gz -C restored --strip=2 etc/app/limits.conf",
)


class Policy:
    """A softmax over commands, linear in the words of the query.

    Args:
        queries: the queries that its vocabulary is taken from.
        seed: the seed of its draws. Each task has its own draws, so that they do not depend on the
            order of episodes that run at the same time.
    """

    def __init__(self, queries: Iterable[str], seed: int) -> None:
        words = sorted({word for query in queries for word in _words(query)})
        self._places = {word: place for place, word in enumerate(words)}
        self._weights = numpy.zeros((len(COMMANDS), len(words)))
        self._seed = seed
        self._draws: dict[str, numpy.random.Generator] = {}
        self._lock = threading.Lock()

    def features(self, query: str) -> Any:
        """Return a vector of length 1 with the words of a query."""
        found = numpy.zeros(len(self._places))
        found[[self._places[word] for word in _words(query) if word in self._places]] = 1.0
        return found / max(1.0, numpy.linalg.norm(found))

    def probabilities(self, query: str) -> Any:
        """Return how likely each command is."""
        scores = self._weights @ self.features(query)
        likely = numpy.exp(scores - scores.max())
        return likely / likely.sum()

    def draw(self, task: TaskView) -> str:
        """Draw a command by its probability."""
        with self._lock:  # episodes run at the same time
            if task.id not in self._draws:
                seed = [self._seed, *task.id.encode()]
                self._draws[task.id] = numpy.random.default_rng(seed)
            likely = self.probabilities(task.query)
            return COMMANDS[self._draws[task.id].choice(len(COMMANDS), p=likely)]

    def best(self, task: TaskView) -> str:
        """Return the likeliest command."""
        return COMMANDS[int(self.probabilities(task.query).argmax())]

    def learn(self, records: list[EpisodeRecord], rate: float) -> None:
        """Make commands likelier that did better than the other tries at their task."""
        change = numpy.zeros_like(self._weights)
        for query in sorted({record.task.query for record in records}):
            group = sorted(
                (COMMANDS.index(record.turns[0].action), record.reward)
                for record in records
                if record.task.query == query and record.graded
            )
            mean = sum(reward for _, reward in group) / max(1, len(group))
            for place, reward in group:
                gradient = -self.probabilities(query)
                gradient[place] += 1.0
                change += (reward - mean) * numpy.outer(gradient, self.features(query))
        self._weights += rate * change


def _words(query: str) -> set[str]:
    return set(re.findall(r"[a-z]{3,}", query.lower()))


def play(
    tasks: list[Task], pick: Callable[[TaskView], str], tries: int, sandboxes: SandboxProvider
) -> list[EpisodeRecord]:
    """Let a function pick the command of each episode, and return their records."""

    def agent(task: TaskView, env: AgentEnvironment) -> None:
        env.step(pick(task))
        env.submit()

    with pytest_intercode.run_rollouts(
        tasks, agent, n=tries, concurrency=8, provider=sandboxes
    ) as records:
        return list(records)


def mean_reward(records: list[EpisodeRecord]) -> float:
    return sum(sorted(record.reward for record in records)) / len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small policy on bash tasks.")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tries", type=int, default=4)
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sandbox", default="auto", help="docker, bubblewrap or auto")
    options = parser.parse_args()
    suite = pytest_intercode.make("bash").tasks
    tasks = [suite.find(name) for name in TASKS]
    policy = Policy((task.query for task in tasks), options.seed)
    sandboxes = SandboxProvider(SandboxSettings(options.sandbox))
    for step in range(options.steps):
        records = play(tasks, policy.draw, options.tries, sandboxes)
        print(f"step {step + 1:2}: mean reward {mean_reward(records):.3f}", flush=True)
        policy.learn(records, options.rate)
    records = play(tasks, policy.best, 1, sandboxes)
    sandboxes.close()
    solved = sum(record.solved for record in records)
    print(f"trained: mean reward {mean_reward(records):.3f}, {solved} of {len(tasks)} solved")


if __name__ == "__main__":
    main()
