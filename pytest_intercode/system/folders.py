"""Lookup of names in folders, one at a time, without following links.

If the system has descriptors of folders, replacing a folder by a link during a lookup has no
effect. Windows does not have them: there each component of a path is checked before it is used.
That is enough, because no sandbox runs there that could replace a component in between.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeAlias

__all__ = ["Folder", "Folders", "folders_here"]

Folder: TypeAlias = Any
"""An open folder: a descriptor or a path, depending on the object that opened it."""

# The number of openat2(2), the same on every architecture except Alpha.
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.E2BIG)
_JUNCTION = 0xA0000003  # stat.IO_REPARSE_TAG_MOUNT_POINT, which only Windows has


class Folders(Protocol):
    """Operations on folders and the names in them. All of them may raise OSError."""

    def open_root(self, path: str) -> Folder:
        """Open a folder at a trusted path; links are followed."""

    def open_below(self, root: Folder, path: str) -> Folder:
        """Open the folder at a relative path; ELOOP if there is a link on the way."""

    def status(self, folder: Folder, name: str) -> os.stat_result:
        """Return the status of a name in a folder; for a link, its own status."""

    def open_file(self, folder: Folder, name: str) -> int:
        """Open a file in a folder to read it, without following links or waiting for a FIFO."""

    def names(self, folder: Folder) -> list[str]:
        """Return the names in a folder."""

    def link(self, folder: Folder, name: str) -> str:
        """Return the target of a symbolic link."""

    def close(self, folder: Folder) -> None:
        """Close a folder."""


class FoldersByPath:
    """Folders as paths, with the names that Windows allows."""

    def open_root(self, path: str) -> Folder:
        """Check that a folder exists, and return its path."""
        if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return path

    def open_below(self, root: Folder, path: str) -> Folder:
        """Check that each component of a path below is a folder, and return the whole path."""
        current = root
        for name in path.split("/"):
            status = self.status(current, name)
            tag = getattr(status, "st_reparse_tag", 0)
            if stat.S_ISLNK(status.st_mode) or tag == _JUNCTION:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            current = self.open_root(self._join(current, name))
        return current

    def status(self, folder: Folder, name: str) -> os.stat_result:
        """Return the status of a name in a folder."""
        return os.lstat(self._join(folder, name))

    def open_file(self, folder: Folder, name: str) -> int:
        """Open a file in a folder to read its bytes."""
        return os.open(self._join(folder, name), os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def names(self, folder: Folder) -> list[str]:
        """Return the names in a folder."""
        return os.listdir(folder)  # noqa: PTH208

    def link(self, folder: Folder, name: str) -> str:
        """Return the target of a symbolic link."""
        return os.readlink(self._join(folder, name))  # noqa: PTH115

    def close(self, folder: Folder) -> None:
        """Do nothing: nothing is open."""

    @staticmethod
    def _join(folder: str, name: str) -> str:
        # On other systems these are ordinary characters: a\\..\\b is one name, and C:x another.
        if "\\" in name or ":" in name:
            raise OSError(errno.EINVAL, "is not a name on Windows", name)
        return os.path.join(folder, name)


if sys.platform != "win32":
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY
    # Opening a FIFO would wait for a writer, and a terminal could become our controlling terminal.
    _FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

    class FoldersByDescriptor:
        """Folders as descriptors.

        Args:
            open_below: opens a folder below another one.
        """

        def __init__(self, open_below: Callable[[int, str], int]) -> None:
            self.open_below = open_below

        def open_root(self, path: str) -> Folder:
            """Open a folder."""
            return os.open(path, _FOLDER)

        def status(self, folder: Folder, name: str) -> os.stat_result:
            """Return the status of a name in a folder."""
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

        def open_file(self, folder: Folder, name: str) -> int:
            """Open a file in a folder to read it."""
            return os.open(name, _FILE, dir_fd=folder)

        def names(self, folder: Folder) -> list[str]:
            """Return the names in a folder."""
            return os.listdir(folder)  # noqa: PTH208

        def link(self, folder: Folder, name: str) -> str:
            """Return the target of a symbolic link."""
            return os.readlink(name, dir_fd=folder)

        def close(self, folder: Folder) -> None:
            """Close a folder."""
            os.close(folder)

    def open_by_steps(root: int, path: str) -> int:
        """Open the folder at a relative path, component by component."""
        current = root
        try:
            for name in path.split("/"):
                try:
                    inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
                except NotADirectoryError:
                    status = os.stat(name, dir_fd=current, follow_symlinks=False)
                    if stat.S_ISLNK(status.st_mode):  # Linux reports ENOTDIR instead of ELOOP
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from None
                    raise
                if current != root:
                    os.close(current)
                current = inner
        except BaseException:
            if current != root:
                os.close(current)
            raise
        return current


if sys.platform == "linux":

    class _OpenHow(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint64) for name in ("flags", "mode", "resolve")]

    def open_by_kernel(root: int, path: str) -> int:
        """Open the folder at a relative path, by one call of the kernel."""
        flags = _FOLDER | os.O_CLOEXEC  # which os.open adds by itself
        open_how = _OpenHow(flags, 0, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
        while True:
            descriptor = _syscall()(
                _OPENAT2, root, os.fsencode(path), ctypes.byref(open_how), ctypes.sizeof(open_how)
            )
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number != errno.EINTR:
                raise OSError(number, os.strerror(number), path)

    @cache
    def _syscall() -> Callable[..., int]:
        function: Callable[..., int] = ctypes.CDLL(None, use_errno=True).syscall
        function.restype = ctypes.c_long  # type: ignore[attr-defined]
        return function

    def has_openat2() -> bool:
        """Whether the call works here; old kernels lack it, and seccomp filters may refuse it."""
        if os.uname().machine == "alpha":
            return False
        root = os.open("/", _FOLDER)
        try:
            os.close(open_by_kernel(root, "."))
        except OSError as error:
            if error.errno not in _UNSUPPORTED_ERRORS:
                raise
            return False
        finally:
            os.close(root)
        return True


@cache
def folders_here() -> Folders:
    """Return the implementation for this system."""
    if sys.platform == "linux" and has_openat2():
        return FoldersByDescriptor(open_by_kernel)
    if sys.platform != "win32":
        return FoldersByDescriptor(open_by_steps)
    return FoldersByPath()
