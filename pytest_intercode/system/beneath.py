"""Paths that somebody else chose, looked up below one folder and never outside of it.

Every name that comes from a suite, a task folder, an archive, a results file or a sandbox goes
through here. A path is first read as text (:func:`check_name`, :func:`relative_path`); then
:class:`Root` opens it, without following any link on the way: by one call of the kernel
(``openat2``) where it has that, else folder by folder. Where links are allowed, they are resolved
before, and what comes of it is opened in the same way. So whatever replaces a folder by a link in
the meantime gets an error, and never a file outside of the root.

Only regular files are opened. A FIFO, a device or a socket is never touched.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from pytest_intercode.system.folders import Folder, folders_here

__all__ = ["Item", "OutsideError", "Root", "check_name", "kind_of", "relative_path"]

_MAX_NAME_BYTES = 255  # bytes, in every usual file system
_MAX_ATTEMPTS = 8  # at a path whose links change while they are resolved
# A path that is in that form already, as nearly all are.
_PART = r"(?!\.\.?(?:/|\Z))[^/\0]{1,60}"
_PLAIN = re.compile(f"{_PART}(?:/{_PART})*")
_CHUNK = 2**16  # bytes that are read at least at a time, from a file that does not say its size
_MISSING_ERRORS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_T = TypeVar("_T")

_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "symbolic link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class OutsideError(OSError):
    """A path leads out of its root; whether anything is there was not looked at."""


class Item(NamedTuple):
    """What a walk comes to.

    Attributes:
        path: its path below the root, with ``/`` between names.
        status: its own status; that of a link is not the one of what it leads to.
    """

    path: str
    status: os.stat_result


# -- paths as text


def check_name(name: str) -> str:
    """Return a name that is one component of a path.

    Raises:
        ValueError: it is empty, ``.`` or ``..``, has a ``/`` or a NUL, or is too long.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"a name is needed that is one component of a path, found {name!r:.80}")
    if len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise ValueError(f"a name has {_MAX_NAME_BYTES} bytes at most, found {name!r:.80}")
    return name


def relative_path(path: str) -> str:
    """Return a relative path in its one form: without ``.``, and without ``/`` twice or at its end.

    Returns:
        The path; empty for the folder itself.

    Raises:
        ValueError: it is absolute, has ``..`` in it, or has a component that cannot be a name.
    """
    if _PLAIN.fullmatch(path):
        return path
    if path.startswith("/"):
        raise ValueError(f"a relative path is needed, found {path!r:.80}")
    return "/".join(check_name(part) for part in path.split("/") if part not in ("", "."))


