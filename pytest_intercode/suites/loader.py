"""Reads suites: YAML files, row files, and the manifests of InterCode's datasets.

Reads files and nothing else. Every error is one line with file, line or row, field, what was found
and what is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from pytest_intercode.errors import SuiteError, suggestion
from pytest_intercode.suites.mistakes import first_error, locate, row_error
from pytest_intercode.suites.rows import PICKLE_SUFFIXES, ROW_SUFFIXES, read_rows, row_suffix
from pytest_intercode.suites.schema import (
    RowSource,
    SuiteModel,
    TaskFields,
    TaskModel,
    build_task,
)
from pytest_intercode.suites.task import Task

__all__ = ["Suite", "bundled_folder", "load_rows", "load_suite"]

_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML's safe loader, which takes the last of two equal keys; here they are a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        """Return the mapping, if every key of it is there once."""
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Suite:
    """A named list of tasks.

    Attributes:
        name: the suite's name.
        env: the environment that its tasks run in.
        tasks: the tasks, in the file's order.
        path: the file that it was read from.
    """

    name: str
    env: str
    tasks: tuple[Task, ...]
    path: Path


@cache
def bundled_folder(name: str) -> Path:
    """Return where ``tasks`` or ``dockerfiles`` lie, in an installed or an editable package.

    A wheel has them inside the package; a checkout has them beside it.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    try:
        version = distribution("pytest-intercode").version
    except PackageNotFoundError:
        version = "unknown"
    raise SuiteError(f"the installed package (version {version}) has no folder {name!r}")


def load_suite(path: Path, data: Path | None = None) -> Suite:
    """Read a YAML suite.

    Args:
        path: the file.
        data: where the files that it names start; its own folder if None.

    Raises:
        SuiteError: the file is not YAML, or not a suite.
    """
    raw, node = _read_yaml(path)
    try:
        model = SuiteModel.model_validate(raw)
    except ValidationError as error:
        raise SuiteError(first_error(path, node, raw, error)) from None
    name = model.suite or path.name.split(".")[0]
    folder = data or path.parent
    blank = Task(id="", query="", gold=(), env=model.env, suite=name, dataset=name)
    tasks = []
    for index, task in enumerate(model.tasks):
        line, _ = locate(node, ("tasks", index))
        layers = [model.defaults, task, *_override(model.overrides, task.id)]
        tasks.append(_build(_replace(blank, task, f"{path}:{line}"), layers, folder))
    sources = model.rows if isinstance(model.rows, list) else [model.rows]
    for source in sources:
        tasks.extend(_from_source(source, blank, model.defaults, model.overrides, folder))
    unused = sorted(set(model.overrides) - {task.id for task in tasks})
    if unused:
        line, _ = locate(node, ("overrides", unused[0]))
        raise SuiteError(
            f"{path}:{line}: overrides: no task has the id {unused[0]!r}."
            + suggestion(unused[0], [task.id for task in tasks])
        )
    _check_ids(tasks)
    _check_files(tasks)
    return Suite(name, model.env, tuple(tasks), path)


def load_rows(path: Path, env: str) -> Suite:
    """Read a file of rows as a suite of its own: each needs ``query`` and ``gold``.

    Raises:
        SuiteError: the file cannot be read, or a row is wrong.
    """
    name = path.name.split(".")[0]
    blank = Task(id="", query="", gold=(), env=env, suite=name, dataset=name)
    source = RowSource(path=path.name, dataset=name)
    tasks = _from_source(source, blank, TaskFields(), {}, path.parent)
    if not tasks:
        raise SuiteError(f"{path}: holds no rows")
    _check_ids(tasks)
    return Suite(name, env, tuple(tasks), path)


def _build(blank: Task, layers: list[TaskFields], folder: Path, **more: Any) -> Task:
    return build_task(blank, layers, folder=folder, bundled=bundled_folder("dockerfiles"), **more)


