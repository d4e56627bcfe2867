"""The layer of a copy of a project: a tar archive of its files, as one commit of a repository."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pytest_intercode.system.git import CHECKOUT_SETTINGS, Git, pack_checkout

__all__ = ["ProjectFile", "make_layer"]

_TIME = 1_704_067_200  # of all files: 2024-01-01, the time of the copy's one commit
# The commit has the bytes of the work tree, and git has to compare them as they are. With the
# project's attributes it would convert them first, and find different line ends, for example.
_ATTRIBUTES = "* -text -ident -filter !working-tree-encoding\n"
_SETTINGS = (*CHECKOUT_SETTINGS, "user.name=Agent", "user.email=agent@localhost")


@dataclass(frozen=True)
class ProjectFile:
    """A file of a project: its content (for a symbolic link, its target) and its mode."""

    content: bytes
    mode: int


def make_layer(files: Mapping[str, ProjectFile], root: str, folder: Path) -> tuple[Path, Path]:
    """Make a layer; return it and a file with the id of its commit.

    Args:
        files: the files, by their paths in the project.
        root: the folder in the archive that contains them, without a leading slash.
        folder: an empty folder in which the layer is made.

    Raises:
        GitError: there is no git, or it failed.
        OSError: a file cannot be written.
    """
    checkout, stream = folder / "checkout", folder / "stream"
    checkout.mkdir()
    for name, file in files.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if stat.S_ISLNK(file.mode):
            path.symlink_to(os.fsdecode(file.content))
        else:
            path.write_bytes(file.content)
            path.chmod(file.mode)
        os.utime(path, (_TIME, _TIME), follow_symlinks=False)
    git = Git(folder)
    git.run(folder, "init", "-q", "--template=", "-b", "main", str(checkout))
    for setting in _SETTINGS:
        git.run(checkout, "config", *setting.split("=", 1))
    attributes = checkout / ".git/info/attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_text(_ATTRIBUTES, "ascii", newline="\n")
    # One stream makes one pack; `git add` would write and sync a file for each object.
    with stream.open("wb") as file_stream:
        _write_stream(files, file_stream)
    with stream.open("rb") as file_stream:
        git.run(checkout, "fast-import", "--quiet", stdin=file_stream.fileno())
    git.run(checkout, "read-tree", "HEAD")
    git.run(checkout, "update-index", "-q", "--refresh")
    commit = folder / "commit"
    commit.write_text(git.run(checkout, "rev-parse", "HEAD"), "ascii")
    shutil.rmtree(checkout / ".git/logs", ignore_errors=True)
    layer = pack_checkout(checkout, root, _TIME, folder / "layer.tar")
    return layer, commit


def _write_stream(files: Mapping[str, ProjectFile], output: IO[bytes]) -> None:
    """Write one commit of the files, as ``git fast-import`` reads it."""
    message = b"Copy of the project"
    output.write(b"commit refs/heads/main\n")
    output.write(b"committer Base <base@localhost> %d +0000\n" % _TIME)
    output.write(b"data %d\n%s\n" % (len(message), message))
    for name, file in sorted(files.items()):
        mode = b"120000" if stat.S_ISLNK(file.mode) else b"100%o" % file.mode
        output.write(b"M %s inline %s\n" % (mode, _quoted(name)))
        output.write(b"data %d\n%s\n" % (len(file.content), file.content))


def _quoted(name: str) -> bytes:
    """Return a path quoted for ``git fast-import``, whatever bytes it has."""
    escapes = {b'"': b'\\"', b"\\": b"\\\\", b"\n": b"\\n"}
    characters = (bytes((byte,)) for byte in os.fsencode(name))
    return b'"%s"' % b"".join(escapes.get(character, character) for character in characters)
