"""The statistics of a run: rates, rewards, pass@k and what was used up, for any set of tries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.cells import group_by_cell, has_one_cell
from pytest_intercode.results.recorded import is_ours
from pytest_intercode.results.tries import by_task, key_of
from pytest_intercode.statistics.rates import (
    Interval,
    bootstrap_mean,
    clustered_wilson,
    pass_at_k,
    pass_hat_k,
)

__all__ = [
    *("HARDNESS", "Grouping", "Summary", "format_interval", "format_number", "format_percent"),
    *("groups", "rank_of_hardness", "summarise"),
]

HARDNESS = ("easy", "medium", "hard", "extra")
"""The names of the datasets for hardness, in order."""

Grouping: TypeAlias = Literal["env", "dataset", "hardness", "tag"]
"""The properties by which tries can be grouped."""


def rank_of_hardness(value: str) -> tuple[int, str]:
    """Return the sort key: from easy to extra, and then all other values by name."""
    return HARDNESS.index(value) if value in HARDNESS else len(HARDNESS), value


@dataclass(frozen=True)
class Summary:
    """The statistics of some tries.

    Attributes:
        tasks: the number of tasks.
        tries: the number of tries.
        graded: how many of them say something about the agent. The others do not count below,
            except in the errors, tokens and cost.
        infrastructure_errors: how many failed because of the infrastructure.
        task_errors: how many failed because of their task.
        solved: how many solved their task.
        rate: solved over graded; None if none was graded, as are the following.
        rate_interval: its 95 % interval, Wilson's, with tasks as clusters.
        reward: the mean reward.
        reward_interval: its 95 % interval, the bootstrap's, with tasks as clusters.
        pass_at: pass@k, the mean over tasks, for k from 1 to the fewest graded tries of a task. A
            task in two cells counts as two.
        pass_hat: pass^k, the same way.
        turns: the mean number of turns.
        seconds: the mean duration; None for InterCode's results, which do not have durations.
        tokens: all tokens that were used, input and output, by all tries together.
        cost: the cost of all tries together; None if no price is known.
        cached_tokens: input tokens that were read from a cache, by all tries together.
    """

    tasks: int
    tries: int
    graded: int
    infrastructure_errors: int
    task_errors: int
    solved: int
    rate: float | None = None
    rate_interval: Interval | None = None
    reward: float | None = None
    reward_interval: Interval | None = None
    pass_at: dict[int, float] = field(default_factory=dict)
    pass_hat: dict[int, float] = field(default_factory=dict)
    turns: float | None = None
    seconds: float | None = None
    tokens: float = 0.0
    cost: float | None = None
    cached_tokens: float = 0.0


def summarise(tries: Iterable[EpisodeRecord]) -> Summary:
    """Return the statistics of tries."""
    tries = list(tries)
    tasks = list(by_task(record for record in tries if record.graded).values())
    graded = [record for task in tasks for record in task]
    solved = sum(record.succeeded for record in graded)
    costs = [record.usage.cost for record in tries if record.usage.cost is not None]
    outcomes = Counter(record.outcome for record in tries)
    # If a task is in two cells, such as those of two agents, pass@k must not mix them.
    task_groups = tasks
    if not has_one_cell(graded):
        task_groups = [
            tries_of_cell for task in tasks for tries_of_cell in group_by_cell(task).values()
        ]
    counts = Counter((len(task), sum(record.succeeded for record in task)) for task in task_groups)
    return Summary(
        tasks=len({key_of(record) for record in tries}),
        tries=len(tries),
        graded=len(graded),
        infrastructure_errors=outcomes["infrastructure-error"],
        task_errors=outcomes["task-error"],
        solved=solved,
        rate=solved / len(graded) if graded else None,
        rate_interval=(
            clustered_wilson([[record.succeeded for record in task] for task in tasks])
            if tasks
            else None
        ),
        reward=_mean([record.reward for record in graded]),
        reward_interval=(
            bootstrap_mean([[record.reward for record in task] for task in tasks])
            if tasks
            else None
        ),
        pass_at=_by_k(counts, pass_at_k),
        pass_hat=_by_k(counts, pass_hat_k),
        turns=_mean([len(record.turns) for record in graded]),
        seconds=_mean([record.seconds for record in graded if is_ours(record)]),
        tokens=float(sum(record.usage.tokens for record in tries)),
        cost=sum(costs) if costs else None,
        cached_tokens=float(sum(record.usage.cached_tokens for record in tries)),
    )


def groups(tries: Iterable[EpisodeRecord], by: Grouping) -> dict[str, list[EpisodeRecord]]:
    """Return tries grouped by a property of their tasks; ``-`` for tasks without it.

    Args:
        tries: the tries.
        by: the property; a try whose task has two tags is in both groups.
    """
    grouped: dict[str, list[EpisodeRecord]] = {}
    for record in tries:
        task = record.task
        values = {
            "env": (task.env,),
            "dataset": (task.dataset,),
            "hardness": (task.hardness,),
            "tag": tuple(dict.fromkeys(task.tags)) or ("",),
        }
        for name in values[by]:
            grouped.setdefault(name or "-", []).append(record)
    return grouped


def _by_k(
    counts: Counter[tuple[int, int]], estimate: Callable[[int, int, int], float]
) -> dict[int, float]:
    """Return the mean of an estimate over tasks, which are counted by tries and successes."""
    fewest = min((tries for tries, _ in counts), default=0)
    return {
        k: sum(n * estimate(*task, k) for task, n in counts.items()) / counts.total()
        for k in range(1, fewest + 1)
    }


def format_percent(share: float | None) -> str:
    """Return a share as tables show it; ``-`` for None."""
    return "-" if share is None else f"{share:.1%}"


def format_number(value: float | None, digits: int = 3) -> str:
    """Return a number as tables show it; ``-`` for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def format_interval(interval: Interval | None, *, percent: bool = True) -> str:
    """Return an interval as tables show it; ``-`` for None."""
    if interval is None:
        return "-"
    if percent:
        return f"{100 * interval.low:.0f}-{100 * interval.high:.0f}%"
    return f"{interval.low:.3f}-{interval.high:.3f}"


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
