"""Reads suites: YAML files, row files, and the manifests of InterCode's datasets.

It only reads files. Every error is one line with the file, the line or row, the field, what was
found, and what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from string import Formatter
from typing import Any

import yaml
from pydantic import ValidationError

from pytest_intercode.core.permissions import NOTHING, Permissions
from pytest_intercode.core.task import Task
from pytest_intercode.environments.fields import leaves_of, path_fields
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import builtin_kinds, kind_of
from pytest_intercode.errors import MissingFile, SuiteError, suggestion
from pytest_intercode.suites.building import build_task
from pytest_intercode.suites.mistakes import first_error, foreign_fields, locate, row_error
from pytest_intercode.suites.schema import (
    LayerModel,
    RowSource,
    SuiteModel,
    suite_model,
    task_model,
)
from pytest_intercode.suites.services import find_missing_services
from pytest_intercode.suites.swebench.manifest import fill
from pytest_intercode.suites.yaml_files import read_yaml
from pytest_intercode.system.files import bundled_folder
from pytest_intercode.system.imports import call_others
from pytest_intercode.system.rows import Row, read_rows
from pytest_intercode.system.suite_folder import OutsideSuite, SuiteFolder, SuitePath

__all__ = ["FORMS", "Suite", "check_by_kind", "load_dataset", "load_rows", "load_suite"]


FORMS = (
    *("swe-bench", "swe-bench-5", "swe-bench-live", "swe-bench-pro", "swe-gym", "swe-rebench"),
    *("swe-rebench-v2", "swe-smith"),
)
"""Bundled datasets whose rows differ in form; other datasets have rows of one of these forms."""

# Modules next to this one, and their functions; imported on use, because few suites need them.
_READERS = {
    "agentbench-db": "agentbench:read_agentbench_db",
    "agentbench-os": "agentbench:read_agentbench_os",
    "apps": "apps:read_apps",
    "cybench": "challenges:read_cybench",
    "nyu-ctf": "challenges:read_nyu_ctf",
    "polyglot": "polyglot:read_polyglot",
    "tau2": "tau2:read_tau2",
}


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


def load_suite(path: Path, data: Path | None = None, permissions: Permissions = NOTHING) -> Suite:
    """Read a YAML suite.

    Args:
        path: the file.
        data: the folder whose files it may name; its own folder if None.
        permissions: further permissions of the suite on this machine.

    Raises:
        SuiteError: the file is not YAML, or not a suite, or names something that it may not use.
    """
    raw, node = read_yaml(path)
    model_class = suite_model(_kind_of_suite(raw))
    try:
        model = model_class.model_validate(raw)
    except ValidationError as error:
        raise SuiteError(first_error(path, node, raw, error, model_class)) from None
    name = model.suite or _first_name(path)
    with SuiteFolder(data or path.parent, permissions) as folder:
        tasks = _tasks(path, node, model, name, folder)
        return Suite(name, model.env, tuple(_check_tasks(tasks, permissions)), path)


def load_dataset(name: str, path: Path, permissions: Permissions = NOTHING) -> Suite:
    """Read a bundled dataset whose data is in a folder with another name, such as a clone.

    Args:
        name: the dataset; its manifest expects the rows in a folder of this name.
        path: the folder that is used instead.
        permissions: further permissions of the dataset on this machine.

    Raises:
        SuiteError: one of its files is wrong, or the folder does not contain the dataset.
    """
    manifest, node, model = _read_manifest(name)
    moved_rows = [
        source.model_copy(update={"path": source.path.removeprefix(f"{name}/")})
        for source in _row_sources(model)
    ]
    model = model.model_copy(update={"rows": moved_rows})
    with SuiteFolder(path, permissions) as folder:
        tasks = _tasks(manifest, node, model, name, folder)
        return Suite(name, model.env, tuple(_check_tasks(tasks, permissions)), manifest)


def _read_manifest(dataset: str) -> tuple[Path, yaml.Node | None, SuiteModel]:
    """Return the path of a bundled dataset's manifest, its YAML node, and its content."""
    path = bundled_folder("tasks") / "datasets" / f"{dataset}.yaml"
    raw, node = read_yaml(path)
    return path, node, suite_model(_kind_of_suite(raw)).model_validate(raw)


def _row_sources(model: SuiteModel) -> list[RowSource]:
    return model.rows if isinstance(model.rows, list) else [model.rows]


