"""The command line of the agent's program, and its client configuration.

The client configuration tells the program where its MCP server is: by files in a private folder,
placeholders of the command line, and environment variables.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_intercode.agents.mcp import stdio, texts
from pytest_intercode.agents.program.process import check_value, find_program
from pytest_intercode.core.task import TaskView
from pytest_intercode.errors import AgentLoadError, suggestion
from pytest_intercode.system.connections import without_proxy

__all__ = ["PLACEHOLDERS", "ClientConfiguration", "CommandLine"]

PLACEHOLDERS = {
    "prompt": "the query, with words on the tools and on how to end",
    "query": "the query alone",
    "task_id": "the task's id",
    "env": "bash, sql, python or ctf",
    "config": "a JSON file with the server's configuration (mcpServers), for stdio",
    "config_http": "the same for streamable HTTP",
    "stdio": "a program that is the stdio server; it takes no arguments",
    "url": "the address of the streamable HTTP server",
    "token": "the bearer token of that server",
    "sandbox": "the sandbox's name, of Docker the container's id; empty where there is no shell",
    "folder": "the folder that the program runs in",
    "here": "the folder where relative paths of the option start, for files of yours",
}

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_OF_TASK = ("query", "prompt", "task_id", "env")
_OF_SERVER = ("config", "config_http", "stdio", "url", "token")


class CommandLine:
    """A checked command line with placeholders.

    It is split into words before the placeholders are filled in. So a query stays one word,
    whatever it contains, and is not parsed by a shell.

    Args:
        name: the value of ``--intercode-agent``, for messages.
        line: the part of that value after ``mcp:``.
        folder: where a relative path of the program starts.

    Raises:
        AgentLoadError: the line cannot be split, has an unknown placeholder, or there is no such
            program.
    """

    def __init__(self, name: str, line: str, folder: Path) -> None:
        self._name = name
        try:
            self._words = shlex.split(line)
        except ValueError as error:
            raise self._error(f"the command line cannot be split into words: {error}") from None
        if not self._words or not self._words[0]:
            raise self._error("a command line is needed, as in mcp:my-agent --mcp-config {config}")
        for word in self._words:
            self._check(word)
        self._words[0] = self._find(self._words[0], folder)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Return the words with all placeholders filled in."""
        return [self._words[0], *(_fill(word, values) for word in self._words[1:])]

    def _check(self, word: str) -> None:
        for match in _PLACEHOLDER.finditer(word):
            if match[0] in ("{", "}"):
                raise self._error(f"{word!r} has a single {match[0]!r}; write {match[0] * 2!r}")
            if match[1] is not None and match[1] not in PLACEHOLDERS:
                placeholders = ", ".join(f"{{{key}}}" for key in PLACEHOLDERS)
                raise self._error(
                    f"unknown placeholder {match[0]}; allowed are {placeholders}, and {{{{ for a "
                    "brace." + suggestion(match[1], PLACEHOLDERS)
                )

    def _find(self, word: str, folder: Path) -> str:
        """Return the program's path; it will be started in a different folder."""
        if {match[1] for match in _PLACEHOLDER.finditer(word)} - {None, "here"}:
            raise self._error(
                f"the program's name {word!r} may contain no placeholder but {{here}}"
            )
        try:
            return find_program([_fill(word, {"here": str(folder)})], folder)
        except AgentLoadError as error:
            raise self._error(str(error)) from None

    def _error(self, problem: str) -> AgentLoadError:
        return AgentLoadError(f"--intercode-agent={self._name}: {problem}")


def _fill(word: str, values: Mapping[str, str]) -> str:
    # A doubled brace stands for a single one.
    return _PLACEHOLDER.sub(
        lambda match: match[0][0] if match[1] is None else values[match[1]], word
    )


class ClientConfiguration:
    """The client configuration of one episode.

    Args:
        private: an empty folder that only this user may open; it is removed at the end.
        working_folder: where the program runs; None for a new folder.
        template: a folder whose content is copied into the new folder.

    Attributes:
        folder: the folder in which the program runs.
        socket: the path for the stdio server's socket.
        values: the values of the placeholders; filled by :meth:`write`.
    """

    def __init__(self, private: Path, working_folder: Path | None, template: Path | None) -> None:
        self._private = private
        private.chmod(0o700)
        self.folder = working_folder or private / "work"
        if template is not None:
            shutil.copytree(template, self.folder, symlinks=True)
        elif working_folder is None:
            self.folder.mkdir()
        self.socket = private / "socket"
        self.values: dict[str, str] = {}

    def write(
        self,
        task: TaskView,
        option_folder: Path,
        url: str,
        token: str,
        sandbox: str,
        *,
        workspace: bool = False,
    ) -> None:
        """Write the files.

        Args:
            task: the task.
            option_folder: where relative paths of the option start.
            url: the address of the HTTP server.
            token: the bearer token of the episode.
            sandbox: the sandbox's name.
            workspace: whether the program runs in a copy of the task's directory.

        Raises:
            AgentError: the task has a text that cannot be passed to a program.
        """
        words = [sys.executable, "-IS", stdio.__file__, str(self.socket)]
        program = self._private / "intercode-mcp"
        program.write_text(f"#!/bin/sh\nexec {shlex.join(words)}\n")
        program.chmod(0o700)
        by_stdio = {"type": "stdio", "command": words[0], "args": words[1:], "env": {}}
        by_http = {"type": "http", "url": url, "headers": {"Authorization": f"Bearer {token}"}}
        self.values = {
            "query": check_value("query", task.query),
            "prompt": check_value("prompt", texts.prompt(task, workspace=workspace)),
            "task_id": check_value("task_id", task.id),
            "env": task.env,
            "config": self._write_server("stdio.json", by_stdio),
            "config_http": self._write_server("http.json", by_http),
            "stdio": str(program),
            "url": url,
            "token": token,
            "sandbox": sandbox,
            "folder": str(self.folder),
            "here": str(option_folder),
        }

    @property
    def variables(self) -> dict[str, str]:
        """The values as environment variables, and variables that let a client reach us."""
        return {
            **{f"INTERCODE_{name.upper()}": self.values[name] for name in _OF_TASK},
            **{f"INTERCODE_MCP_{name.upper()}": self.values[name] for name in _OF_SERVER},
            "PWD": str(self.folder),  # pytest's own would name another folder
            **without_proxy(),
        }

    def remove(self) -> None:
        """Remove the files, and the program's own folder with its content."""
        shutil.rmtree(self._private, ignore_errors=True)

    def _write_server(self, name: str, server: Mapping[str, object]) -> str:
        path = self._private / name
        path.touch(0o600)  # it contains the token
        path.write_text(json.dumps({"mcpServers": {"intercode": server}}, indent=2))
        return str(path)
