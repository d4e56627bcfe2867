"""The formats that tasks are read from: the built-in ones, and those that installed packages add.

A format reads the tasks of a file or a folder. An installed package adds one by an entry point.
These are asked first, in the order of their names, so that they can read files that we would
refuse.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.errors import ConfigurationError
from pytest_intercode.suites.loader import check_by_kind, load_dataset, load_rows, load_suite
from pytest_intercode.system.imports import call_others, describe_point, load_point
from pytest_intercode.system.rows import is_row_file

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["GROUP", "SuiteFormat", "find_format", "holds_task_folders", "is_suite_file"]

GROUP = "pytest_intercode.formats"
"""The group of entry points; each names a :class:`SuiteFormat` object or class."""


class SuiteFormat(Protocol):
    """A format of tasks.

    Attributes:
        name: its name in messages.
    """

    name: str

    def recognises(self, path: Path) -> bool:
        """Whether a path has this format, by its name or by a folder's content.

        It is called for every path that a user names, which need not exist, and must be fast.
        """
        ...

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        """Return the tasks at a path that this format recognises.

        Args:
            path: the file or the folder.
            env: the environment that the user named; None for none.
            permissions: the permissions of the tasks on this machine, beyond their folder.

        Raises:
            SuiteError: the tasks are invalid; the message names the file and what is allowed.
        """
        ...


def is_suite_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path has the suffix of a suite."""
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
    """The folder of a bundled dataset, such as a clone, which is recognised by its content."""

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
    """The format of an installed package; its errors are reported in one line."""

    def __init__(self, point: EntryPoint) -> None:
        self._label = f"the format {point.name!r}"
        loaded = load_point(point, self._label)
        self._label = f"{self._label} ({describe_point(point)})"
        self._format: SuiteFormat = self._call(loaded) if isinstance(loaded, type) else loaded
        names = ("name", "recognises", "load")
        missing = [name for name in names if not hasattr(self._format, name)]
        if missing:
            raise self._error(f"has no {', '.join(missing)}")
        self.name = self._format.name

    def recognises(self, path: Path) -> bool:
        return bool(self._call(self._format.recognises, path))

    def load(self, path: Path, env: str | None, permissions: Permissions) -> Sequence[Task]:
        tasks: list[Any] = self._call(self._format.load, path, env, permissions, returned=list)
        for number, task in enumerate(tasks, start=1):
            place = f"load({str(path)!r}): task {number}"
            if not isinstance(task, Task):
                raise self._error(f"{place}: a Task is needed, found {task!r:.60}")
            if problem := _find_problem(task):
                raise self._error(f"{place} ({task.source or task.id}): {problem}")
        return tasks

    def _call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        returned: Callable[[Any], Any] = lambda value: value,
    ) -> Any:
        words = ", ".join(repr(str(path)) for path in arguments[:1])
        name = getattr(function, "__name__", "its method")

        def mistake(reason: str) -> ConfigurationError:
            return self._error(f"{name}({words}): {reason}")

        return call_others(returned, mistake, call_others(function, mistake, *arguments))

    def _error(self, problem: str) -> ConfigurationError:
        return ConfigurationError(f"{self._label}: {problem}")


def find_format(path: Path) -> SuiteFormat | None:
    """Return the format of a path, or None.

    Raises:
        ConfigurationError: the format of an installed package cannot be loaded, or fails.
    """
    of_packages, problems = _added_formats()
    formats: tuple[SuiteFormat, ...] = (*of_packages, *_FORMATS)
    suite_format = next((one for one in formats if one.recognises(path)), None)
    for problem in problems:
        if suite_format is None:  # the path may have the format that cannot be loaded
            raise problem
        warnings.warn(str(problem), stacklevel=2)
    return suite_format


def holds_task_folders(path: Path) -> bool:
    """Whether a path is read as a task folder of Harbor or Terminal-Bench, or as a folder of them.

    Raises:
        ConfigurationError: as for :func:`find_format`.
    """
    return isinstance(find_format(path), _Folders)


@cache
def _added_formats() -> tuple[Sequence[_Added], Sequence[ConfigurationError]]:
    """Return the formats of installed packages, and the errors of those that cannot be loaded."""
    formats: list[_Added] = []
    problems: list[ConfigurationError] = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            formats.append(_Added(point))
        except ConfigurationError as error:
            problems.append(error)
    return formats, problems


def _find_problem(task: Task) -> str:
    """Return the problem with a task from third-party code; empty if there is none."""
    from pydantic import ValidationError  # slow to import

    for name, adapter in _field_adapters().items():
        try:
            adapter.validate_python(getattr(task, name), strict=True)
        except ValidationError as error:
            details = error.errors(include_url=False)[0]
            place = ".".join(map(str, (name, *details["loc"])))
            return f"{place}: {details['msg']}, found {details['input']!r:.60}"
    if not (task.gold or task.gold_skip):
        return "gold: a command is needed, or gold_skip, which says why there is none"
    check_by_kind(task)
    return ""


@cache
def _field_adapters() -> dict[str, TypeAdapter[Any]]:
    from pydantic import TypeAdapter

    return {name: TypeAdapter(expected) for name, expected in get_type_hints(Task).items()}