def _kind_of_suite(raw: Any) -> EnvironmentKind:
    """Return the kind of a suite's environment; a plain kind if it does not name one."""
    env = raw.get("env") if isinstance(raw, dict) else None
    return kind_of(env if isinstance(env, str) else "")


def _blank_task(env: str, name: str) -> Task:
    own_fields = kind_of(env).fields_class()
    return Task(id="", query="", gold=(), env=env, suite=name, dataset=name, fields=own_fields)


def _tasks(
    path: Path, node: yaml.Node | None, model: SuiteModel, name: str, folder: SuitePath
) -> list[Task]:
    blank = _blank_task(model.env, name)
    tasks = []
    for index, task in enumerate(model.tasks):
        line, _ = locate(node, ("tasks", index))
        built_task = _build(blank, [model.defaults, task], folder, source=f"{path}:{line}")
        tasks.append(_override(built_task, model.overrides, folder))
    sources = _row_sources(model)
    present = [s for s in sources if not s.optional or (folder / s.path).exists()]
    if sources and not present and not tasks:
        raise MissingFile(f"{folder}: has none of {', '.join(source.path for source in sources)}")
    for source in present:
        tasks.extend(_read_source(source, blank, model.defaults, model.overrides, folder))
    if not tasks:
        raise SuiteError(f"{folder / present[0].path}: contains no rows")
    unused = sorted(set(model.overrides) - {task.id for task in tasks})
    if unused:
        line, _ = locate(node, ("overrides", unused[0]))
        raise SuiteError(
            f"{path}:{line}: overrides: no task has the id {unused[0]!r}."
            + suggestion(unused[0], [task.id for task in tasks])
        )
    return tasks


def load_rows(path: Path, env: str, permissions: Permissions = NOTHING) -> Suite:
    """Read a file of rows as a suite; each row needs ``query`` and ``gold``.

    Rows for ``swe`` may instead be those of SWE-bench or a relative, which is detected by their
    columns.

    Args:
        path: the file.
        env: the environment of the rows.
        permissions: the permissions of the rows on this machine, beyond the folder of their file.

    Raises:
        SuiteError: the file cannot be read, or a row is wrong, or names something that it may not
            use.
    """
    if not path.parent.is_dir():
        raise MissingFile(f"{path}: there is no such file")
    with SuiteFolder(path.parent, permissions) as folder:
        tasks = _tasks_of_rows(folder / path.name, env, folder)
        return Suite(_first_name(path), env, tuple(_check_tasks(tasks, permissions)), path)


def _first_name(path: Path | SuitePath) -> str:
    """Return the name of a file without its suffixes."""
    return path.name.split(".")[0]


def _tasks_of_rows(path: SuitePath, env: str, folder: SuitePath) -> list[Task]:
    name = _first_name(path)
    blank = _blank_task(env, name)
    source, defaults = RowSource(path=path.name, dataset=name), LayerModel()
    published = None
    if kind_of(env).published_rows:
        from pytest_intercode.suites.swebench.tasks import dataset_of_rows  # rarely needed

        forms = {form: _read_published(form) for form in FORMS}
        manifests = {form: rows.swebench for form, (rows, _) in forms.items() if rows.swebench}
        published = dataset_of_rows(path, manifests, _tables())
    if published is not None:
        rows, defaults = forms[published]
        source = rows.model_copy(update={"path": path.name, "dataset": name})
    tasks = _read_source(source, blank, defaults, {}, folder)
    if not tasks:
        raise SuiteError(f"{path}: contains no rows")
    return tasks


def _read_published(dataset: str) -> tuple[RowSource, LayerModel]:
    """Return the source of a bundled dataset's rows, and the defaults of its tasks."""
    _, _, model = _read_manifest(dataset)
    (source,) = _row_sources(model)
    return source, model.defaults


def _build(blank: Task, layers: list[LayerModel], folder: SuitePath, **per_task: Any) -> Task:
    try:
        return build_task(blank, layers, folder=folder, **per_task)
    except OutsideSuite as error:
        place = per_task.get("source") or blank.source
        raise OutsideSuite(f"{place}: {error}" if place else str(error)) from None


def _override(task: Task, overrides: Mapping[str, LayerModel], folder: SuitePath) -> Task:
    """Lay its override over a task: tags and files are added, all other fields are replaced."""
    if task.id not in overrides:
        return task
    changed = _build(task, [overrides[task.id]], folder)
    return replace(
        changed,
        tags=tuple(dict.fromkeys((*task.tags, *changed.tags))),
        needs_network=task.needs_network or changed.needs_network,
    )


