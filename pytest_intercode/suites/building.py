"""Makes tasks of what a suite says: fields in layers, and the files in the suite's folder.

Reads the files that hold the content of a task's own, and looks whether a Dockerfile is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from pytest_intercode.core.task import (
    Archive,
    Database,
    FileSpec,
    ImageSource,
    Repository,
    Task,
    Verification,
)
from pytest_intercode.errors import MissingFile
from pytest_intercode.suites.schema import (
    ArchiveModel,
    FileModel,
    PathModel,
    TaskFields,
    VerificationModel,
)
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["build_task"]


def _apply(
    task: Task, fields: TaskFields, folder: SuitePath, bundled: Path, per_task: Mapping[str, Any]
) -> Task:
    """Lay the given fields, and those of this task alone, over a task; the rest stays."""
    values = {**_explicit_fields(fields), **per_task}
    if isinstance(values.get("gold"), PathModel):
        values["gold"] = (_text_of(values["gold"], folder),)
    if "files" in values:
        values["files"] = _read_files(values["files"], folder)
    if "variables" in values:
        values["variables"] = tuple(values["variables"].items())
    if fields.repository is not None:
        source = fields.repository.source
        place = None if source is None else (folder / source).place()
        values["repository"] = Repository(**{**dict(fields.repository), "source": place})
    if fields.verification is not None:
        values["verification"] = _verification(fields.verification, folder)
    for name in {"files", "audit"} & values.keys():
        values[name] = {**getattr(task, name), **values[name]}
    if "reward" in values:
        values["reward"] = replace(task.reward, **_explicit_fields(values["reward"]))
    limits = {} if fields.limits is None else _explicit_fields(fields.limits)
    network = values.pop("network", limits.pop("network", None))
    if network is not None:
        hosts = network if isinstance(network, tuple) else ()
        limits |= {"network": network is True, "hosts": hosts, "offline": not network}
    if limits:
        values["limits"] = replace(task.limits, **limits)
    archive, database = fields.archive, fields.database
    if archive is not None:
        model = ArchiveModel(path=archive) if isinstance(archive, str) else archive
        path = (folder / model.path).place()
        values["archive"] = Archive(**{**_explicit_fields(model), "path": path})
    if database is not None:
        values["database"] = Database(
            engine=database.engine,
            name=database.name,
            scripts=tuple((folder / path).place() for path in database.script or ()),
            file=None if database.file is None else (folder / database.file).place(),
            writes=database.writes,
            optional=database.optional,
        )
    if fields.image is not None:
        values["image"] = ImageSource(image=fields.image)
    if fields.dockerfile is not None:
        name = values.pop("dockerfile")
        own_path = folder / name
        bundled_path = bundled / f"{name}.Dockerfile"
        is_ours = "/" not in name and not own_path.is_file() and bundled_path.is_file()
        values["image"] = ImageSource(dockerfile=bundled_path if is_ours else own_path.place())
    return replace(task, **values) if values else task


def _explicit_fields(model: BaseModel) -> dict[str, Any]:
    """Return the fields that are not left out; to leave one out, and to give null, is the same."""
    every = {name: getattr(model, name) for name in model.model_fields_set}
    return {name: value for name, value in every.items() if value is not None}


def build_task(
    blank: Task,
    layers: list[TaskFields],
    *,
    folder: SuitePath,
    bundled: Path,
    **per_task: Any,
) -> Task:
    """Make a task from a blank one and layers of fields; later layers replace earlier ones.

    Args:
        blank: what all tasks of the suite have in common.
        layers: the fields to lay over it; one or more.
        folder: where relative paths in the suite start.
        bundled: the folder of our own Dockerfiles, which a suite may name without their suffix.
        per_task: fields of this task alone, which no layer has, such as its source.
    """
    *base_layers, last_layer = layers
    task = blank
    for fields in base_layers:
        task = _apply(task, fields, folder, bundled, {})
    task = _apply(task, last_layer, folder, bundled, per_task)
    return replace(task, needs_network="network" in task.tags)


def _verification(model: VerificationModel, folder: SuitePath) -> Verification:
    fields = dict(model)
    fields["patch"] = _text_of(model.patch, folder)
    fields["files"] = _read_files(cast("dict[str, FileSpec | FileModel]", model.files), folder)
    for name in ("fail_to_pass", "pass_to_pass", "carried"):
        fields[name] = tuple(fields[name])
    fields["variables"] = tuple(model.variables.items())
    return Verification(**fields)


def _read_files(
    files: Mapping[str, FileSpec | FileModel], folder: SuitePath
) -> dict[str, FileSpec]:
    return {
        path: spec
        if isinstance(spec, FileSpec)
        else FileSpec("file", _read_bytes(folder / (spec.path or "")), mode=spec.mode)
        for path, spec in files.items()
    }


def _text_of(source: str | PathModel, folder: SuitePath) -> str:
    if isinstance(source, str):
        return source
    return _read_bytes(folder / source.path).decode("utf-8", "surrogateescape")


def _read_bytes(path: SuitePath) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingFile(f"{path}: cannot be read: {error.strerror}") from None
