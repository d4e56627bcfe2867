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
from pytest_intercode.linting.tasks import check_task, split_place
from pytest_intercode.suites.harbor.datasets import read_task_folder, task_folders
from pytest_intercode.suites.harbor.parts import MissingVariable
from pytest_intercode.system.suite_folder import SuiteFolder, SuitePath

__all__ = ["lint_folder", "lint_tasks"]


def lint_tasks(tasks: Sequence[Task], suite: Path, rules: Iterable[str]) -> list[Finding]:
    """Return the findings of rules in the tasks of a suite."""
    findings = [finding for task in tasks for finding in check_task(task, suite)]
    return _sort(findings, rules)


def lint_folder(
    path: Path, permissions: Permissions, rules: Iterable[str]
) -> tuple[int, list[Finding]]:
    """Return how many tasks a folder has, and the findings of rules in them.

    Args:
        path: a task folder, or a folder of task folders.
        permissions: what tasks may use of this machine, beyond what is in the folder.
        rules: the names of the rules.

    Raises:
        SuiteError: the folder contains no task.
    """
    with SuiteFolder(path, permissions) as top:
        folders = task_folders(top)
        findings = [finding for folder in folders for finding in _lint_one(folder)]
    return len(folders), _sort(findings, rules)


def _lint_one(folder: SuitePath) -> Iterator[Finding]:
    name = folder.name
    dockerfile: Path | None = None
    try:
        task = read_task_folder(folder, name)
        dockerfile = task.image.dockerfile if task.image else None
        yield from check_task(replace(task, id=name), folder.written, folder)
    except SuiteError as error:
        rule = "cannot-run" if isinstance(error, MissingVariable) else "cannot-load"
        yield _describe_error(rule, folder, error)
    try:
        yield from check_folder(folder, name, dockerfile)
    except (SuiteError, OSError) as error:
        yield _describe_error("cannot-load", folder, error)


def _describe_error(rule: str, folder: SuitePath, error: Exception) -> Finding:
    """Return a finding for an error, at the file that the error's message begins with, if any."""
    place, _, message = str(error).partition(": ")
    path, line = split_place(place)
    if message and path.startswith(f"{folder}/"):
        return Finding(rule, folder.name, path, line, message)
    return Finding(rule, folder.name, str(folder), 0, str(error).removeprefix(f"{folder}: "))


def _sort(findings: Iterable[Finding], rules: Iterable[str]) -> list[Finding]:
    """Return the findings of some rules, each once, by task and then in the order of the rules."""
    names = set(rules)
    order = {name: number for number, name in enumerate(RULES)}
    unique = dict.fromkeys(finding for finding in findings if finding.rule in names)
    return sorted(unique, key=lambda one: (one.task, order[one.rule], one.path, one.line))
