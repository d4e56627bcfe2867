"""What the human typed before: a file for each environment, in the user's state folder."""

from __future__ import annotations

import os
from pathlib import Path

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from pytest_intercode.agents.human.completeness import is_command

__all__ = ["history_file", "open_history"]


class _ActionsOnly(FileHistory):
    """Keeps actions, and no commands to the terminal."""

    def append_string(self, string: str) -> None:
        if not is_command(string):
            super().append_string(string.rstrip("\n"))


def history_file(env: str) -> Path:
    """Return where the history of an environment is kept."""
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if state.startswith("/") else Path.home() / ".local" / "state"
    return base / "pytest-intercode" / f"history-{env}"


def open_history(env: str) -> tuple[History, str]:
    """Return the history of an environment, and why it is not kept, if it is not.

    The file is for the user's eyes alone: actions may hold secrets.
    """
    path = history_file(env)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        return InMemoryHistory(), f"{path}: {error.strerror}"
    return _ActionsOnly(path), ""
