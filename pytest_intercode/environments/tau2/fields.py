"""The fields of tau2 tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_intercode.core.task import TaskFields

__all__ = ["Tau2Fields"]


@dataclass(frozen=True)
class Tau2Fields(TaskFields):
    """The fields of tau2 tasks.

    Attributes:
        domain: the domain whose tools and database the task uses.
        world: the files of the tools and the database, by their paths below the root in a sandbox.
        initial: what is done to the database before the agent begins, in the dataset's format.
        criteria: what is graded, in the dataset's format.
        max_steps: the most messages, calls and results of both sides in a conversation.
        max_errors: how many failed calls of both sides end the conversation.
    """

    domain: str = ""
    world: Mapping[str, Path] = field(default_factory=dict, hash=False)
    initial: Mapping[str, Any] = field(default_factory=dict, hash=False)
    criteria: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_steps: int = 100
    max_errors: int = 10
