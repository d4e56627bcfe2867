"""The fields of python tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, StrictStr

from pytest_intercode.core.task import in_suite
from pytest_intercode.environments.fields import InterpreterFields

__all__ = ["PythonFields"]

_Name = Annotated[StrictStr, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")]


@dataclass(frozen=True)
class PythonFields(InterpreterFields):
    """The fields of python tasks.

    Attributes:
        tests: the hidden tests.
        test_setup: code that runs before each test.
        entry: the function or class that the tests call; if empty, it is derived from gold and the
            tests.
    """

    test_setup: str = ""
    entry: str = field(default="", metadata=in_suite(_Name))
