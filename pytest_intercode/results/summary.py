"""What a run came to: rates, rewards, pass@k and what was spent, for any set of its tries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pytest_intercode.results.tries import Try, by_task
from pytest_intercode.statistics.rates import (
    Interval,
    bootstrap_mean,
    effective_tries,
    pass_at_k,
    pass_hat_k,
    wilson,
)

__all__ = ["HARDNESS", "Summary", "groups", "rank_of_hardness", "summarise"]

HARDNESS = ("easy", "medium", "hard", "extra")
"""What the data sets call it, in order."""


def rank_of_hardness(value: str) -> tuple[int, str]:
    """Return what to sort by: from easy to extra, and all else by name after it."""
    return HARDNESS.index(value) if value in HARDNESS else len(HARDNESS), value


@dataclass(frozen=True)
class Summary:
    """What some tries came to.

    Attributes:
        tasks: how many tasks they are of.
        tries: how many there are.
        graded: how many of them say something about the agent.
        spoiled: how many the infrastructure spoiled; they count in nothing below but what was
            spent.
        solved: how many solved their task.
        rate: solved over graded; None where none was graded, as in what follows.
        rate_interval: its 95 % interval, Wilson's, with tasks as clusters.
        reward: the mean reward.
        reward_interval: its 95 % interval, the bootstrap's, with tasks as clusters.
        pass_at: pass@k, the mean over tasks, for k from 1 to the fewest graded tries of a task.
        pass_hat: pass^k, the same way.
        turns: the mean number of turns.
        seconds: the mean duration; None where no row tells any.
        tokens: all tokens that were used, in and out, by all tries together.
        cost: what all tries cost together; None where no row tells any.
    """

    tasks: int
    tries: int
    graded: int
    spoiled: int
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


def summarise(tries: Iterable[Try]) -> Summary:
    """Return what tries came to."""
    tries = list(tries)
    tasks = list(by_task(each for each in tries if each.graded).values())
    graded = [each for task in tasks for each in task]
    solved = sum(each.solved for each in graded)
    used = [each.row.get("usage") or {} for each in tries]
    costs = [usage["cost"] for usage in used if usage.get("cost") is not None]
    tokens = sum(usage.get("input_tokens", 0) + usage.get("output_tokens", 0) for usage in used)
    seconds = [float(each.row["seconds"]) for each in graded if "seconds" in each.row]
    counts = Counter((len(task), sum(each.solved for each in task)) for task in tasks)
    return Summary(
        tasks=len({each.key for each in tries}),
        tries=len(tries),
        graded=len(graded),
        spoiled=len(tries) - len(graded),
        solved=solved,
        rate=solved / len(graded) if graded else None,
        rate_interval=_rate_interval(tasks),
        reward=_mean([each.reward for each in graded]),
        reward_interval=(
            bootstrap_mean([[each.reward for each in task] for task in tasks]) if tasks else None
        ),
        pass_at=_by_k(counts, pass_at_k),
        pass_hat=_by_k(counts, pass_hat_k),
        turns=_mean([_turns(each.row) for each in graded]),
        seconds=_mean(seconds),
        tokens=float(tokens),
        cost=sum(costs) if costs else None,
    )


def groups(
    tries: Iterable[Try], by: Literal["env", "dataset", "hardness", "tag"]
) -> dict[str, list[Try]]:
    """Return tries by something that their rows tell, ``-`` where they tell nothing.

    Args:
        tries: the tries.
        by: what; of two tags, a try is in both groups.
    """
    found: dict[str, list[Try]] = {}
    for each in tries:
        row = each.row
        if by == "env":
            names = [each.key.env]
        elif by == "tag":
            names = list(dict.fromkeys(row.get("tags") or ()))
        else:
            names = [row.get(by) or ""]
        for name in names or [""]:
            found.setdefault(name or "-", []).append(each)
    return found


def _rate_interval(tasks: Sequence[Sequence[Try]]) -> Interval | None:
    if not tasks:
        return None
    solved = [[each.solved for each in task] for task in tasks]
    count = effective_tries(solved)
    return wilson(count * sum(map(sum, solved)) / sum(map(len, solved)), count)


def _by_k(
    counts: Counter[tuple[int, int]], estimate: Callable[[int, int, int], float]
) -> dict[int, float]:
    """Return the mean of an estimate over tasks, which are given by their tries and successes."""
    fewest = min((tries for tries, _ in counts), default=0)
    return {
        k: sum(n * estimate(*task, k) for task, n in counts.items()) / counts.total()
        for k in range(1, fewest + 1)
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _turns(row: Mapping[str, Any]) -> int:
    taken = (row.get("summary") or {}).get("turns_taken")
    history = row["turn_history"]
    return (
        len(history.get("actions") or history.get("valid_action") or ()) if taken is None else taken
    )
