"""The files and terminals of the task's sandbox, offered to an agent on this machine.

A path is a path in the sandbox, and is opened there with the rights of the task's user: no ``..``
and no link leads out of the sandbox. A terminal command is a turn, and runs like any other action:
one at a time, until it ends or times out.
"""

from __future__ import annotations

import io
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from pytest_intercode.agents.acp.connection import RequestRefused
from pytest_intercode.agents.acp.updates import Updates
from pytest_intercode.agents.agent_environment import AgentEnvironment, copy_files
from pytest_intercode.agents.workspace import Workspace
from pytest_intercode.core.text import replace_surrogates
from pytest_intercode.core.turn import CommandResult
from pytest_intercode.errors import AgentError, BudgetExhausted

__all__ = ["CAPABILITIES", "SandboxServices"]

CAPABILITIES: Mapping[str, Any] = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
}
"""The capabilities that the client announces."""

MAX_FILE_BYTES = 10 * 1024**2
"""The size limit, in bytes, of a file that is read or written."""

Result = TypeVar("Result")

_MAX_PATH_BYTES = 4096
_MAX_TERMINALS = 100  # not yet released
_INTERNAL_ERROR, _NOT_FOUND = -32603, -32002
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class SandboxServices:
    """Carries out an agent's requests to its client; used on the agent's thread.

    Args:
        env: the episode.
        updates: receives the agent's updates.
        workspace: the copy of the task's directory that the agent runs in, if any: paths below it
            are mapped to paths below the task's directory.
    """

    def __init__(
        self, env: AgentEnvironment, updates: Updates, workspace: Workspace | None
    ) -> None:
        self._env = env
        self._updates = updates
        self._workspace = workspace
        self._terminals: dict[str, tuple[CommandResult, int | None]] = {}
        self._count = 0
        self.handlers: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any] | None]] = {
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }

    # -- files

    def _read(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        path = self._path(params, "path")
        line, limit = (_number(params, key) for key in ("line", "limit"))
        if self._workspace is not None:
            self._workspace.push()
        content = self._copy(
            "fs/read_text_file", lambda shell: shell.read_file(path, MAX_FILE_BYTES)
        )
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError:
            raise RequestRefused(f"{path} is not UTF-8", _INTERNAL_ERROR) from None
        if line is not None or limit is not None:
            first = max((line or 1) - 1, 0)
            # Split only at line feeds: splitlines() also splits at other characters.
            lines = io.StringIO(text, newline="\n").readlines()[first:]
            text = "".join(lines if limit is None else lines[:limit])
        return {"content": text}

    def _write(self, params: Mapping[str, Any]) -> None:
        path, text = self._path(params, "path"), _text(params, "content")
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError:
            raise RequestRefused("content: it has half of a surrogate pair") from None
        if len(content) > MAX_FILE_BYTES:
            raise RequestRefused(f"content: it has more than {MAX_FILE_BYTES // 1024**2} MiB")
        if self._workspace is not None:
            self._workspace.push()
        self._copy("fs/write_text_file", lambda shell: shell.write_file(path, content))
        self._env.log(f"[wrote {path}]\n")
        self._pull()

    def _copy(self, caller: str, copy: Callable[[Any], Result]) -> Result:
        try:
            return copy_files(self._env, caller, copy)
        except AgentError as error:
            raise RequestRefused(str(error), _NOT_FOUND) from None

    def _path(self, params: Mapping[str, Any], key: str) -> str:
        """Return a path in the sandbox.

        Raises:
            RequestRefused: it is not a valid absolute path.
        """
        path = _text(params, key)
        if not path.startswith("/"):
            raise RequestRefused(f"{key}: {path!r:.80} is not an absolute path")
        if "\0" in path or replace_surrogates(path) != path:
            raise RequestRefused(f"{key}: {path!r:.80} has a character that no path has")
        if len(path.encode()) > _MAX_PATH_BYTES:
            raise RequestRefused(f"{key}: it has more than {_MAX_PATH_BYTES} bytes")
        if self._workspace is None:
            return path
        normal = PurePosixPath(posixpath.normpath(path))
        folder = PurePosixPath(self._workspace.folder)
        if not normal.is_relative_to(folder):
            return path
        return posixpath.join(self._env.task.workdir, str(normal.relative_to(folder)))

    # -- terminals

    def _create(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if len(self._terminals) >= _MAX_TERMINALS:
            raise AgentError(f"the agent has {_MAX_TERMINALS} terminals that it does not release")
        command = _command_line(params)
        cwd = self._path(params, "cwd") if params.get("cwd") is not None else ""
        limit = _number(params, "outputByteLimit")
        if self._workspace is not None:
            self._workspace.push()
        self._updates.begin_command()
        try:
            result = self._env.exec(command, cwd=cwd, counts_as_turn=True)
        except AgentError as error:  # the command cannot be sent to a shell
            raise RequestRefused(str(error)) from None
        self._pull()
        self._count += 1
        number = f"terminal-{self._count}"
        self._terminals[number] = result, limit
        return {"terminalId": number}

    def _output(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        result, limit = self._terminal(params)
        content = result.output.encode("utf-8", "replace")
        truncated = limit is not None and len(content) > limit
        if truncated and limit is not None:
            content = content[len(content) - limit :]
        return {
            "output": content.decode("utf-8", "ignore"),
            "truncated": truncated,
            "exitStatus": _exit_status(result),
        }

    def _wait(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        return _exit_status(self._terminal(params)[0])

    def _kill(self, params: Mapping[str, Any]) -> None:
        self._terminal(params)  # only check the id: the command has already ended

    def _release(self, params: Mapping[str, Any]) -> None:
        self._terminal(params)
        del self._terminals[params["terminalId"]]

    def _terminal(self, params: Mapping[str, Any]) -> tuple[CommandResult, int | None]:
        number = _text(params, "terminalId")
        if number not in self._terminals:
            raise RequestRefused(f"there is no terminal {number!r:.60}", _NOT_FOUND)
        return self._terminals[number]

    def _pull(self) -> None:
        """Copy what has changed in the sandbox into the workspace.

        Raises:
            BudgetExhausted: the episode is over.
        """
        if self._env.over:
            raise BudgetExhausted("the episode is over")
        if self._workspace is not None:
            self._workspace.pull()


def _command_line(params: Mapping[str, Any]) -> str:
    """Return the shell code that a terminal runs, from a program with arguments or a line."""
    command, arguments = _text(params, "command"), params.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(word, str) for word in arguments):
        raise RequestRefused("args: it is a list of texts")
    line = shlex.join([command, *arguments]) if arguments else command
    variables = params.get("env") or []
    if not isinstance(variables, list):
        raise RequestRefused("env: it is a list of variables")
    exports = []
    for variable in variables:
        if not isinstance(variable, dict):
            raise RequestRefused("env: a variable is an object with name and value")
        name, value = _text(variable, "name"), _text(variable, "value")
        if not _VARIABLE.fullmatch(name):
            raise RequestRefused(f"env: {name!r:.60} is not the name of a variable")
        exports.append(f"export {name}={shlex.quote(value)}\n")
    return "".join([*exports, line])


def _exit_status(result: CommandResult) -> dict[str, Any]:
    stopped = result.status is None
    return {"exitCode": result.status, "signal": "SIGKILL" if stopped else None}


def _text(params: Mapping[str, Any], key: str) -> str:
    value = params.get(key)
    if not isinstance(value, str):
        raise RequestRefused(f"{key}: it is a text, not {value!r:.60}")
    return value


def _number(params: Mapping[str, Any], key: str) -> int | None:
    value = params.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RequestRefused(f"{key}: it is a whole number from 0 up, not {value!r:.60}")
    return value