def _read_source(
    source: RowSource,
    blank: Task,
    defaults: LayerModel,
    overrides: Mapping[str, LayerModel],
    folder: SuitePath,
) -> list[Task]:
    path = folder / source.path
    dataset = source.dataset or _first_name(path)
    model_class = task_model(kind_of(blank.env))
    task_fields = set(model_class.model_fields) - set(source.ignore)
    blank = _build(replace(blank, dataset=dataset), [defaults, source.defaults], folder)
    known_columns = {*model_class.model_fields, *source.ignore, *source.fields.values()}
    # Only built-in kinds: the other installed packages must not affect a dataset.
    refusals = foreign_fields(blank.env, builtin_kinds())
    refused_columns = refusals.keys() - known_columns
    tasks = []
    for index, (place, row) in enumerate(_read_rows(source, path, folder)):
        for name in sorted(refused_columns & row.keys()):
            # These may be another environment's tests, without which grading would be wrong.
            if row[name] is not None:
                raise SuiteError(
                    f"{place}: {name}: {refusals[name]}; if the column means something else, "
                    f"add ignore: [{name}]"
                )
        own_places = {"dataset": dataset, "index": index}
        places = {**own_places, **row, **own_places}  # ours override, and come first in messages
        fields = {name: row.get(column) for name, column in source.fields.items()}
        fields = {**{name: row[name] for name in task_fields if name in row}, **fields}
        identity = fields.pop("id", None)
        if "id" not in source.fields:
            identity = _fill_pattern(source.id, places, place, "the id pattern")
        elif identity is None:
            raise SuiteError(f"{place}: id: the field {source.fields['id']!r} is missing")
        if "tags" in fields:
            fields["tags"] = _mark_names(fields["tags"])
        fields = {name: value for name, value in fields.items() if value is not None}
        if source.query is not None:
            fields["query"] = _query(source.query, places, place)
        fields |= _fill_each(source.each, places, place)
        try:
            model = model_class.model_validate({**fields, "id": str(identity)})
        except ValidationError as error:
            raise SuiteError(row_error(place, error, model_class, blank.env)) from None
        metadata = {name: value for name, value in row.items() if name not in task_fields}
        task = _build(blank, [model], folder, source=place, metadata=metadata)
        tasks.append(_override(task, overrides, folder))
    return tasks


def _read_rows(source: RowSource, path: SuitePath, folder: SuitePath) -> Iterator[tuple[str, Row]]:
    try:
        yield from _rows(source, path, folder)
    except OSError as error:  # a folder, or a file in it, is missing or cannot be read
        kind = MissingFile if isinstance(error, FileNotFoundError) else SuiteError
        name = error.filename if isinstance(error.filename, str) else source.path
        raise kind(f"{folder / name}: cannot be read: {error.strerror}") from None


def _rows(source: RowSource, path: SuitePath, folder: SuitePath) -> Iterator[tuple[str, Row]]:
    if source.swebench is not None:
        from pytest_intercode.suites.swebench.tasks import read_swebench  # rarely needed

        return read_swebench(path, source.swebench, folder, _tables())
    if source.format not in _READERS:
        return read_rows(path)
    module, _, name = _READERS[source.format].partition(":")
    reader: Callable[[SuitePath], Iterator[tuple[str, Row]]]
    reader = getattr(import_module(f"pytest_intercode.suites.{module}"), name)
    return reader(path)


def _tables() -> Path:
    return bundled_folder("tasks") / "datasets" / "how-to-test"


def _mark_names(tags: Any) -> Any:
    """Convert a row's tags to names of marks: "Reverse Engineering" to reverse-engineering."""
    if isinstance(tags, str):
        tags = tags.replace(",", " ").split()
    if not isinstance(tags, list):
        return tags
    return ["-".join(tag.lower().split()) if isinstance(tag, str) else tag for tag in tags]


def _fill_each(pattern: Any, places: Mapping[str, Any], place: str) -> Any:
    """Fill a row's fields into all strings of ``each``."""
    if isinstance(pattern, str):
        return _fill_pattern(pattern, places, place, "each: the pattern")
    if isinstance(pattern, dict):
        return {name: _fill_each(value, places, place) for name, value in pattern.items()}
    if isinstance(pattern, list):
        return [_fill_each(value, places, place) for value in pattern]
    return pattern


