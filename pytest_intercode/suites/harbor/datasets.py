"""Finding of task folders: a single one, a folder of them, or those that a registry lists."""

from __future__ import annotations

import posixpath
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError, MissingFile, SuiteError, suggestion
from pytest_intercode.suites.harbor import folder as harbor
from pytest_intercode.suites.harbor import terminal_bench
from pytest_intercode.suites.harbor.config import read_toml
from pytest_intercode.suites.harbor.parts import read_text
from pytest_intercode.system.rows import read_json
from pytest_intercode.system.suite_folder import SuiteFolder, SuitePath

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["folder_tasks", "read_task_folder", "registry_tasks", "task_folders"]

_DATASET_FILE = "dataset.toml"


def folder_tasks(path: Path, permissions: Permissions = NOTHING) -> list[Task]:
    """Return the tasks of a folder: its own, or those of the folders in it.

    If one of several task folders is invalid, its task is skipped, with the reason.

    Args:
        path: the folder; the tasks may use all files below it.
        permissions: further permissions of the tasks on this machine.

    Raises:
        SuiteError: the folder is a single task, and it is invalid; or there are no tasks.
    """
    with SuiteFolder(path, permissions) as top:
        if _is_task(top):
            return [read_task_folder(top, path.name)]
        suite = _name_of(top)
        return _unique([_task_or_reason(folder, suite) for folder in task_folders(top)])


def task_folders(top: SuitePath) -> list[SuitePath]:
    """Return the task folders of a folder: itself, or the folders in it.

    Raises:
        MissingFile: there are none.
    """
    if _is_task(top):
        return [top]
    folders = [folder for folder in top.iterdir() if _may_be_task(folder)]
    if not folders:
        raise MissingFile(
            f"{top}: contains no task: a task is a folder with {harbor.CONFIG} (Harbor) or "
            f"{terminal_bench.CONFIG} (Terminal-Bench 1); give one, or a folder of them"
        )
    return folders


def registry_tasks(path: Path, permissions: Permissions = NOTHING) -> list[Task]:
    """Return the tasks of a dataset that a registry lists.

    Args:
        path: the file, followed by ``:NAME`` or ``:NAME@VERSION`` if it lists several. The tasks
            may use all files below its folder.
        permissions: further permissions of the tasks on this machine.

    Raises:
        SuiteError: it is not a registry, does not list the dataset, or the tasks are elsewhere.
    """
    file, _, dataset = path.name.partition(":")
    if not path.parent.is_dir():
        raise MissingFile(f"{path.parent}: there is no such folder")
    with SuiteFolder(path.parent, permissions) as top:
        return _read_registry(top / file, dataset)


def _read_registry(path: SuitePath, dataset: str) -> list[Task]:
    rows = _rows(path)
    names = [_full_name(row) for row in rows]
    fitting = [row for row in rows if dataset in ("", row["name"], _full_name(row))]
    if len(fitting) != 1:
        problem = f"{dataset!r} is not one" if dataset else "name one"
        raise ConfigurationError(
            f"{path}: {problem} of its datasets: {', '.join(names) or 'none'}; give it after a "
            f"colon, as in {path}:NAME@VERSION.{suggestion(dataset, names)}"
        )
    row = fitting[0]
    suite = str(row["name"])
    tasks = [
        _task_or_reason(_task_folder(path, suite, task), suite) for task in _list_tasks(path, row)
    ]
    return _unique(tasks)


def _rows(path: SuitePath) -> list[dict[str, Any]]:
    rows = read_json(path)
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    ):
        raise SuiteError(
            f"{path}: a registry must be a list of datasets, each with a name and tasks"
        )
    return rows


def _full_name(row: dict[str, Any]) -> str:
    version = row.get("version")
    return f"{row['name']}@{version}" if version else str(row["name"])


