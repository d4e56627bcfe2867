"""The fields of sql tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, StrictBool, StrictStr, model_validator

from pytest_intercode.core.task import Database, Task, TaskFields, in_suite
from pytest_intercode.environments.fields import FileForm, Texts
from pytest_intercode.errors import SuiteError
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["SqlFields", "database_of"]


class DatabaseModel(FileForm):
    """``database``: the database of an sql task.

    Attributes:
        script: files of SQL that make it; alternatively, ``file`` is a database file of SQLite.
    """

    engine: Literal["sqlite", "mysql"] = "sqlite"
    name: StrictStr = Field(min_length=1, max_length=64)
    script: Texts | None = None
    file: StrictStr | None = None
    writes: StrictBool | None = None
    optional: StrictBool = False

    @model_validator(mode="after")
    def _one_source(self) -> DatabaseModel:
        if (self.script is None) == (self.file is None):
            raise ValueError("give either script (SQL that makes the database) or file (SQLite's)")
        if self.file is not None and self.engine != "sqlite":
            raise ValueError(f"a file is for the engine sqlite; {self.engine} needs a script")
        return self

    def build(self, folder: SuitePath) -> Database:
        """Return the database, with the paths of its files."""
        return Database(
            engine=self.engine,
            name=self.name,
            scripts=tuple((folder / path).place() for path in self.script or ()),
            file=None if self.file is None else (folder / self.file).place(),
            writes=self.writes,
            optional=self.optional,
        )


@dataclass(frozen=True)
class SqlFields(TaskFields):
    """The fields of sql tasks.

    Attributes:
        database: the task's database.
        answers: the right answers to a question. The agent submits its answers as one text, or as a
            list in JSON; the strict profile compares them as AgentBench does, instead of a result.
    """

    database: Database | None = field(
        default=None,
        metadata=in_suite(
            DatabaseModel,
            refusal="is for the env sql, not {env}; give files, an archive or setup instead",
        ),
    )

    answers: tuple[str, ...] = field(
        default=(),
        metadata=in_suite(
            Texts, refusal="are for the env sql, not {env}, whose gold says what is right"
        ),
    )

    def view(self) -> Mapping[str, str]:
        """Return the engine, and the name of the database that a session starts in."""
        if self.database is None:
            return {}
        return {"engine": self.database.engine, "database": self.database.name}


def database_of(task: Task) -> Database:
    """Return the database of a task.

    Raises:
        SuiteError: it has none.
    """
    database = SqlFields.of(task).database
    if database is None:
        raise SuiteError(
            f"{task.source}: task {task.id!r}: database: an sql task needs one: {{engine: "
            "sqlite, name: NAME, script: FILE.sql}"
        )
    return database
