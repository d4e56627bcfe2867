"""Forms of a suite's fields that are in files next to it, and that of ``judge``."""

from __future__ import annotations

from pydantic import Field, StrictBool, StrictStr, field_validator

from pytest_intercode.core.judge import find_model_problem, find_votes_problem
from pytest_intercode.environments.fields import FileForm, SuiteForm
from pytest_intercode.errors import MissingFile
from pytest_intercode.system.suite_folder import SuitePath

__all__ = ["JudgeModel", "PathModel", "read_bytes"]


def read_bytes(path: SuitePath) -> bytes:
    """Return the content of a file of the suite's.

    Raises:
        MissingFile: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise MissingFile(f"{path}: cannot be read: {error.strerror}") from None


class PathModel(FileForm):
    """A text that is in a file next to the suite."""

    path: StrictStr

    def build(self, folder: SuitePath) -> str:
        """Read the file."""
        return read_bytes(folder / self.path).decode("utf-8", "surrogateescape")


class JudgeModel(SuiteForm):
    """``judge``: what of the reward a model grades."""

    rubric: StrictStr | PathModel | None = None
    model: StrictStr | None = None
    votes: int | None = None
    weight: float | None = Field(None, gt=0, le=1)
    alone: StrictBool | None = None
    product: StrictBool | None = None

    @field_validator("model")
    @classmethod
    def _is_pinned(cls, value: str | None) -> str | None:
        if value is not None and (problem := find_model_problem(value)):
            raise ValueError(problem)
        return value

    @field_validator("votes")
    @classmethod
    def _is_odd(cls, value: int | None) -> int | None:
        if value is not None and (problem := find_votes_problem(value)):
            raise ValueError(problem)
        return value
