"""What an agent is given to find its server: a private folder, configurations, variables."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path

from pytest_intercode.agents.mcp import stdio, wording
from pytest_intercode.agents.mcp.command_line import check_value
from pytest_intercode.core.task import TaskView

__all__ = ["Handover"]

_VARIABLES = {
    "query": "INTERCODE_QUERY",
    "prompt": "INTERCODE_PROMPT",
    "task_id": "INTERCODE_TASK_ID",
    "env": "INTERCODE_ENV",
    "config": "INTERCODE_MCP_CONFIG",
    "config_http": "INTERCODE_MCP_CONFIG_HTTP",
    "stdio": "INTERCODE_MCP_STDIO",
    "url": "INTERCODE_MCP_URL",
    "token": "INTERCODE_MCP_TOKEN",
}
_PROXIES = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class Handover:
    """The files of one episode.

    Args:
        private: an empty folder that nobody else may look into; it is removed at the end.
        working: where the agent runs; None for an empty folder of its own.

    Attributes:
        folder: where the agent runs.
        socket: where the stdio server's socket is to be.
        values: what the placeholders stand for; filled by :meth:`write`.
    """

    def __init__(self, private: Path, working: Path | None) -> None:
        self._private = private
        private.chmod(0o700)
        self.folder = working or private / "work"
        if working is None:
            self.folder.mkdir()
        self.socket = private / "socket"
        self.values: dict[str, str] = {}

    def write(self, task: TaskView, here: Path, url: str, token: str) -> None:
        """Write the files.

        Raises:
            AgentError: the task has a text that no program can be given.
        """
        words = [sys.executable, "-IS", stdio.__file__, str(self.socket)]
        program = self._private / "intercode-mcp"
        program.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        program.chmod(0o700)
        texts = {"query": task.query, "prompt": wording.prompt(task), "task_id": task.id}
        self.values = {
            **{name: check_value(name, text) for name, text in texts.items()},
            "env": task.env,
            "config": self._config(
                "stdio.json", {"type": "stdio", "command": words[0], "args": words[1:], "env": {}}
            ),
            "config_http": self._config(
                "http.json",
                {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}},
            ),
            "stdio": str(program),
            "url": url,
            "token": token,
            "folder": str(self.folder),
            "here": str(here),
        }

    @property
    def variables(self) -> dict[str, str]:
        """The same as environment variables."""
        named = {variable: self.values[name] for name, variable in _VARIABLES.items()}
        # A shell that goes to a folder says so; PWD would name pytest's own.
        return {**named, "PWD": str(self.folder), **_past_proxies()}

    def remove(self) -> None:
        """Remove all of it; what the agent wrote into its own folder too."""
        shutil.rmtree(self._private, ignore_errors=True)

    def _config(self, name: str, server: dict[str, object]) -> str:
        path = self._private / name
        path.touch(0o600)  # it holds the token
        path.write_text(json.dumps({"mcpServers": {"intercode": server}}, indent=2))
        return str(path)


def _past_proxies() -> dict[str, str]:
    """Return what lets a client reach this machine where a proxy is set for all the others."""
    found: dict[str, str] = {}
    if any(os.environ.get(name) for name in _PROXIES):
        direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        hosts = [host.strip() for host in direct.split(",") if host.strip()]
        if "*" not in hosts:
            direct = ",".join(dict.fromkeys([*hosts, "127.0.0.1", "localhost"]))
            found = {"no_proxy": direct, "NO_PROXY": direct}
    return found
