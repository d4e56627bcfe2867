"""Finds what is wrong with the tasks that a user names: task folders, a suite, a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.errors import SuiteError
from pytest_intercode.linting.folders import check_folder
from pytest_intercode.linting.rules import RULES, Finding
from pytest_intercode.linting.tasks import check_task
from pytest_intercode.suites.harbor.datasets import read_task_folder, task_folders
from pytest_intercode.suites.harbor.parts import MissingVariable
from pytest_intercode.system.suite_folder import SuiteFolder, SuitePath

__all__ = ["lint_folder", "lint_tasks"]


def lint_tasks(tasks: Sequence[Task], suite: Path, rules: Iterable[str]) -> list[Finding]:
    """Return what rules find in the tasks of a suite."""
    findings = [finding for task in tasks for finding in check_task(task, suite)]
    return _sort(findings, rules)


def lint_folder(
    path: Path, permissions: Permissions, rules: Iterable[str]
) -> tuple[int, list[Finding]]:
    """Return how many tasks a folder has, and what rules find in them.

    Args:
        path: a task folder, or a folder of them.
        permissions: what they may use of this machine, beyond what is in the folder.
        rules: the names of the rules.

    Raises:
        SuiteError: it holds no task.
    """
    with SuiteFolder(path, permissions) as top:
        folders = task_folders(top)
        findings = [finding for folder in folders for finding in _lint_one(folder)]
    return len(folders), _sort(findings, rules)


def _lint_one(folder: SuitePath) -> Iterator[Finding]:
    name = folder.name
    try:
        task = read_task_folder(folder, name)
    except SuiteError as error:
        rule = "cannot-run" if isinstance(error, MissingVariable) else "cannot-load"
        text = str(error).removeprefix(f"{folder}/").removeprefix(f"{folder}: ")
        yield Finding(rule, name, str(folder), 0, text)
    else:
        yield from check_task(replace(task, id=name), folder.written)
    try:
        yield from check_folder(folder, name)
    except (SuiteError, OSError) as error:
        yield Finding("cannot-load", name, str(folder), 0, str(error))


def _sort(findings: Iterable[Finding], rules: Iterable[str]) -> list[Finding]:
    """Return findings of these rules, each once, by task and then in the order of the rules."""
    names = set(rules)
    order = {name: number for number, name in enumerate(RULES)}
    unique = dict.fromkeys(finding for finding in findings if finding.rule in names)
    return sorted(unique, key=lambda one: (one.task, order[one.rule], one.path, one.line))
