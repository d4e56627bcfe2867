"""The formats that tasks are read from: the built-in ones, and those that installed packages add.

A format reads the tasks of a file or a folder. An installed package adds one by an entry point;
those are asked first, in the order of their names, so that they may read what we would refuse.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError, IntercodeError
from pytest_intercode.suites.loader import load_dataset, load_rows, load_suite
from pytest_intercode.system.rows import is_row_file

__all__ = ["GROUP", "SuiteFormat", "find_format", "holds_task_folders", "is_suite_file"]

GROUP = "pytest_intercode.formats"
"""The group of entry points: each names a :class:`SuiteFormat`, as an object or as its class."""


class SuiteFormat(Protocol):
    """A format of tasks.

    Attributes:
        name: what messages call it.
    """

    name: str

    def recognises(self, path: Path) -> bool:
        """Whether a path is one of this format, by its name or by what a folder holds.

        It is asked of every path that a user names, which need not exist, and is to be quick.
        """
        ...

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        """Return the tasks at a path that this format recognises.

        Args:
            path: the file or the folder.
            env: the environment that the user named; None for none.
            permissions: what the tasks may use of this machine, beyond what is in their folder.

        Raises:
            SuiteError: they are wrong; the message names the file and what is allowed.
        """
        ...


def is_suite_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a suite, by its suffix."""
    return os.fspath(path).endswith((".yaml", ".yml"))


class _Suites:
    name = "suite"

    def recognises(self, path: Path) -> bool:
        return is_suite_file(path) and not path.is_dir()

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        return load_suite(path, permissions=permissions).tasks


class _Rows:
    name = "rows"

    def recognises(self, path: Path) -> bool:
        return is_row_file(path) and not path.is_dir()

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        if env is None:
            raise ConfigurationError(
                f"{path}: a file of rows does not say what its gold is written in; give one "
                "--intercode-env, or name the file in a suite (rows: in a .yaml)"
            )
        return load_rows(path, env, permissions).tasks


class _Registry:
    name = "registry of task folders"

    def recognises(self, path: Path) -> bool:
        return path.name.partition(":")[0] == "registry.json"

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        from pytest_intercode.suites.harbor.datasets import registry_tasks  # slow to import

        return registry_tasks(path, permissions)


class _Folders:
    name = "task folders"

    def recognises(self, path: Path) -> bool:
        return path.is_dir()

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        from pytest_intercode.suites.harbor.datasets import folder_tasks  # slow to import

        return folder_tasks(path, permissions)


class _Published:
    """The folder of a bundled dataset, such as a clone, which what it holds gives away."""

    def __init__(self, dataset: str, content: str) -> None:
        self.name = dataset
        self._content = content

    def recognises(self, path: Path) -> bool:
        return next(path.glob(self._content), None) is not None

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        return load_dataset(self.name, path, permissions).tasks


_FORMATS: tuple[SuiteFormat, ...] = (
    _Registry(),
    _Published("polyglot", "*/exercises/practice/"),
    _Published("cybench", "challenges/*/eval.yaml"),
    _Published("nyu-ctf", "*_dataset.json"),
    _Folders(),
    _Rows(),
    _Suites(),
)


class _Added:
    """The format of an installed package; what it raises is one line."""

    def __init__(self, point: EntryPoint) -> None:
        self._point = point
        try:
            loaded = point.load()
            self._format: SuiteFormat = loaded() if isinstance(loaded, type) else loaded
        except Exception as error:  # of code that is not ours
            raise self._failed("cannot be loaded", error) from None
        names = ("name", "recognises", "load")
        missing = [name for name in names if not hasattr(self._format, name)]
        if missing:
            raise self._error(f"has no {', '.join(missing)}")
        self.name = self._format.name

    def recognises(self, path: Path) -> bool:
        try:
            return self._format.recognises(path)
        except Exception as error:
            raise self._failed(f"recognises({str(path)!r})", error) from None

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        try:
            tasks = [*self._format.load(path, env, permissions)]
        except IntercodeError:
            raise
        except Exception as error:
            raise self._failed(f"load({str(path)!r})", error) from error
        if strangers := [task for task in tasks if not isinstance(task, Task)]:
            raise self._error(f"load({str(path)!r}): a task is needed, found {strangers[0]!r:.60}")
        return tasks

    def _failed(self, problem: str, error: Exception) -> ConfigurationError:
        return self._error(f"{problem}: {type(error).__name__}: {error}")

    def _error(self, problem: str) -> ConfigurationError:
        return ConfigurationError(
            f"the format {self._point.name!r} ({GROUP}: {self._point.value}): {problem}"
        )


def find_format(path: Path) -> SuiteFormat | None:
    """Return the format of a path, or None.

    Raises:
        ConfigurationError: the format of an installed package cannot be loaded, or fails.
    """
    formats: tuple[SuiteFormat, ...] = (*_added_formats(), *_FORMATS)
    return next((one for one in formats if one.recognises(path)), None)


def holds_task_folders(path: Path) -> bool:
    """Whether a path is read as a task folder of Harbor or Terminal-Bench, or as a folder of them.

    Raises:
        ConfigurationError: as for :func:`find_format`.
    """
    return isinstance(find_format(path), _Folders)


@cache
def _added_formats() -> tuple[_Added, ...]:
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return tuple(map(_Added, points))
