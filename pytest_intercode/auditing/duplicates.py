"""Tells tasks that are the same: the same data with the same query, or with the same gold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from pytest_intercode.auditing.findings import Finding
from pytest_intercode.auditing.mutations_sql import dialect_of, same_text
from pytest_intercode.core.task import Task
from pytest_intercode.suites.python_tests import parsed

__all__ = ["base_of", "duplicates", "same_gold"]

_WORD = re.compile(r"[^\W_]+|[^\w\s]")
_CLOSING = ".!?,;:'\"`"


@lru_cache(8192)
def _base(task: Task) -> tuple[Any, ...]:
    if task.env in ("python", "ctf"):
        return (task.env,)
    files = tuple(sorted((path, repr(spec)) for path, spec in task.files.items()))
    return (task.env, task.workdir, task.setup, task.archive, task.image, task.database, files)


def base_of(task: Task) -> tuple[Any, ...]:
    """Return what a task is about: equal for tasks on the same files, or on the same database."""
    return _base(task)


def same_query(task: Task) -> str:
    """Return a text that is the same for queries that differ in case, spaces and stops alone."""
    return " ".join(word for word in _WORD.findall(task.query.casefold()) if word not in _CLOSING)


@lru_cache(8192)
def same_gold(task: Task) -> str:
    """Return a text that is the same for golds that differ in their layout alone."""
    text = "\n".join(task.gold)
    if task.env == "sql":
        return same_text(text, dialect_of(task))
    if task.env == "python":
        tree = parsed(text)
        return " ".join(text.split()) if tree is None else ast.dump(tree)
    return " ".join(text.split())


def duplicates(tasks: Iterable[Task]) -> Iterator[Finding]:
    """Yield a finding for each task that an earlier one is the same as."""
    queries: dict[tuple[Any, ...], Task] = {}
    golds: dict[tuple[Any, ...], Task] = {}
    for task in tasks:
        base = base_of(task)
        query = queries.setdefault((*base, same_query(task)), task)
        gold = golds.setdefault((*base, same_gold(task)), task)
        if query is not task and gold is query:
            said = f"the query and the gold are those of {query.id}"
        elif query is not task:
            said = f"the query is that of {query.id}, on the same data; the golds differ"
        elif gold is not task:
            said = f"the gold is that of {gold.id}, on the same data"
        else:
            continue
        evidence = f"{(query if query is not task else gold).query}\n{task.query}"
        yield Finding(task.id, "no-duplicates", said, evidence)
