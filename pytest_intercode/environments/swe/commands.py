"""Our own commands in a verifier's sandbox, and their input."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from pytest_intercode.core.task import FileSpec, Task
from pytest_intercode.environments.swe.fields import repository_of
from pytest_intercode.errors import CommandFailed, UngradableState
from pytest_intercode.sandboxes.protocol import Sandbox
from pytest_intercode.system.archives import pack_files

__all__ = [
    "COMMAND_TIMEOUT",
    "NOTE",
    "Commands",
    "git_command",
    "is_short",
    "paths_of",
    "with_input",
    "zeroed",
]

NOTE = "/dev/shm/.intercode"
"""The file with the input of one of our commands."""

COMMAND_TIMEOUT = 120.0
"""Seconds for one of our commands."""

_MAX_INLINE = 4000  # characters of input that may be a part of the command itself
_GIT = (
    "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null "
    "git -c safe.directory='*' -c core.hooksPath=/dev/null -c core.fsmonitor=false "
    "-c core.quotePath=false -C {at} "
)


def git_command(task: Task) -> str:
    """Return git with its options for the task's repository; empty if the task has none."""
    repository = repository_of(task)
    return "" if repository is None else _GIT.format(at=shlex.quote(repository.at))


class Commands:
    """Runs commands in one sandbox.

    Args:
        sandbox: the sandbox, in which an agent's files may be.
        task: the task.

    Attributes:
        git: git with its options for the task's repository; empty if the task has none.
    """

    def __init__(self, sandbox: Sandbox, task: Task) -> None:
        self.sandbox = sandbox
        self.git = git_command(task)

    def git_paths(
        self, words: str, paths: Iterable[str] = (), allowed: tuple[int, ...] = (0,)
    ) -> list[str]:
        """Run a git command that reads paths, and return the paths that it prints."""
        status, output = self.attempt(self.git + words, zeroed(paths))
        if status not in allowed:
            raise self.failure(words, output)
        return paths_of(output)

    def run(self, command: str, paths: Iterable[str] = ()) -> bytes:
        """Run a command that reads paths; return its output.

        Raises:
            UngradableState: it failed on what an agent left.
        """
        status, output = self.attempt(command, zeroed(paths))
        if status:
            raise self.failure(command, output)
        return output

    def attempt(self, command: str, text: str = "") -> tuple[int, bytes]:
        """Run a command that reads a text; return its status and its output.

        Raises:
            UngradableState: it did not end in time.
        """
        if not is_short(text):
            self.note({"": text})
        line = with_input(f"{{ {command}; }}", text, NOTE)
        try:
            return self.sandbox.admin(line, COMMAND_TIMEOUT)
        except CommandFailed as failed:
            raise UngradableState(f"what was left cannot be tested: {failed}") from None

    def note(self, texts: Mapping[str, str]) -> None:
        """Write texts that our commands read, by the suffixes of their notes' names."""
        files = {
            f"{NOTE}{name}": FileSpec("file", text.encode("utf-8", "surrogateescape"))
            for name, text in texts.items()
        }
        self.sandbox.unpack(pack_files(files, "/", 0.0))

    def failure(self, command: str, output: bytes) -> UngradableState:
        """Return the error for a command that failed."""
        message = output.decode("utf-8", "replace").strip()[-300:]
        return UngradableState(
            f"{command[:60]} failed on what was left: {message or 'no reason given'}"
        )


def is_short(text: str) -> bool:
    """Whether a text can be a part of the command that reads it, which saves a file."""
    return len(text) <= _MAX_INLINE and text.isascii()


def with_input(command: str, text: str, note: str) -> str:
    """Return a command that reads a text, from a file if it is not short."""
    if not is_short(text):
        return f"{command} <{note}"
    # Arguments cannot hold a NUL, so printf writes the NULs.
    if "\0" in text:
        return f"printf '%s\\0' {shlex.join(_split(text))} | {command}"
    return f"printf %s {shlex.quote(text)} | {command}" if text else f"{command} </dev/null"


def zeroed(paths: Iterable[str]) -> str:
    """Return paths with a NUL after each."""
    return "".join(f"{path}\0" for path in paths)


def paths_of(output: bytes) -> list[str]:
    """Return the paths in an output that has a NUL after each."""
    return _split(output.decode("utf-8", "surrogateescape"))


def _split(text: str) -> list[str]:
    return [path for path in text.split("\0") if path]
