"""Empty and wrong answers to a task, whatever its environment. Runs nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pytest_intercode.auditing import mutations_bash, mutations_python, mutations_sql
from pytest_intercode.auditing.duplicates import base_of, same_gold
from pytest_intercode.auditing.playing import Answer, Played
from pytest_intercode.core.task import Task

__all__ = ["MOST", "empty_answers", "idle_answers", "wrong_answers"]

MOST = 6
"""How many wrong answers are tried at one task."""

_SIBLINGS = 2
_IDLE = {"bash": ":", "ctf": ":", "python": "pass", "sql": "SELECT 1"}


def idle_answers(task: Task) -> Iterator[Answer]:
    """Yield what an agent does that does nothing."""
    yield Answer(what="a submission at once")
    action = _IDLE.get(task.env)
    if action is not None:
        yield Answer((action,), what=f"{action} and a submission")


def empty_answers(task: Task, gold: Played) -> Iterator[Answer]:
    """Yield answers that hold nothing; ``gold`` tells how many columns an answer has."""
    if task.env == "bash":
        yield Answer(("echo",), what="an empty line")
        yield Answer(submitted=" ", what="a blank")
    elif task.env == "ctf":
        flag, brace, _ = task.gold[0].partition("{")
        yield Answer(submitted=f"{flag}{{}}" if brace else " ", what="an empty flag")
    elif task.env == "python":
        yield mutations_python.empty(task)
    elif task.env == "sql":
        width = gold.state.get("gold", {}).get("width", 1)
        yield Answer((mutations_sql.no_rows(max(width, 1)),), what="no rows")


def wrong_answers(task: Task, tasks: Sequence[Task]) -> list[Answer]:
    """Return wrong but plausible answers, at most :data:`MOST` of them.

    Args:
        task: the task.
        tasks: the tasks of its suite, whose golds are wrong answers, too.
    """
    if task.env == "ctf":
        return _flags(task.gold[0])
    if task.env == "python":
        answers = itertools.chain(
            mutations_python.constants(task), mutations_python.changed_gold(task)
        )
    elif task.env == "sql":
        answers = itertools.chain(
            itertools.islice(mutations_sql.changed_gold(task), MOST - 1), _golds(task, tasks)
        )
    elif task.env == "bash":
        answers = itertools.chain(
            itertools.islice(mutations_bash.changed_gold(task), MOST - 1), _golds(task, tasks)
        )
    else:
        answers = itertools.chain()
    return list(itertools.islice(answers, MOST))


def _golds(task: Task, tasks: Sequence[Task]) -> Iterator[Answer]:
    """Yield the golds of other tasks on the same data, those that come next in the suite first."""
    base, own = base_of(task), same_gold(task)
    at = next((n for n, other in enumerate(tasks) if other.id == task.id), 0)
    found = 0
    for other in (*tasks[at + 1 :], *tasks[:at]):
        if found == _SIBLINGS:
            return
        if other.env == task.env and base_of(other) == base and same_gold(other) != own:
            found += 1
            yield Answer(tuple(other.gold), what=f"the gold of {other.id}", surely=False)


def _flags(flag: str) -> list[Answer]:
    """Return flags of the same form, with letters changed."""
    inner = flag.find("{") + 1
    letters = [at for at in range(inner, len(flag)) if flag[at].isalnum()]
    made = []
    for places in (letters[-1:], letters[:2], letters):
        changed = list(flag)
        for at in places:
            changed[at] = _next(changed[at])
        made.append("".join(changed))
    return [
        Answer(submitted=text, what="a flag with letters changed")
        for text in dict.fromkeys(made)
        if text != flag
    ]


def _next(letter: str) -> str:
    for first, last in ("az", "AZ", "09"):
        if first <= letter <= last:
            return first if letter == last else chr(ord(letter) + 1)
    return "x"
