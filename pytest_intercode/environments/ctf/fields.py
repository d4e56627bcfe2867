"""The fields of ctf tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool, StrictInt, StrictStr

from pytest_intercode.core.task import TaskFields, in_suite
from pytest_intercode.environments.fields import as_tuple

__all__ = ["CtfFields"]


@dataclass(frozen=True)
class CtfFields(TaskFields):
    """The fields of ctf tasks.

    Attributes:
        solution: commands that find the flag, for the suite's own tests.
        submissions: how many flags an agent may submit; None for as many as it has turns.
        ignore_case: whether upper and lower case count as equal in a flag.
    """

    solution: tuple[str, ...] = field(
        default=(),
        metadata=in_suite(
            Annotated[StrictStr | list[StrictStr], AfterValidator(as_tuple)], is_graded=False
        ),
    )
    submissions: int | None = field(
        default=None, metadata=in_suite(Annotated[StrictInt, Field(ge=1, le=100)])
    )
    ignore_case: bool = field(default=False, metadata=in_suite(StrictBool))
