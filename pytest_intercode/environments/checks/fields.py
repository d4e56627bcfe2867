"""The fields of checks tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_intercode.core.task import TaskFields

__all__ = ["Check", "ChecksFields"]


@dataclass(frozen=True)
class Check:
    """A script that says by its exit status whether a machine is as it should be.

    Attributes:
        script: its text. Its arguments are the answer, and then what each script before it printed.
        language: what runs it.
    """

    script: str
    language: Literal["bash", "python"] = "bash"


@dataclass(frozen=True)
class ChecksFields(TaskFields):
    """What checks tasks have; exactly one of the last three says how they are graded.

    Attributes:
        start: a line that is run in the agent's shell before the agent has it.
        match: the right answer.
        compare: the right answer is what gold prints in a sandbox of its own; read as an integer,
            or as text without blanks around it.
        checks: scripts that all have to end with status 0 on the machine as the agent left it.
    """

    start: str = ""
    match: str = ""
    compare: Literal["", "integer", "text"] = ""
    checks: tuple[Check, ...] = ()
