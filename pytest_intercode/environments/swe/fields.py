"""The fields of swe tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, StrictInt, StrictStr

from pytest_intercode.core.task import Repository, Task, TaskFields, in_suite
from pytest_intercode.environments.fields import AbsolutePath, FileForm
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["SweFields", "repository_of"]


class RepositoryModel(FileForm):
    """``repository``: what a swe task is about."""

    source: StrictStr | None = None
    commit: StrictStr = "HEAD"
    at: AbsolutePath = "/repo"

    def build(self, folder: SuitePath) -> Repository:
        """Return the repository, with the place of its source."""
        source = None if self.source is None else (folder / self.source).place()
        return Repository(self.at, source, self.commit)


@dataclass(frozen=True)
class SweFields(TaskFields):
    """What swe tasks have.

    Attributes:
        repository: the repository that the task is about; None for a task on other files.
        submissions: how often the agent may submit: after each one but the last it is shown what
            the tests printed, and goes on.
    """

    repository: Repository | None = field(default=None, metadata=in_suite(RepositoryModel))
    submissions: int = field(
        default=1, metadata=in_suite(Annotated[StrictInt, Field(ge=1, le=100)])
    )


def repository_of(task: Task) -> Repository | None:
    """Return the repository of a task, if it has one; no task of another environment has."""
    return task.fields.repository if isinstance(task.fields, SweFields) else None
