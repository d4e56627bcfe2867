"""Git of this machine, run without anybody's settings, in folders that go with this process."""

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

_GIT_TIMEOUT = 600.0  # seconds of one command
_AUTHOR = {"NAME": "Base", "EMAIL": "base@localhost", "DATE": "2024-01-01T00:00:00Z"}

CHECKOUT_SETTINGS = ("core.checkStat=minimal", "core.trustctime=false", "gc.auto=0")
"""Settings of a repository that is packed with its work tree: a tar archive carries no ctime and no
inode, so git is to look at size and mtime alone."""


class GitError(ConfigurationError):
    """There is no git, or a command of it failed; the message is its last line."""


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
    """Runs git with nothing of the user's settings, and of a repository's own only what is there.

    Args:
        home: a folder for what git looks for at home; nothing is in it.
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
        """Run a command in a folder; return what it printed, without the blanks around it.

        Args:
            folder: the repository.
            words: the command.
            stdin: a descriptor of what it reads; None for nothing.

        Raises:
            GitError: it failed, or there is no git.
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
    """Write a tar archive of a work tree with its repository; everything is root's.

    Args:
        checkout: the work tree.
        root: the folder of the archive that it is in, without a slash at its beginning.
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
    """Yield an empty folder, which goes with this process, however it ends."""
    private = PrivateFolder()
    try:
        yield private.make()
    finally:
        private.close()
