"""Reads the changes in a sandbox's directory that the sandbox reports to a workspace.

The reply of ``environments/access.py`` is a head with a time, the inodes of all names, and a tar
archive. Nothing in it is trusted.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from pytest_intercode.environments.access import MAX_BYTES, MAX_ENTRIES
from pytest_intercode.errors import AgentError

__all__ = ["RACY_SECONDS", "Changes", "Entry", "Kind", "digest", "is_guarded", "open_changes"]

# Some file systems do not distinguish upper case and lower case.
_GIT = re.compile(
    r"(?:.*/)?\.git/(?:.*/)?(?:config(?:\.worktree)?|commondir|gitdir|hooks(?:/.*)?)", re.IGNORECASE
)
_IN_GIT = re.compile(r"(?:.*/)?\.git/.*", re.IGNORECASE)

RACY_SECONDS = 0.05
"""The time in seconds within which a file may change without getting a new modification time."""

Kind = Literal["file", "folder", "link"]
"""The kinds of directory entries; a workspace has no others."""


@dataclass(frozen=True)
class Entry:
    """A directory entry; ``content`` is the digest of a file, or the target of a link."""

    kind: Kind
    mode: int = 0
    content: bytes = b""

    @property
    def local_mode(self) -> int:
        """The mode of the copy here, which the program must be able to read and change."""
        return self.mode | (0o700 if self.kind == "folder" else 0o600)


@dataclass(frozen=True)
class Changes:
    """The changes in a sandbox's directory.

    Attributes:
        archive: the content of the changed entries.
        entries: the entries of the archive with their members; the entry is None if it cannot
            exist on this machine.
        inodes: the inodes of all names in the directory, including unchanged ones.
        since: the time from which to ask for changes next: a little before this report.
    """

    archive: tarfile.TarFile
    entries: Mapping[str, tuple[Entry | None, tarfile.TarInfo]]
    inodes: dict[str, bytes]
    since: str


@contextlib.contextmanager
def open_changes(reply: bytes) -> Iterator[Changes]:
    """Open the reply of a sandbox.

    Raises:
        AgentError: the reply cannot be read, or is too large.
    """
    head, _, rest = reply.partition(b"\0")
    end = 0 if rest.startswith(b"\0") else rest.find(b"\0\0") + 1
    file = io.BytesIO(rest[end + 1 :] or b"\0" * 1024)  # an empty archive
    try:
        with tarfile.open(fileobj=file) as archive:
            entries = _read_entries(archive)
            inodes = dict.fromkeys(entries, b"")  # without a list of names, the archive is complete
            if head.startswith(b"some "):
                pairs = (pair.partition(b" ") for pair in rest[:end].split(b"\0")[:-1])
                inodes = {posixpath.normpath(os.fsdecode(name)): inode for inode, _, name in pairs}
            yield Changes(archive, entries, inodes, _next_since(head))
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        raise AgentError(f"workspace: the task's directory cannot be read: {error}") from None


def _next_since(head: bytes) -> str:
    try:
        return f"{max(0.0, float(head.partition(b' ')[2]) - RACY_SECONDS):.6f}"
    except ValueError:
        return "0"


def digest(data: bytes) -> bytes:
    """Return a digest of a file's content."""
    return blake2b(data, digest_size=20).digest()


def _read_entries(archive: tarfile.TarFile) -> dict[str, tuple[Entry | None, tarfile.TarInfo]]:
    entries: dict[str, tuple[Entry | None, tarfile.TarInfo]] = {}
    room = MAX_BYTES
    for count, member in enumerate(archive):
        name = posixpath.normpath(member.name)
        if name.startswith(("/", "../")) or name == "..":
            raise AgentError(f"workspace: the name {member.name!r:.80} leads elsewhere")
        room -= max(0, member.size)
        if room < 0 or member.size < 0 or count >= MAX_ENTRIES:
            raise AgentError(
                f"workspace: the task's directory has more than {MAX_BYTES // 1024**2} MiB or "
                f"{MAX_ENTRIES:,} files"
            )
        if name == ".":
            continue
        entry: Entry | None = None
        mode = member.mode & 0o777
        if member.islnk():  # a hard link becomes a copy here
            first, first_member = entries.get(posixpath.normpath(member.linkname), (None, member))
            if first is not None and first.kind == "file":
                room -= first_member.size
                entry, member = first, first_member
        elif member.isdir():
            entry = Entry("folder", mode)
        elif member.issym():
            entry = Entry("link", 0, os.fsencode(member.linkname))
        elif member.isreg():
            content = archive.extractfile(member)
            assert content is not None
            with content:
                data = content.read()
            if len(data) != member.size:
                raise tarfile.ReadError("a file has an early end")
            entry = Entry("file", mode, digest(data))
        entries[name] = entry, member
    return entries


def is_guarded(name: str, entry: Entry) -> bool:
    """Whether git may run programs that this entry names; it then stays in the sandbox."""
    last = posixpath.basename(name).lower()
    pointer = last == ".git" and entry.kind != "folder"
    # Any folder with a HEAD may be a bare repository, with its own settings.
    bare = last == "head" and _IN_GIT.fullmatch(name) is None
    return pointer or bare or _GIT.fullmatch(name) is not None
