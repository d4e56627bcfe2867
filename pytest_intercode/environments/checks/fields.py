"""The fields of checks tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_intercode.core.task import TaskFields

__all__ = ["Check", "ChecksFields"]


@dataclass(frozen=True)
class Check:
    """A script whose exit status tells whether a machine is in the right state.

    Attributes:
        script: its text. Its arguments are the answer, then the output of each earlier script.
        language: its language.
    """

    script: str
    language: Literal["bash", "python"] = "bash"


@dataclass(frozen=True)
class ChecksFields(TaskFields):
    """The fields of checks tasks; exactly one of the last three defines how a task is graded.

    Attributes:
        start: a line that runs in the agent's shell before the agent can use it.
        match: the right answer.
        compare: the right answer is what gold prints in a sandbox of its own, read as an integer,
            or as text without surrounding blanks.
        checks: scripts that all have to end with status 0 on the machine as the agent left it.
    """

    start: str = ""
    match: str = ""
    compare: Literal["", "integer", "text"] = ""
    checks: tuple[Check, ...] = ()
