"""A short name for what a task is, so that results of one that was changed since are told apart."""

from __future__ import annotations

import hashlib

from pytest_intercode.core.task import Task

__all__ = ["digest"]

_LENGTH = 16


def digest(task: Task) -> str:
    """Return 16 hexadecimal digits of SHA-256 over what the agent gets and is graded by.

    Where the task was read from, its labels, and its limits of time are no part of it.
    """
    files = sorted((path, repr(spec)) for path, spec in task.files.items())
    database = task.database and (task.database.engine, task.database.name, task.database.writes)
    content = (
        *(task.query, task.gold, task.env, files, task.setup, task.workdir, task.reward, database),
        *(task.tests, task.test_setup, task.entry),
    )
    return hashlib.sha256(repr(content).encode("utf-8", "backslashreplace")).hexdigest()[:_LENGTH]
