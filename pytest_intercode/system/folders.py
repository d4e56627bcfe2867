"""Folders that names are looked up in, one at a time, through no link.

Where the system has descriptors of folders, whatever replaces a folder by a link meanwhile is of no
effect. Windows has none: there each component of a path is looked at before it is used, which is
enough, as no sandbox runs there that could replace one in between.
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
"""An open folder: a descriptor or a path; only what opened it knows which."""

# openat2(2), which has the same number on every architecture but Alpha.
_OPENAT2 = 437
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_UNSUPPORTED_ERRORS = (errno.ENOSYS, errno.EPERM, errno.EACCES, errno.EINVAL, errno.E2BIG)
_JUNCTION = 0xA0000003  # the tag of what Windows has besides symbolic links, as stat.IO_REPARSE_...


class Folders(Protocol):
    """How folders are opened, and what is in them is looked at. All of it may raise OSError."""

    def open_root(self, path: str) -> Folder:
        """Open a folder at a path of our own; links are followed."""

    def open_below(self, root: Folder, path: str) -> Folder:
        """Open the folder at a relative path; ELOOP where a link is on the way."""

    def status(self, folder: Folder, name: str) -> os.stat_result:
        """Return the status of a name in a folder; that of a link is its own."""

    def open_file(self, folder: Folder, name: str) -> int:
        """Open a file in a folder to read it; through no link, and without waiting for a FIFO."""

    def names(self, folder: Folder) -> list[str]:
        """Return the names in a folder."""

    def link(self, folder: Folder, name: str) -> str:
        """Return what a symbolic link says."""

    def close(self, folder: Folder) -> None:
        """Close a folder."""


class FoldersByPath:
    """Folders as paths, and names as Windows has them."""

    def open_root(self, path: str) -> Folder:
        """Return the path of a folder that is there."""
        if not stat.S_ISDIR(os.stat(path).st_mode):  # noqa: PTH116
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return path

    def open_below(self, root: Folder, path: str) -> Folder:
        """Return the path of a folder below, once each component is known to be a folder."""
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
        """Return what a symbolic link says."""
        return os.readlink(self._join(folder, name))  # noqa: PTH115

    def close(self, folder: Folder) -> None:
        """Do nothing: nothing is open."""

    @staticmethod
    def _join(folder: str, name: str) -> str:
        # Elsewhere they are characters like others: a\\..\\b is one name, and C:x another one.
        if "\\" in name or ":" in name:
            raise OSError(errno.EINVAL, "is not a name on Windows", name)
        return os.path.join(folder, name)


if sys.platform != "win32":
    _FOLDER = os.O_RDONLY | os.O_DIRECTORY
    # To open a FIFO would wait for who writes to it, and a terminal would become our own.
    _FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

    class FoldersByDescriptor:
        """Folders as descriptors.

        Args:
            open_below: how a folder is opened below another one.
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
            """Return what a symbolic link says."""
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
                    if stat.S_ISLNK(status.st_mode):  # some systems say so, and Linux does not
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
        flags = _FOLDER | os.O_CLOEXEC  # os.open adds it
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
        """Whether this kernel has the call. A filter of system calls may refuse it."""
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
    """Return the way of this system."""
    if sys.platform == "linux" and has_openat2():
        return FoldersByDescriptor(open_by_kernel)
    if sys.platform != "win32":
        return FoldersByDescriptor(open_by_steps)
    return FoldersByPath()
