"""The fields of the tasks of project tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.core.task import TaskFields, in_suite

__all__ = ["ProjectFields"]


@dataclass(frozen=True)
class ProjectFields(TaskFields):
    """The fields of a project test's task; suites do not have such tasks.

    Attributes:
        commit: the single commit of the copy; later ones are the agent's.
        mcp: command lines of MCP servers that agents start in the sandbox, or addresses, by name.
    """

    commit: str = field(default="", metadata=in_suite(is_graded=False))
    mcp: Mapping[str, str] = field(default_factory=dict, hash=False)

    def view(self) -> Mapping[str, Any]:
        """Return the servers, which the agent itself starts."""
        return {"mcp": self.mcp}
