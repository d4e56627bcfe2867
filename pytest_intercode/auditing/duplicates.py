"""Finds duplicates: tasks on the same data with the same query, or with the same gold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from pytest_intercode.auditing.findings import Finding
from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import kind_of

__all__ = ["data_of", "find_duplicates", "normalised_gold"]

_WORD = re.compile(r"[^\W_]+|[^\w\s]")
_PUNCTUATION = ".!?,;:'\"`"


@lru_cache(8192)
def data_of(task: Task) -> tuple[Any, ...]:
    """Return a task's data: equal for tasks on the same files, or on the same database."""
    return kind_of(task.env).data_of(task)


def _normalised_query(task: Task) -> str:
    """Return the query with case, spaces and punctuation normalised."""
    words = _WORD.findall(task.query.casefold())
    return " ".join(word for word in words if word not in _PUNCTUATION)


@lru_cache(8192)
def normalised_gold(task: Task) -> str:
    """Return gold with its layout normalised: spaces, comments, and the case of SQL's words."""
    return kind_of(task.env).normalise_gold(task)


def find_duplicates(tasks: Iterable[Task]) -> Iterator[Finding]:
    """Yield a finding for each task that is a duplicate of an earlier one."""
    queries: dict[tuple[Any, ...], Task] = {}
    golds: dict[tuple[Any, ...], Task] = {}
    for task in tasks:
        data = data_of(task)
        query = queries.setdefault((*data, _normalised_query(task)), task)
        gold = golds.setdefault((*data, normalised_gold(task)), task) if task.gold else task
        if query is not task and gold is query:
            message = f"the query and the gold are those of {query.id}"
        elif query is not task:
            message = f"the query is that of {query.id}, on the same data; the golds differ"
        elif gold is not task:
            message = f"the gold is that of {gold.id}, on the same data"
        else:
            continue
        evidence = f"{(query if query is not task else gold).query}\n{task.query}"
        yield Finding(task.id, "no-duplicates", message, evidence)
