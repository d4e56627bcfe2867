"""The judge test of InterCode-ALFA: pairs of commands that do the same, and pairs that do not.

ALFA has two accepted commands for each of its 300 tasks. One is gold, the other is played as an
agent: a judge should accept it. Then every task gets the second command of another task, which a
judge should refuse. What a judge makes of both gives its precision, recall and F1.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pytest_intercode.agents.agent_environment import AgentEnvironment
from pytest_intercode.agents.protocol import Agent
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import RewardOptions, Task, TaskView
from pytest_intercode.core.turn import Profile
from pytest_intercode.errors import GoldError
from pytest_intercode.rewards.bash_strict import (
    BashState,
    bash_strict_reward,
    bash_strict_reward_again,
)
from pytest_intercode.rollouts.rollout import Rollout, Services
from pytest_intercode.rollouts.spec import RolloutSpec
from pytest_intercode.sandboxes.provider import SandboxProvider

__all__ = ["PAPER", "Judged", "Pair", "crossed", "judge", "pairs", "table"]

PAPER = (
    ("InterCode's judge (execution, tf-idf)", 0.99, 0.65, 0.79),
    ("execution, mxbai-embed-large", 0.97, 0.83, 0.90),
    ("execution, GPT-4", 0.99, 0.91, 0.95),
)
"""Precision, recall and F1 that the paper (arXiv 2502.06858, NAACL 2025) measured."""


@dataclass(frozen=True)
class Pair:
    """A task, and the command that is played in it."""

    task: Task
    command: str
    equivalent: bool


def pairs(tasks: Sequence[Task], seed: int) -> list[Pair]:
    """Return each task with its own second command, and each with that of another task.

    The others are a permutation without fixed points. A command that is one of the task's own, as
    some tasks share them, is moved on.

    Args:
        tasks: the tasks, with ``gold2`` in their metadata.
        seed: of the permutation.
    """
    chance = random.Random(seed)
    seconds = [str(task.metadata["gold2"]) for task in tasks]
    own_commands = [{*task.gold, second} for task, second in zip(tasks, seconds, strict=True)]
    order = list(range(len(tasks)))
    while any(
        seconds[other_index] in own_commands[index] for index, other_index in enumerate(order)
    ):
        chance.shuffle(order)
        for index in range(len(order)):
            if seconds[order[index]] in own_commands[index]:
                other_index = chance.randrange(len(order))
                order[index], order[other_index] = order[other_index], order[index]
    equivalent = [Pair(task, second, True) for task, second in zip(tasks, seconds, strict=True)]
    shuffled = [
        Pair(task, seconds[position], False) for task, position in zip(tasks, order, strict=True)
    ]
    return equivalent + shuffled


@dataclass
class Judged:
    """What a judge made of pairs.

    Attributes:
        accepted: equivalent pairs that it accepted.
        missed: those that it refused.
        fooled: pairs of different commands that it accepted.
        refused: those that it refused.
    """

    accepted: int = 0
    missed: int = 0
    fooled: int = 0
    refused: int = 0

    def add(self, equivalent: bool, accepted: bool) -> None:
        """Count a pair."""
        if equivalent:
            self.accepted += accepted
            self.missed += not accepted
        else:
            self.fooled += accepted
            self.refused += not accepted

    @property
    def precision(self) -> float:
        """The share of equivalent pairs among those that it accepted."""
        return self.accepted / max(self.accepted + self.fooled, 1)

    @property
    def recall(self) -> float:
        """The share of equivalent pairs that it accepted."""
        return self.accepted / max(self.accepted + self.missed, 1)

    @property
    def f1(self) -> float:
        """The harmonic mean of both."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def judge(
    those: Sequence[Pair], provider: SandboxProvider, workers: int = 2
) -> Iterator[tuple[Pair, dict[str, bool], EpisodeRecord | None]]:
    """Play pairs under both profiles; yield what each judge makes of each, and the strict record.

    ``strict`` compares outputs as they are, ``strict, lenient`` as the task declares; both grade
    the same episode.
    """

    def strictly(pair: Pair) -> EpisodeRecord | None:
        record = _play(pair, "strict", provider)
        return None if record is None or "ungradable" in record.state else record

    with ThreadPoolExecutor(workers) as pool:
        records = list(pool.map(strictly, those))
    for pair, record in zip(those, records, strict=True):
        paper = _play(pair, "paper", provider)  # one at a time: its rewards depend on the order
        judged = {"paper": paper is not None and paper.reward >= 1.0}
        for name, options in _OPTIONS.items():
            reward_options = options(pair.task)
            judged[name] = record is not None and _accepts(record, reward_options)
        yield pair, judged, record


def _exact(task: Task) -> RewardOptions:
    return replace(task.reward, lenient=(), normalise=())


_OPTIONS: dict[str, Callable[[Task], RewardOptions]] = {
    "strict": _exact,
    "strict, lenient": lambda task: task.reward,
}


def crossed(played: Sequence[tuple[Task, EpisodeRecord]]) -> tuple[int, Counter[str]]:
    """Hold what every second command printed against the gold of every other task of its machine.

    It takes no further sandbox. Only tasks count where neither command changes a file.

    Returns:
        How many pairs there are, and how many of them each judge accepts.
    """
    outputs: dict[str, list[tuple[Task, str, str]]] = defaultdict(list)
    for task, record in played:
        sides = record.state["agent"], record.state["gold"]
        if not any(side["touched"] or side["digest"] for side in sides):
            outputs[task.dataset].append((task, sides[0]["output"], sides[1]["output"]))
    count, accepted = 0, Counter[str]()
    for answers in outputs.values():
        for (task, _, gold), (_, output, _) in itertools.permutations(answers, 2):
            count += 1
            for name, options in _OPTIONS.items():
                state = BashState(output), BashState(gold)
                accepted[name] += bash_strict_reward(*state, options(task)).value >= 1.0
    return count, accepted


def _accepts(record: EpisodeRecord, options: RewardOptions) -> bool:
    return bash_strict_reward_again(record.state, options).value >= 1.0


def _play(pair: Pair, profile: Profile, provider: SandboxProvider) -> EpisodeRecord | None:
    """Play a command in a task; None where gold does not run to its end."""

    def act(_: TaskView, env: AgentEnvironment) -> None:
        env.step(pair.command)
        env.submit()

    spec = RolloutSpec(pair.task, profile=profile)
    rollout = Rollout(spec, Services(provider, isolate=lambda: contextlib.nullcontext([])))
    try:
        environment = rollout.make_environment()
        rollout.prepare(environment)
        return rollout.run(Agent("loop", run=act), environment)
    except GoldError:
        return None
    finally:
        rollout.close()


def table(judges: dict[str, Judged]) -> list[str]:
    """Return the table of judges, the paper's below ours."""
    lines = ["| judge | precision | recall | F1 | wrong |", "| --- | --- | --- | --- | --- |"]
    for name, judge in judges.items():
        numbers = f"{judge.precision:.3f} | {judge.recall:.3f} | {judge.f1:.3f}"
        lines.append(f"| `{name}` | {numbers} | {judge.missed} refused, {judge.fooled} accepted |")
    for name, precision, recall, f1 in PAPER:
        lines.append(f"| {name}, in the paper | {precision:.2f} | {recall:.2f} | {f1:.2f} | |")
    return lines
