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
    """What tau2 tasks have.

    Attributes:
        domain: whose tools and database it is about.
        world: the files that these are made of, by their paths in the sandbox below its root.
        initial: what is done to the database before the agent begins, as the dataset writes it.
        criteria: what is graded, as the dataset writes it.
        max_steps: messages, calls and results of both sides that a conversation has.
        max_errors: calls of both sides that may fail.
    """

    domain: str = ""
    world: Mapping[str, Path] = field(default_factory=dict, hash=False)
    initial: Mapping[str, Any] = field(default_factory=dict, hash=False)
    criteria: Mapping[str, Any] = field(default_factory=dict, hash=False)
    max_steps: int = 100
    max_errors: int = 10
