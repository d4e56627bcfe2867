"""Tasks as JSON, which is sent to other machines."""

from __future__ import annotations

import base64
import json
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.task import Task, TaskFields
from pytest_intercode.environments.kind import EnvironmentKind
from pytest_intercode.environments.registry import is_environment, kind_of
from pytest_intercode.errors import SuiteError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["task_from_json", "task_to_json"]


def task_to_json(task: Task) -> bytes:
    """Return a task as JSON, from which :func:`task_from_json` makes an equal one.

    The files that a task names by a path are not part of it.

    Raises:
        SuiteError: its environment's fields or the metadata hold what JSON cannot express.
    """
    try:
        return json.dumps(task, default=_as_json).encode("ascii")
    except (TypeError, ValueError) as error:
        raise SuiteError(
            f"{task.source or 'a task of your own'}: task {task.id!r}: it cannot be written as "
            f"JSON: {error}; fields and metadata hold JSON values only"
        ) from None


def _as_json(value: object) -> str | dict[str, object]:
    # Do not use asdict() on the whole task: it copies every list and dictionary in it.
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r:.80} ({type(value).__name__}) is not a JSON value")


def task_from_json(data: bytes | str) -> Task:
    """Return the task that :func:`task_to_json` wrote.

    Raises:
        ConfigurationError: its environment cannot be loaded.
        ValueError: the data are not a task in this format.
    """
    values = json.loads(data)
    verifications = [values["verification"], *(step["verification"] for step in values["steps"])]
    file_tables = [values["files"], *(one["files"] for one in verifications if one)]
    specs = [spec for files in file_tables for spec in files.values()]
    specs += [spec for one in values["services"]["machines"] for _, spec in one["files"]]
    for spec in specs:
        spec["content"] = base64.b64decode(spec["content"])
    # An unknown environment is refused later, when the task is to be run.
    own_values = values["fields"] if is_environment(values["env"]) else {}
    kind = kind_of(values["env"])
    values["fields"] = (
        _fields_adapter(kind).validate_python(own_values) if own_values else TaskFields()
    )
    return _task_adapter().validate_python(values)


@cache
def _task_adapter() -> TypeAdapter[Task]:
    from pydantic import TypeAdapter  # slow to import, and only needed here

    return TypeAdapter(Task)


@cache
def _fields_adapter(kind: EnvironmentKind) -> TypeAdapter[TaskFields]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind.fields_class)
