"""What a run came to, read from its rows: which tries count, and of which task each is.

Reads nothing and imports no pytest: rows are given, as the results file has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pytest_intercode.core.record import UNGRADED

__all__ = ["TaskKey", "Try", "by_task", "counted", "key_of", "solved"]

_OURS = "::test_solves"


class TaskKey(NamedTuple):
    """What is the same for all tries of a task, in this run and in others.

    Attributes:
        env: the environment.
        suite: the suite; in InterCode's own rows, which name none, the dataset.
        task: the id; of a test function of the user's own, with that function.
    """

    env: str
    suite: str
    task: str

    def __str__(self) -> str:
        return f"{self.suite}/{self.task}" if self.suite else self.task


class Try(NamedTuple):
    """One episode that counts.

    Attributes:
        key: its task.
        repeat: which of the task's tries it is, from 1.
        outcome: as in the row; of InterCode's own rows, ``solved`` or ``failed`` by the reward.
        reward: the reward, in [0, 1].
        row: all of it.
    """

    key: TaskKey
    repeat: int
    outcome: str
    reward: float
    row: Mapping[str, Any]

    @property
    def graded(self) -> bool:
        """Whether it says something about the agent; faults of task and infrastructure do not."""
        return self.outcome not in UNGRADED

    @property
    def solved(self) -> bool:
        """Whether the agent solved the task."""
        return self.outcome == "solved"


def counted(rows: Iterable[Mapping[str, Any]]) -> list[Try]:
    """Return the tries that count, in the order of the rows.

    Of a try that was run again, the last row counts.
    """
    last: dict[tuple[TaskKey, int], Try] = {}
    for row in rows:
        made = _try(row)
        last.pop((made.key, made.repeat), None)
        last[made.key, made.repeat] = made
    return list(last.values())


def by_task(tries: Iterable[Try]) -> dict[TaskKey, list[Try]]:
    """Return the tries of each task, in order of their numbers."""
    found: dict[TaskKey, list[Try]] = {}
    for each in tries:
        found.setdefault(each.key, []).append(each)
    return {key: sorted(tries, key=lambda each: each.repeat) for key, tries in found.items()}


def solved(tries: Iterable[Try]) -> dict[TaskKey, list[bool]]:
    """Return, for each task with graded tries, whether each of these was solved."""
    graded = by_task(each for each in tries if each.graded)
    return {key: [each.solved for each in task] for key, task in graded.items()}


def key_of(env: str, suite: str, task: str, node_id: str = "") -> TaskKey:
    """Return the key of a task, as it is in rows.

    Args:
        env: the environment.
        suite: the suite.
        task: the id.
        node_id: pytest's node id, or its beginning up to the parameters.
    """
    function = node_id.partition("[")[0]
    own = bool(function) and not function.endswith(_OURS)
    return TaskKey(env, suite, f"{task} ({function})" if own else task)


def _try(row: Mapping[str, Any]) -> Try:
    dataset = str(row.get("dataset") or "")
    key = key_of(
        str(row.get("environment") or "").removeprefix("ic_"),
        str(row.get("suite") or dataset),
        str(row["task_id"]),
        str(row.get("node_id") or ""),
    )
    if "outcome" in row:
        return Try(key, int(row.get("repeat", 1)), row["outcome"], float(row["reward"]), row)
    reward = float((row.get("summary") or {}).get("max_reward") or 0.0)
    return Try(key, 1, "solved" if reward >= 1 else "failed", reward, row)
