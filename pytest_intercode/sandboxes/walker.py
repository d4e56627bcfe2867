"""Walk and read the folders of a sandbox from outside.

Every folder is opened relative to its parent and never through a link, so that nothing in the
sandbox can lead the walk out of it.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator, Set

from pytest_intercode.errors import UngradableState
from pytest_intercode.sandboxes.protocol import Entry
from pytest_intercode.sandboxes.reading import Reading, digest_of, path_parts
from pytest_intercode.system.archives import add_entry

__all__ = ["REPLACED", "Walker", "add_member", "make_entry", "read_entry"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_OPEN_FOLDERS = 32  # folders above the current one that a walk keeps open

REPLACED = (
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP),
    *(errno.EINVAL, errno.ENXIO, errno.EAGAIN, errno.ESTALE, errno.ESPIPE),
)
"""The errors if an entry is removed, or changes its type, after its status was read."""


class Walker:
    """The way from a folder down to one below it, step by step and through no link.

    Only a few of the folders on the way stay open, however deep it goes; the others are opened
    again, from the top, when they are needed.

    Args:
        top: the path of the folder at which it begins.
        parent: a descriptor of the folder that a relative path is relative to.
    """

    def __init__(self, top: str, parent: int | None = None) -> None:
        self._top = os.open(top, _FOLDER, dir_fd=parent)
        self._parts: list[str] = []
        self._folders: list[int | None] = []  # None for one that was closed again

    def here(self) -> int:
        """Return the current folder."""
        if not self._folders:
            return self._top
        last = self._folders[-1]
        return self._reopen() if last is None else last

    def enter(self, name: str) -> int:
        """Go to a folder in the current one, and return it."""
        inner = os.open(name, _FOLDER, dir_fd=self.here())
        self._parts.append(name)
        self._folders.append(inner)
        self._close(len(self._folders) - 1 - _MAX_OPEN_FOLDERS)
        return inner

    def leave(self) -> None:
        """Go back to the folder above; does nothing at the top."""
        if self._folders:
            self._close(len(self._folders) - 1)
            self._folders.pop()
            self._parts.pop()

    def go(self, path: str) -> int:
        """Go to a folder below the current one, and return it."""
        for part in path_parts(path):
            self.enter(part)
        return self.here()

    def entries(
        self, skipped: Set[str], reading: Reading
    ) -> Iterator[tuple[str, str, os.stat_result]]:
        """Yield path, name and status of everything below the top; a folder precedes its entries.

        At each entry, the current folder is the entry itself if that is a folder, else its folder.

        Args:
            skipped: paths that are left out.
            reading: counts what is read.
        """
        stack = [("", self._names("", reading))]
        while stack:
            path, names = stack[-1]
            name = next(names, None)
            if name is None:
                stack.pop()
                self.leave()
                continue
            child = f"{path}/{name}"
            if child in skipped:
                continue
            try:
                status = os.stat(name, dir_fd=self.here(), follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self.enter(name)
                    # So that the folder is left again, even if its names cannot be read.
                    stack.append((child, iter(())))
                yield child, name, status
                if stat.S_ISDIR(status.st_mode):
                    stack[-1] = child, self._names(child, reading)
            except OSError as error:
                if error.errno not in REPLACED:
                    raise  # else, a process in the container is changing it

    def _names(self, path: str, reading: Reading) -> Iterator[str]:
        """Return the names in the current folder, whose path is ``path``."""
        names = os.listdir(self.here())  # noqa: PTH208
        reading.entry((len(path) + 1) * len(names) + sum(map(len, names)), len(names))
        return iter(names)

    def _reopen(self) -> int:
        current = self._top
        for index, part in enumerate(self._parts):
            folder = self._folders[index]
            if folder is None:
                folder = self._folders[index] = os.open(part, _FOLDER, dir_fd=current)
            current = folder
            self._close(index - _MAX_OPEN_FOLDERS)
        return current

    def _close(self, at: int) -> None:
        folder = self._folders[at] if at >= 0 else None
        if folder is not None:
            self._folders[at] = None
            os.close(folder)

    def __enter__(self) -> Walker:
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(len(self._folders)):
            self._close(index)
        os.close(self._top)


def make_entry(status: os.stat_result, content: str = "") -> Entry:
    """Return an entry with this status and content."""
    kind = stat.filemode(status.st_mode)[0].replace("-", "f")
    return Entry(kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, content)


def read_entry(folder: int | None, name: str, status: os.stat_result, reading: Reading) -> Entry:
    """Return the entry for a name in a folder, with its content.

    Raises:
        OSError: it was removed in the meantime, or cannot be read.
        UngradableState: a limit of the reading is exceeded, or a process holds a lease on it.
    """
    content = ""
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(name, dir_fd=folder)
        reading.link(len(content))
    elif stat.S_ISREG(status.st_mode):
        descriptor = _open_file(name, folder)
        try:
            content = digest_of(descriptor, status.st_size, reading)
        finally:
            os.close(descriptor)
    elif stat.S_ISBLK(status.st_mode) or stat.S_ISCHR(status.st_mode):
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return make_entry(status, content)


def _open_file(name: str, folder: int | None) -> int:
    """Open a file without waiting for another process.

    Raises:
        UngradableState: a process in the container holds a lease on the file. It exists, and must
            not look as if it did not.
    """
    try:
        return os.open(name, _FILE, dir_fd=folder)
    except BlockingIOError:
        raise UngradableState(f"a process holds a lease on {name}, so it cannot be read") from None


def add_member(
    archive: tarfile.TarFile, folder: int | None, name: str, path: str, reading: Reading
) -> None:
    """Add a file, a link or a folder to an archive."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    content: bytes | str | None = None
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(name, dir_fd=folder)
    elif stat.S_ISREG(status.st_mode):
        reading.content(status.st_size)
        with os.fdopen(_open_file(name, folder), "rb") as file:
            content = file.read(status.st_size)
    elif not stat.S_ISDIR(status.st_mode):
        return
    mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
    add_entry(archive, path.lstrip("/"), content, mode, mtime=int(status.st_mtime), owner=owner)