def kind_of(status: os.stat_result) -> str:
    """Return what a status is of: ``file``, ``folder``, ``symbolic link``, ``FIFO``, ..."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "special file")


# -- the root


class Root:
    """A folder, and what is below it.

    Paths are relative, as :func:`relative_path` takes them, but may have ``..`` in them and be
    absolute where links are allowed: they are refused only where they lead out of the root. It is
    a context manager; its methods may be called from several threads.

    Args:
        folder: the folder; links on the way to it are the caller's own, and are followed.
        links: follow symbolic links that stay below the root. Without, every link is an error, as
            befits what a program in a sandbox may be changing at this moment.

    Raises:
        OSError: the folder cannot be opened.
    """

    def __init__(self, folder: str | os.PathLike[str], *, links: bool = True) -> None:
        self.path = Path(folder)
        self._links = links
        self._folders = folders_here()
        self._real = os.path.realpath(folder)
        self._root: Folder | None = self._folders.open_root(self._real)

    def close(self) -> None:
        """Close it; it cannot be used any longer."""
        if self._root is not None:
            self._folders.close(self._root)
            self._root = None

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locate(self, path: str) -> str:
        """Return the path below the root that a path leads to, through no link.

        Nothing has to be there.

        Raises:
            OutsideError: it leads out of the root.
            OSError: its links lead to each other.
        """
        try:
            inner_path = relative_path(path)
        except ValueError:
            if not self._links:
                raise self._outside(path) from None
        else:
            if not self._links:
                return inner_path
            with suppress(OSError):
                self._status(inner_path)  # there is no link on the way, nor at its end
                return inner_path
        full_path = os.path.join(self._real, path)
        try:
            real = os.path.realpath(full_path, strict=True)
        except ValueError:  # a NUL
            raise self._outside(path) from None
        except OSError as error:
            if error.errno == errno.ELOOP:  # else it would go on behind the loop, by the names
                raise
            real = os.path.realpath(full_path)
        prefix = self._real.rstrip(os.sep) + os.sep
        if real == self._real:
            return ""
        if not real.startswith(prefix):
            raise self._outside(path)
        return real[len(prefix) :].replace(os.sep, "/")

    def stat(self, path: str = "") -> os.stat_result:
        """Return the status of what a path leads to.

        Raises:
            OutsideError: it leads out of the root.
            OSError: there is nothing, or a link where none is allowed.
        """
        return self._look_up(path, self._status)

    def is_file(self, path: str) -> bool:
        """Whether a path leads to a regular file.

        Raises:
            OutsideError: it leads out of the root.
        """
        return self._is(path, stat.S_ISREG)

    def is_folder(self, path: str) -> bool:
        """Whether a path leads to a folder.

        Raises:
            OutsideError: it leads out of the root.
        """
        return self._is(path, stat.S_ISDIR)

    def open(self, path: str) -> BinaryIO:
        """Open a regular file to read it.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: there is no such file, or it is none (EINVAL), or cannot be opened.
        """
        return os.fdopen(self._look_up(path, self._file), "rb")

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return what a regular file holds.

        Args:
            path: the file.
            max_bytes: bytes that it may have.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: as :meth:`open`, or the file has more bytes (EFBIG).
        """
        descriptor = self._look_up(path, self._file)
        try:
            # A file of the kernel's own does not say its size.
            size = os.fstat(descriptor).st_size
            chunks, missing = [], 0 if size > max_bytes else max_bytes + 1
            while missing > 0 and (chunk := os.read(descriptor, min(missing, max(size, 0) + 1))):
                chunks.append(chunk)
                missing -= len(chunk)
                # It may have grown, so it is read until nothing comes.
                size = max(size - len(chunk), _CHUNK)
        finally:
            os.close(descriptor)
        if missing <= 0:
            raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes", path)
        return b"".join(chunks)

    def items(self, path: str = "") -> list[Item]:
        """Return what is in a folder, sorted.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: there is no such folder.
        """
        return self._look_up(path, self._items)

    def names(self, path: str = "") -> list[str]:
        """Return the names in a folder, sorted.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: there is no such folder.
        """
        return [item.path.rpartition("/")[2] for item in self.items(path)]

    def walk(self, path: str = "") -> Iterator[Item]:
        """Yield all below a folder, sorted, a folder before what is in it. No link is followed.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: there is no such folder, or one in it cannot be read.
        """
        levels = [iter(self.items(path))]
        while levels:
            item = next(levels[-1], None)
            if item is None:
                levels.pop()
                continue
            yield item
            if stat.S_ISDIR(item.status.st_mode):
                levels.append(iter(self._items(item.path)))

    def target(self, path: str) -> str:
        """Return what a symbolic link says. Links on the way to it are followed, as elsewhere.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: there is no such link.
        """
        parent, _, name = path.rpartition("/")
        folder = self._open_folder(self.locate(parent))
        try:
            return self._folders.link(folder, check_name(name))
        finally:
            self._folders.close(folder)

    # -- one path

    def _outside(self, path: str) -> OutsideError:
        return OutsideError(errno.EXDEV, f"leads out of {self.path}", path)

    def _look_up(self, path: str, use: Callable[[str], _T]) -> _T:
        """Return what ``use`` returns for the path below the root that a path leads to.

        It is called with a path in its one form, and fails with ELOOP where a link is on the way.
        """
        try:
            relative = relative_path(path)
        except ValueError:
            relative = self.locate(path)
        for _ in range(_MAX_ATTEMPTS):
            try:
                return use(relative)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
            if not self._links:
                raise OSError(errno.ELOOP, "is a symbolic link, or below one", path)
            relative = self.locate(path)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    def _is(self, path: str, fits: Callable[[int], bool]) -> bool:
        try:
            return fits(self.stat(path).st_mode)
        except OutsideError:
            raise
        except OSError as error:
            if error.errno not in _MISSING_ERRORS:
                raise
            return False

    # -- paths without links

    # Each use has a descriptor of its own, and with it a place of its own in the list of names.

    def _status(self, path: str) -> os.stat_result:
        parent, _, name = path.rpartition("/")
        folder = self._open_folder(parent)
        try:
            return self._plain_status(folder, name or ".", path)
        finally:
            self._folders.close(folder)

    def _file(self, path: str) -> int:
        parent, _, name = path.rpartition("/")
        folder = self._open_folder(parent)
        try:
            # Even to open a device may do something, so that its kind is looked at before.
            _check_file(self._plain_status(folder, name or ".", path), path)
            descriptor = self._folders.open_file(folder, name)
        finally:
            self._folders.close(folder)
        try:
            # Another file may have taken its place since it was looked at.
            _check_file(os.fstat(descriptor), path)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _items(self, path: str) -> list[Item]:
        prefix = f"{path}/" if path else ""
        folder, status = self._open_folder(path), self._folders.status
        try:
            names = sorted(self._folders.names(folder))
            return [Item(prefix + name, status(folder, name)) for name in names]
        finally:
            self._folders.close(folder)

    def _open_folder(self, path: str) -> Folder:
        if self._root is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        return self._folders.open_below(self._root, path or ".")

    def _plain_status(self, folder: Folder, name: str, path: str) -> os.stat_result:
        """Return the status of a name in a folder; ELOOP for a link."""
        status = self._folders.status(folder, name)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return status


def _check_file(status: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder, not a file", path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, f"is a {kind_of(status)}, not a file", path)