def _query(pattern: str, places: Mapping[str, Any], place: str) -> str:
    """Fill the query pattern; a line that only names empty fields is left out."""
    lines = []
    for line in pattern.split("\n"):
        filled = _fill_pattern(line, places, place, "the query pattern")
        values = [places.get(name, name) for _, name, *_ in Formatter().parse(line) if name]
        if not values or any(value is not None and str(value).strip() for value in values):
            lines.append(filled)
    return "\n".join(lines)


def _fill_pattern(pattern: str, places: Mapping[str, Any], place: str, kind: str) -> str:
    try:
        return fill(pattern, places)
    except KeyError as error:
        name = str(error.args[0])
        raise SuiteError(
            f"{place}: {kind} {pattern!r} names a field that does not exist: {name!r}."
            f"{suggestion(name, places)} Allowed: {', '.join(places)}"
        ) from None
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise SuiteError(f"{place}: {kind} {pattern!r} does not fit: {error}") from None


# -- checks beyond the schema


def _check_tasks(tasks: list[Task], permissions: Permissions) -> Iterator[Task]:
    """Make the checks that need several fields or tasks, and yield the tasks."""
    tasks = [permissions.limit(task) for task in tasks]
    tasks_by_id: dict[str, Task] = {}
    for task in tasks:
        if task.id in tasks_by_id:
            raise SuiteError(
                f"{task.source}: the id {task.id!r} is used twice; ids must be unique in a suite, "
                f"and {tasks_by_id[task.id].source} has it already"
            )
        tasks_by_id[task.id] = task
    for task in tasks:
        if task.judge is not None and (problem := task.judge.find_problem()):
            raise SuiteError(f"{task.source}: task {task.id!r}: judge: {problem}")
        if missing_names := find_missing_services(task):
            raise SuiteError(
                f"{task.source}: task {task.id!r}: services: there is no {missing_names[0]}, which "
                "the verification asks for"
            )
        check_by_kind(task)
    yield from _check_files(tasks)


def check_by_kind(task: Task) -> None:
    """Check a task with its environment's kind, which may be third-party code.

    Raises:
        SuiteError: the task is wrong, or the check raises an error that is not ours.
    """
    place = f"{task.source}: task {task.id!r}"

    def mistake(reason: str) -> SuiteError:
        return SuiteError(f"{place}: check() of the environment {task.env!r} raised {reason}")

    call_others(kind_of(task.env).check, mistake, task)


def _check_files(tasks: Iterable[Task]) -> Iterator[Task]:
    """Yield the tasks; skip those whose optional files are missing; other files must exist."""
    exists: dict[Path, bool] = {}
    for task in tasks:
        for kind, path, optional in _files_of(task):
            if path not in exists:
                exists[path] = path.is_file() or (kind != "dockerfile" and path.is_dir())
            if exists[path]:
                continue
            if not optional:
                raise MissingFile(
                    f"{task.source}: task {task.id!r}: {kind}: {path} is not a file"
                    f"{_suggest_file(kind, path)}"
                )
            task = replace(task, skip=task.skip or f"{kind}: {path} is not a file")
        yield task


def _suggest_file(kind: str, path: Path) -> str:
    """Return the end of a message about a missing file: names that may be meant."""
    names = [sibling.name for sibling in path.parent.glob(f"*{path.suffix}") if sibling.is_file()]
    if kind != "dockerfile":
        return f".{suggestion(path.name, names)}"
    bundled_names = sorted(
        dockerfile.stem for dockerfile in bundled_folder("dockerfiles").glob("*.Dockerfile")
    )
    hint = suggestion(path.name, [*bundled_names, *names])
    return f", and no bundled one has this name ({', '.join(bundled_names)}).{hint}"


def _files_of(task: Task) -> Iterator[tuple[str, Path, bool]]:
    """Yield the files that a task names: kind, path, and whether the task is skipped without it."""
    if task.archive is not None:
        yield "archive", task.archive.path, task.archive.optional
    if task.image is not None and task.image.dockerfile is not None:
        yield "dockerfile", task.image.dockerfile, False
    for machine in task.services.machines:
        if machine.image.dockerfile is not None:
            yield "dockerfile", machine.image.dockerfile, False
    kind = kind_of(task.env)
    for name in path_fields(kind):
        value = getattr(kind.fields_class.of(task), name)
        for leaf in leaves_of(value):
            if isinstance(leaf, Path):
                yield name, leaf, getattr(value, "optional", False)
