"""Finds the tasks of recorded episodes: in named suites, suites of node ids, our own, data sets.

Each suite and data set is read once, and only when an episode needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.core.record import EpisodeRecord
from pytest_intercode.core.task import Task
from pytest_intercode.environments.registry import is_environment, kind_of
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.results.recorded import RecordedRun, comparable_query, is_ours
from pytest_intercode.suites.catalogue import (
    bundled_tasks,
    data_folder,
    dataset_of,
    dataset_tasks,
    file_tasks,
)
from pytest_intercode.suites.formats import is_suite_file
from pytest_intercode.system.beneath import OutsideError, Root

__all__ = ["TaskFinder", "task_among"]


class TaskFinder:
    """Finds the task of a recorded episode.

    Args:
        suites: files of suites or rows that the user named; these are searched first.
        data: a folder laid out as InterCode's ``data/``; by default INTERCODE_DATA, else what
            ``pytest-intercode fetch`` downloaded.
        permissions: what suites may use of this machine, beyond their own folders.
    """

    def __init__(
        self,
        suites: Sequence[Path] = (),
        data: Path | None = None,
        permissions: Permissions = NOTHING,
    ) -> None:
        self._suites = suites
        self._data = data
        self._folder = Path.cwd()  # node ids are relative to it, and must not lead out
        self._permissions = permissions
        self._cache: dict[tuple[str, str], Sequence[Task]] = {}

    def __call__(self, record: EpisodeRecord) -> Task | None:
        """Return the task of an episode, or None.

        Raises:
            SuiteError: a named suite is wrong or missing.
        """
        for tasks in self._candidates(record):
            task = task_among(tasks, record)
            if task is not None:
                return task
        return None

    def _candidates(self, record: EpisodeRecord) -> Iterator[Sequence[Task]]:
        env = record.task.env
        for path in self._suites:
            yield self._file(path, env)
        if not is_environment(env):
            return
        suite = self._suite_of(record.node_id.partition("::")[0])
        if suite is not None:
            yield self._file(suite, env)
        if record.task.suite == env:
            yield self._read_cached("bundled", env, lambda: bundled_tasks(env, env))
        dataset = dataset_of(record.task.dataset)
        if not is_ours(record):
            dataset = kind_of(env).intercode_dataset or dataset
        if dataset is not None:
            yield self._read_cached("dataset", dataset, lambda: self._dataset(dataset))

    def _suite_of(self, path: str) -> Path | None:
        """Return the suite that the path of a node id names; the path is untrusted."""
        if not is_suite_file(path):
            return None
        with Root(self._folder) as root:
            try:
                return self._folder / root.locate(path) if root.is_file(path) else None
            except OutsideError:
                return None

    def _file(self, path: Path, env: str) -> Sequence[Task]:
        return self._read_cached(
            f"file for {env}", str(path), lambda: file_tasks(path, env, self._permissions)
        )

    def _read_cached(
        self, kind: str, name: str, read: Callable[[], Sequence[Task]]
    ) -> Sequence[Task]:
        key = kind, name
        if key not in self._cache:
            self._cache[key] = read()
        return self._cache[key]

    def _dataset(self, name: str) -> Sequence[Task]:
        try:
            data, subject = data_folder(self._data, "--data"), f"the data set {name}"
            return dataset_tasks(name, data, subject, self._permissions)
        except ConfigurationError:
            if self._data is not None:
                raise
            return ()  # no data was named; the caller's message says how to name it


def task_among(tasks: Iterable[Task], record: EpisodeRecord) -> Task | None:
    """Return the task of an episode; its id alone is not enough, as two suites may share one."""
    run = RecordedRun([record])
    recorded = record.task
    for task in tasks:
        if run.record_of(task) is None:
            continue
        if not is_ours(record):
            return task
        same_query = comparable_query(task.query) == comparable_query(recorded.query)
        if task.id == recorded.id and (task.suite == recorded.suite or same_query):
            return task
    return None
