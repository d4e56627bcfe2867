"""The fields of swe tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictInt, StrictStr

from pytest_intercode.core.servers import check_servers
from pytest_intercode.core.task import Repository, Task, TaskFields, in_suite
from pytest_intercode.environments.fields import AbsolutePath, FileForm
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["SweFields", "repository_of"]


class RepositoryModel(FileForm):
    """``repository``: the repository of a swe task."""

    source: StrictStr | None = None
    commit: StrictStr = "HEAD"
    at: AbsolutePath = "/repo"

    def build(self, folder: SuitePath) -> Repository:
        """Return the repository, with the path of its source."""
        source = None if self.source is None else (folder / self.source).place()
        return Repository(self.at, source, self.commit)


_Servers = Annotated[dict[StrictStr, StrictStr], AfterValidator(check_servers)]


@dataclass(frozen=True)
class SweFields(TaskFields):
    """The fields of swe tasks.

    Attributes:
        repository: the task's repository; None for a task on other files.
        mcp: command lines of MCP servers that agents start in the sandbox, or addresses, by name.
        skills: a folder of the sandbox with skills for its agent; empty for none.
        submissions: how often the agent may submit. After each submission but the last, it is shown
            what the tests printed, and goes on.
    """

    repository: Repository | None = field(default=None, metadata=in_suite(RepositoryModel))
    mcp: Mapping[str, str] = field(default_factory=dict, hash=False, metadata=in_suite(_Servers))
    skills: str = field(default="", metadata=in_suite(AbsolutePath))
    submissions: int = field(
        default=1, metadata=in_suite(Annotated[StrictInt, Field(ge=1, le=100)])
    )

    def view(self) -> Mapping[str, Any]:
        """Return the agent's equipment: servers, which it starts itself, and skills."""
        return {"mcp": self.mcp, "skills": self.skills}


def repository_of(task: Task) -> Repository | None:
    """Return the repository of a task; None if it has none, as in other environments."""
    return task.fields.repository if isinstance(task.fields, SweFields) else None
