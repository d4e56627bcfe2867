"""MCP servers of a task, as tests, suites and task folders say them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["check_servers"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")  # agents make names of tools from it


def check_servers(servers: object) -> dict[str, str]:
    """Return MCP servers: the command line of each, by its name.

    Raises:
        ValueError: they are not written so; the message says what is needed.
    """
    if not isinstance(servers, Mapping):
        raise ValueError(
            f"mcp={servers!r:.60}: it is a mapping from a name to a command line, as in "
            'mcp={"tickets": "python server.py"}'
        )
    for name, command in servers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(
                f"mcp={{{name!r:.60}: ...}}: a name has letters, digits, - and _, up to 32, and "
                "begins with a letter or a digit"
            )
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise ValueError(
                f"mcp={{{name!r}: {command!r:.60}}}: a command line is needed, for the sandbox's sh"
            )
    return dict(servers)
