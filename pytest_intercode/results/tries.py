"""Which episodes of a run count, and of which task each is a try. Pure: records in, records out.

A try is the record that counts of an episode: the last one, if the episode was run again. Tries of
one task in two cells, such as those of two agents, are two tries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.results.cells import Cell, cell_of, has_one_cell

__all__ = [
    "TaskKey",
    "TryKey",
    "by_task",
    "counted_tries",
    "in_order_of_items",
    "key_of",
    "solved",
    "task_key",
    "try_key_of",
]

_BUNDLED_TEST_SUFFIX = "::test_solves"


class TaskKey(NamedTuple):
    """Identifies a task: the same for all of its tries, in this run and in others.

    Attributes:
        env: the environment.
        suite: the suite; in InterCode's own results, which name none, the dataset.
        task: the id; for a user's own test function, with that function.
    """

    env: str
    suite: str
    task: str

    def __str__(self) -> str:
        return f"{self.suite}/{self.task}" if self.suite else self.task


class TryKey(NamedTuple):
    """Identifies a try: the same for all of its records.

    Attributes:
        cell: the agent and the treatment.
        task: the task.
        repeat: which try at the task it is, from 1.
    """

    cell: Cell
    task: TaskKey
    repeat: int


def task_key(env: str, suite: str, task: str, node_id: str = "") -> TaskKey:
    """Return the key of a task.

    Args:
        env: the environment.
        suite: the suite.
        task: the id.
        node_id: pytest's node id, or its beginning up to the parameters.
    """
    function = node_id.partition("[")[0]
    user_defined = bool(function) and not function.endswith(_BUNDLED_TEST_SUFFIX)
    # A project test is its own task: the suite is its module, and the id is its function with the
    # number of the run.
    is_named = function == f"{suite}::{task.partition('[')[0].partition(' #')[0]}"
    return TaskKey(env, suite, f"{task} ({function})" if user_defined and not is_named else task)


def key_of(record: EpisodeRecord) -> TaskKey:
    """Return the key of the task that an episode is a try of."""
    task = record.task
    return task_key(task.env, task.suite_name, task.id, record.node_id)


def try_key_of(record: EpisodeRecord) -> TryKey:
    """Return the key of the try that an episode is a record of."""
    return TryKey(cell_of(record), key_of(record), record.task.repeat)


def counted_tries(records: Iterable[EpisodeRecord]) -> list[EpisodeRecord]:
    """Return the tries, in the order of the records that count."""
    records = list(records)
    one_cell = has_one_cell(records)
    last: dict[tuple[object, ...], EpisodeRecord] = {}
    for record in records:
        key = (key_of(record), record.task.repeat) if one_cell else try_key_of(record)
        # Setting a key again would keep its old position.
        last.pop(key, None)
        last[key] = record
    return list(last.values())


def in_order_of_items(tries: Sequence[EpisodeRecord]) -> list[EpisodeRecord]:
    """Return the tries in the order of their items, as far as the records have it.

    Concurrent episodes are recorded as they end. Suites stay together, even if the records come
    from several shards, each of which numbers its own items. Records without a position come after
    those of their suite that have one.
    """
    if all(record.item is None for record in tries):
        return list(tries)
    places: dict[tuple[str, str], float] = {}
    for record in tries:
        suite = _suite(record)
        places[suite] = min(places.get(suite, math.inf), _place(record))
    suites = {
        suite: position for position, suite in enumerate(sorted(places, key=places.__getitem__))
    }
    return sorted(
        tries,
        key=lambda record: (suites[_suite(record)], _place(record)),
    )


def _suite(record: EpisodeRecord) -> tuple[str, str]:
    return record.task.env, record.task.suite_name


def _place(record: EpisodeRecord) -> float:
    return math.inf if record.item is None else record.item


def by_task(tries: Iterable[EpisodeRecord]) -> dict[TaskKey, list[EpisodeRecord]]:
    """Return the tries of each task, in the order of their numbers, for all cells together."""
    tries_by_task: dict[TaskKey, list[EpisodeRecord]] = {}
    for record in tries:
        tries_by_task.setdefault(key_of(record), []).append(record)
    return {
        key: sorted(tries, key=lambda record: record.task.repeat)
        for key, tries in tries_by_task.items()
    }


def solved(tries: Iterable[EpisodeRecord]) -> dict[TaskKey, list[bool]]:
    """Return, for each task with graded tries, whether each of these was solved.

    Args:
        tries: tries of one cell.
    """
    graded = by_task(record for record in tries if record.graded)
    return {key: [record.succeeded for record in task] for key, task in graded.items()}