def _override(overrides: Mapping[str, TaskFields], identity: str) -> list[TaskFields]:
    return [overrides[identity]] if identity in overrides else []


def _replace(blank: Task, model: TaskModel, source: str) -> Task:
    gold = (model.gold,) if isinstance(model.gold, str) else tuple(model.gold)
    return replace(blank, id=model.id, query=model.query, gold=gold, source=source)


def _from_source(
    source: RowSource,
    blank: Task,
    defaults: TaskFields,
    overrides: Mapping[str, TaskFields],
    folder: Path,
) -> list[Task]:
    path = folder / source.path
    dataset = source.dataset or path.name.split(".")[0]
    own = set(TaskFields.model_fields) | {"id", "query", "gold"}
    blank = _build(replace(blank, dataset=dataset), [defaults, source.defaults], folder)
    tasks = []
    for index, (place, row) in enumerate(read_rows(path)):
        fields = {ours: row.get(theirs) for ours, theirs in source.fields.items()}
        fields = {**{name: row[name] for name in own if name in row}, **fields}
        identity = fields.pop("id", None)
        if "id" not in source.fields:
            identity = _identity(source, dataset, index, row, place)
        elif identity is None:
            raise SuiteError(f"{place}: id: the field {source.fields['id']!r} is missing")
        if isinstance(fields.get("tags"), str):
            fields["tags"] = str(fields["tags"]).replace(",", " ").split()
        fields = {name: value for name, value in fields.items() if value is not None}
        try:
            model = TaskModel.model_validate({**fields, "id": str(identity)})
        except ValidationError as error:
            raise SuiteError(row_error(place, {**fields, "id": identity}, error)) from None
        metadata = {name: value for name, value in row.items() if name not in own}
        layers = [model, *_override(overrides, model.id)]
        tasks.append(_build(_replace(blank, model, place), layers, folder, metadata=metadata))
    return tasks


def _identity(
    source: RowSource, dataset: str, index: int, row: Mapping[str, Any], place: str
) -> str:
    try:
        return source.id.format(
            dataset=dataset,
            index=index,
            **{name: value for name, value in row.items() if name not in ("dataset", "index")},
        )
    except KeyError as error:
        name, names = str(error.args[0]), ["dataset", "index", *row]
        raise SuiteError(
            f"{place}: the id pattern {source.id!r} names a field that is not there: {name!r}."
            f"{suggestion(name, names)} Allowed: {', '.join(names)}"
        ) from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise SuiteError(f"{place}: the id pattern {source.id!r} does not fit: {error}") from None


# -- reading YAML


def _read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    """Return what the file holds, and its nodes, which know their lines."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read: {error}") from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise SuiteError(f"{place}: not YAML: {problem}") from None


# -- what the schema cannot see


def _check_ids(tasks: Iterable[Task]) -> None:
    seen: dict[str, Task] = {}
    for task in tasks:
        if task.id in seen:
            raise SuiteError(
                f"{task.source}: the id {task.id!r} is used twice; ids are unique in a suite, and "
                f"{seen[task.id].source} has it already"
            )
        seen[task.id] = task


def _check_files(tasks: Iterable[Task]) -> None:
    """Every archive and Dockerfile that is named must be there."""
    checked: set[Path] = set()
    for task in tasks:
        for what, path in (
            ("archive", task.archive.path if task.archive else None),
            ("dockerfile", task.image.dockerfile if task.image else None),
        ):
            if path is None or path in checked:
                continue
            checked.add(path)
            if not path.is_file():
                near = suggestion(path.stem, [p.stem for p in path.parent.glob(f"*{path.suffix}")])
                raise SuiteError(
                    f"{task.source}: task {task.id!r}: {what}: {path} is not a file.{near}"
                )


def is_row_file(path: Path) -> bool:
    """Whether a path is named like a file of rows."""
    return row_suffix(path) in (*ROW_SUFFIXES, *PICKLE_SUFFIXES)
