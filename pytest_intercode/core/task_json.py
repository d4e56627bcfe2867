"""Tasks as JSON, in which they are sent to another machine."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_intercode.core.task import Task
from pytest_intercode.errors import SuiteError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["task_from_json", "task_to_json"]


def task_to_json(task: Task) -> bytes:
    """Return a task as JSON, from which :func:`task_from_json` makes an equal one.

    The files that a task names by a path are not part of it.

    Raises:
        SuiteError: the arguments of a test or the metadata hold what JSON cannot express.
    """
    try:
        return json.dumps(asdict(task), default=_as_text).encode("ascii")
    except (TypeError, ValueError) as error:
        raise SuiteError(
            f"{task.source or 'a task of your own'}: task {task.id!r}: it cannot be written as "
            f"JSON: {error}; tests and metadata hold JSON values only"
        ) from None


def _as_text(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{value!r:.80} ({type(value).__name__}) is not a JSON value")


def task_from_json(data: bytes | str) -> Task:
    """Return the task that :func:`task_to_json` wrote.

    Raises:
        ValueError: the data are not such a task.
    """
    fields = json.loads(data)
    verified = [fields.get("verification") or {}]
    verified += [step["verification"] for step in fields.get("steps", ())]
    file_tables = [fields["files"], *(one.get("files", {}) for one in verified)]
    for spec in (spec for files in file_tables for spec in files.values()):
        spec["content"] = base64.b64decode(spec["content"])
    return _adapter().validate_python(fields)


@cache
def _adapter() -> TypeAdapter[Task]:
    from pydantic import TypeAdapter  # slow to import, and only needed here

    return TypeAdapter(Task)
