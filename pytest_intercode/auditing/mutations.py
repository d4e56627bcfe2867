"""Wrong answers to a task: those of its kind, and the golds of other tasks. Runs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from pytest_intercode.auditing.duplicates import data_of, normalised_gold
from pytest_intercode.core.task import Task
from pytest_intercode.environments.answer import Answer
from pytest_intercode.environments.registry import kind_of

__all__ = ["MAX_ANSWERS", "idle_answers", "wrong_answers"]

MAX_ANSWERS = 6
"""How many wrong answers are tried for one task."""

_MAX_SIBLINGS = 2  # golds of other tasks that are tried


def idle_answers(task: Task) -> Iterator[Answer]:
    """Yield answers that change nothing."""
    yield Answer(description="a submission at once")
    action = kind_of(task.env).idle_action
    if action:
        yield Answer((action,), description=f"{action} and a submission")


def wrong_answers(task: Task, tasks: Sequence[Task]) -> list[Answer]:
    """Return wrong but plausible answers, at most :data:`MAX_ANSWERS` of them.

    Args:
        task: the task.
        tasks: the tasks of its suite, whose golds are wrong answers, too.
    """
    kind = kind_of(task.env)
    answers: Iterable[Answer] = kind.wrong_answers(task)
    if kind.siblings_are_wrong:
        changed = itertools.islice(answers, MAX_ANSWERS - 1)
        answers = itertools.chain(changed, _find_sibling_golds(task, tasks))
    return list(itertools.islice(answers, MAX_ANSWERS))


def _find_sibling_golds(task: Task, tasks: Sequence[Task]) -> Iterator[Answer]:
    """Yield the golds of other tasks on the same data, first those that come next in the suite."""
    data, gold = data_of(task), normalised_gold(task)
    index = next((n for n, candidate in enumerate(tasks) if candidate.id == task.id), 0)
    count = 0
    for sibling in (*tasks[index + 1 :], *tasks[:index]):
        if count == _MAX_SIBLINGS:
            return
        if (
            sibling.gold
            and sibling.env == task.env
            and data_of(sibling) == data
            and normalised_gold(sibling) != gold
        ):
            count += 1
            yield Answer(
                tuple(sibling.gold), description=f"the gold of {sibling.id}", certain=False
            )
