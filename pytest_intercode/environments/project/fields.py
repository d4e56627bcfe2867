"""The fields of the tasks of project tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_intercode.core.task import TaskFields, in_suite

__all__ = ["ProjectFields"]


@dataclass(frozen=True)
class ProjectFields(TaskFields):
    """What the task of a project test has; no suite has such tasks.

    Attributes:
        commit: the one commit of the copy, by which commits of the agent's are told from it.
        mcp: command lines of MCP servers that agents start in the sandbox, or addresses, by name.
    """

    commit: str = field(default="", metadata=in_suite(is_graded=False))
    mcp: Mapping[str, str] = field(default_factory=dict, hash=False)

    def view(self) -> Mapping[str, Any]:
        """Return the servers, which an agent starts itself."""
        return {"mcp": self.mcp}
