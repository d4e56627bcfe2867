"""What a task equips its agent with, tried in the agent's sandbox before it acts."""

from __future__ import annotations

import shlex

from pytest_intercode.core.turn import Command
from pytest_intercode.environments.mcp_servers import start_servers
from pytest_intercode.environments.shell import ShellEnvironment
from pytest_intercode.environments.swe.fields import SweFields
from pytest_intercode.errors import TaskError

__all__ = ["equip"]

_SKILLS_TIMEOUT = 10.0  # seconds to look for a folder


def equip(environment: ShellEnvironment, fields: SweFields) -> None:
    """See that the folder of skills is there, and that each MCP server starts.

    Args:
        environment: after its sandbox was prepared, before the agent acts.
        fields: the task's.

    Raises:
        TaskError: it is not, or one does not.
        InfrastructureError: the sandbox broke.
    """
    if fields.skills:
        text = f"test -d {shlex.quote(fields.skills)}"
        test = Command(text, "/", _SKILLS_TIMEOUT, "", False)
        if environment.run_command(test)[0] != 0:
            raise TaskError(f"skills: the sandbox has no folder {fields.skills}")
    start_servers(environment, fields.mcp)
