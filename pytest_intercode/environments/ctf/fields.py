"""The fields of ctf tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, StrictStr

from pytest_intercode.core.task import TaskFields, in_suite
from pytest_intercode.environments.fields import as_tuple

__all__ = ["CtfFields"]


@dataclass(frozen=True)
class CtfFields(TaskFields):
    """What ctf tasks have.

    Attributes:
        solution: commands that find the flag, for the suite's own tests.
    """

    solution: tuple[str, ...] = field(
        default=(),
        metadata=in_suite(
            Annotated[StrictStr | list[StrictStr], AfterValidator(as_tuple)], is_graded=False
        ),
    )
