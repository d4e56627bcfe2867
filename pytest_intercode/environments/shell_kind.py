"""The base kind of environments whose actions are shell commands."""

from __future__ import annotations

import re
import shutil
import subprocess

from pytest_intercode.core.task import TaskView
from pytest_intercode.environments.kind import EnvironmentKind, Tool

__all__ = ["ShellKind"]

_BASH_TIMEOUT = 2.0  # seconds for bash to read a few lines
_BASH_ERRORS = (
    (r"delimited by end-of-file \(wanted `(.*)'\)", "the line {} that ends the here-document"),
    (r"unexpected EOF while looking for matching `(.*)'", "the closing {}"),
    (r"unexpected end of file", "the end of the command"),
)


class ShellKind(EnvironmentKind):
    """An environment whose actions are commands of one Bash."""

    language = "Bash"
    labels = ("bash", "sh", "shell", "zsh", "console", "terminal", "shell-session")
    suffix = ".sh"
    has_shell = True
    example = "ls -la"
    tool = Tool("bash", "command", "Run a command in the task's shell.")
    continuation = "an open quote, here-document, loop or backslash goes on"
    idle_action = ":"

    def describe_code(self, task: TaskView) -> str:
        """Describe an action, for models."""
        return "bash commands. One shell runs them all and remembers its directory and variables"

    def missing_input(self, text: str, engine: str) -> str:
        """Ask ``bash -n``, which does not run anything.

        If this machine does not have bash, only a backslash at the end continues the text.
        """
        if (len(text) - len(text.rstrip("\\"))) % 2:
            return "the line after the backslash"
        program = shutil.which("bash")
        if program is None:
            return ""
        try:
            errors = subprocess.run(
                [program, "--norc", "--noprofile", "-n"],
                input=(text + "\n").encode("utf-8", "replace"),
                capture_output=True,
                env={"LC_ALL": "C"},
                timeout=_BASH_TIMEOUT,
                check=False,
            ).stderr.decode("utf-8", "replace")
        except (OSError, subprocess.TimeoutExpired):
            return ""
        for pattern, description in _BASH_ERRORS:
            match = re.search(pattern, errors)
            if match:
                return description.format(*match.groups())
        return ""
