"""This machine's git, run without the user's settings, in folders that end with this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pytest_intercode.errors import ConfigurationError
from pytest_intercode.system.private_folder import PrivateFolder

__all__ = ["CHECKOUT_SETTINGS", "Git", "GitError", "pack_checkout", "workplace"]

_GIT_TIMEOUT = 600.0  # seconds for one command
_AUTHOR = {"NAME": "Base", "EMAIL": "base@localhost", "DATE": "2024-01-01T00:00:00Z"}

CHECKOUT_SETTINGS = ("core.checkStat=minimal", "core.trustctime=false", "gc.auto=0")
"""Settings of a repository that is packed with its work tree: a tar archive does not contain ctimes
and inodes, so git should only compare sizes and mtimes."""


class GitError(ConfigurationError):
    """There is no git, or a git command failed; the message is its last line."""


@cache
def _program() -> str:
    path = shutil.which("git")
    if path is None:
        raise GitError(
            "this machine has no git, which makes the repositories of sandboxes: apt-get install "
            "git"
        )
    return path


class Git:
    """Runs git without the user's and the system's settings; only those of a repository apply.

    Args:
        home: an empty folder that git uses as the home folder.
        index: a file that is used in place of a repository's own index.
    """

    def __init__(self, home: Path, index: Path | None = None) -> None:
        self._variables = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "file",
        }
        if index is not None:
            self._variables["GIT_INDEX_FILE"] = str(index)
        for word, value in _AUTHOR.items():
            self._variables[f"GIT_AUTHOR_{word}"] = self._variables[f"GIT_COMMITTER_{word}"] = value

    def run(self, folder: Path, *words: str, stdin: int | None = None) -> str:
        """Run a command in a folder; return its output, without surrounding whitespace.

        Args:
            folder: the repository.
            words: the command.
            stdin: a descriptor of its standard input; None for no input.

        Raises:
            GitError: the command failed, or there is no git.
        """
        process = subprocess.run(
            [_program(), "-C", str(folder), "-c", "safe.directory=*", *words],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            capture_output=True,
            env=self._variables,
            timeout=_GIT_TIMEOUT,
            check=False,
        )
        if process.returncode:
            last_line = process.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise GitError(last_line or f"git {words[0]} failed")
        return process.stdout.decode("utf-8", "surrogateescape").strip()


def pack_checkout(checkout: Path, root: str, timestamp: float, path: Path) -> Path:
    """Write a tar archive of a work tree with its repository; root owns all members.

    Args:
        checkout: the work tree.
        root: its folder in the archive, without a leading slash.
        timestamp: the time of all members, in seconds since the epoch.
        path: the archive.

    Returns:
        The archive.
    """

    def reset_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = "root"
        entry.mtime = timestamp
        return entry

    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.add(checkout, root, filter=reset_owner)
    return path


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """Yield an empty folder, which is removed even if this process is killed."""
    private = PrivateFolder()
    try:
        yield private.make()
    finally:
        private.close()