def _list_tasks(path: SuitePath, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a dataset; Terminal-Bench 1 lists a folder and the ids in it."""
    tasks = row.get("tasks")
    if tasks is None and isinstance(row.get("dataset_path"), str):
        dataset_path = row["dataset_path"]
        folder = path.parent / dataset_path
        if not folder.is_dir():
            raise MissingFile(
                f"{path}: {row['name']}: there is no folder {folder}. Get it from "
                f"{row.get('github_url') or 'where it is published'}"
            )
        task_ids = row.get("task_id_subset")
        names = [item.name for item in folder.iterdir() if _may_be_task(item)]
        return [{"path": posixpath.join(dataset_path, str(name))} for name in (task_ids or names)]
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise SuiteError(f"{path}: {row['name']}: tasks: a list of tasks is needed")
    return tasks


def _task_folder(path: SuitePath, suite: str, task: dict[str, Any]) -> SuitePath:
    """Return the folder of a listed task.

    A task of a repository is also searched below the registry, where a checkout may be.
    """
    task_path = task.get("path")
    if not isinstance(task_path, str) or not task_path:
        raise SuiteError(f"{path}: {suite}: a task has no path: {task!r:.80}")
    folder = path.parent / posixpath.expanduser(task_path)
    url = task.get("git_url")
    if not folder.is_dir() and url:
        raise MissingFile(
            f"{path}: {suite}: {task_path} is in the repository {url}, commit "
            f"{task.get('git_commit_id') or 'HEAD'}. Get that with git, and give its folder, or "
            f"put it next to {path.name}"
        )
    return folder


def _is_task(path: SuitePath) -> bool:
    return (path / harbor.CONFIG).is_file() or (path / terminal_bench.CONFIG).is_file()


def _may_be_task(path: SuitePath) -> bool:
    """Whether a folder is a task, or leads to a place that may not be read."""
    try:
        return _is_task(path)
    except SuiteError:
        return True


def read_task_folder(path: SuitePath, suite: str) -> Task:
    """Return the task of a folder.

    Raises:
        SuiteError: one of its files is missing or wrong.
    """
    make_task = harbor.harbor_task
    if not (path / harbor.CONFIG).is_file():
        make_task = terminal_bench.terminal_bench_task
    try:
        return path.permissions.limit(make_task(path, suite))
    except RecursionError:  # deeply nested tables
        raise SuiteError(f"{path}: its description is nested too deeply") from None


def _task_or_reason(path: SuitePath, suite: str) -> Task:
    """Return a task; if its folder is invalid, one that is skipped with the reason."""
    try:
        return read_task_folder(path, suite)
    except SuiteError as error:
        reason = str(error)
    except Exception as error:  # any other problem with one folder must not affect the others
        reason = f"{path}: cannot be read: {type(error).__name__}: {error}"
    name = path.name or str(path)
    return Task(
        id=harbor.task_id(name),
        query=name,
        gold=(),
        env="swe",
        suite=suite,
        dataset=suite,
        source=str(path / harbor.CONFIG),
        skip=reason,
    )


def _unique(tasks: list[Task]) -> list[Task]:
    """Give tasks with equal ids their folders' names, and numbers if these are equal, too."""
    counts = Counter(task.id for task in tasks)
    names = [
        harbor.task_id(PurePosixPath(task.source).parent.name) if counts[task.id] > 1 else task.id
        for task in tasks
    ]
    name_counts = Counter(names)
    used_names: set[str] = set()
    result = []
    for task, name in zip(tasks, names, strict=True):
        numbered = (f"{name}.{number}" for number in count(2))
        name = (
            name
            if name not in used_names
            else next(n for n in numbered if n not in {*used_names, *name_counts})
        )
        used_names.add(name)
        result.append(replace(task, id=name))
    return result


def _name_of(path: SuitePath) -> str:
    """Return the name of a folder of tasks: that in its ``dataset.toml``, or the folder's own."""
    if (path / _DATASET_FILE).is_file():
        raw = read_toml(read_text(path / _DATASET_FILE, "the dataset"), str(path / _DATASET_FILE))
        dataset = raw.get("dataset")
        if isinstance(dataset, dict) and isinstance(dataset.get("name"), str):
            return harbor.task_id(dataset["name"].rpartition("/")[2])
    return path.place().resolve().name
