"""Lookup of untrusted paths below one folder, never outside of it.

Every name that comes from a suite, a task folder, an archive, a results file or a sandbox goes
through here. A path is first checked as text (:func:`check_name`, :func:`relative_path`); then
:class:`Root` opens it without following any link on the way: by one call of the kernel
(``openat2``) if it has that, else folder by folder. If links are allowed, they are resolved first,
and the result is opened in the same way. So if something replaces a folder by a link in the
meantime, the result is an error, and never a file outside of the root.

Only regular files are opened. A FIFO, a device or a socket is never opened.
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
_MAX_ATTEMPTS = 8  # attempts at a path whose links change while they are resolved
# A path that already is in the normal form, like nearly all paths.
_PART = r"(?!\.\.?(?:/|\Z))[^/\0]{1,60}"
_PLAIN = re.compile(f"{_PART}(?:/{_PART})*")
_CHUNK = 2**16  # minimum bytes to read at a time if a file's size is not known
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
    """A path leads out of its root; it was not checked whether it exists."""


class Item(NamedTuple):
    """A file, folder or link in a folder.

    Attributes:
        path: its path below the root, with ``/`` between names.
        status: its own status; for a link, not the status of its target.
    """

    path: str
    status: os.stat_result


# -- paths as text


def check_name(name: str) -> str:
    """Check that a name is one component of a path, and return it.

    Raises:
        ValueError: it is empty, ``.`` or ``..``, contains a ``/`` or a NUL, or is too long.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ValueError(f"a name is needed that is one component of a path, found {name!r:.80}")
    if len(os.fsencode(name)) > _MAX_NAME_BYTES:
        raise ValueError(f"a name has {_MAX_NAME_BYTES} bytes at most, found {name!r:.80}")
    return name


def relative_path(path: str) -> str:
    """Return a relative path in its normal form: without ``.``, repeated ``/`` and a final ``/``.

    Returns:
        The path; empty for the folder itself.

    Raises:
        ValueError: it is absolute, contains ``..``, or has a component that cannot be a name.
    """
    if _PLAIN.fullmatch(path):
        return path
    if path.startswith("/"):
        raise ValueError(f"a relative path is needed, found {path!r:.80}")
    return "/".join(check_name(part) for part in path.split("/") if part not in ("", "."))


def kind_of(status: os.stat_result) -> str:
    """Return the kind of a file, by its status: ``file``, ``folder``, ``symbolic link``, ..."""
    return _KINDS.get(stat.S_IFMT(status.st_mode), "special file")


# -- the root


class Root:
    """A folder, and everything below it.

    Paths are relative, as for :func:`relative_path`. If links are allowed, paths may also contain
    ``..`` and be absolute: then they are refused only if they lead out of the root. It is a context
    manager; its methods may be called from several threads.

    Args:
        folder: the folder; links on the way to it are the caller's own, and are followed.
        links: whether to follow symbolic links that stay below the root. If not, every link is an
            error; use that for folders that a program in a sandbox may be changing.

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
        """Close it; it cannot be used any more."""
        if self._root is not None:
            self._folders.close(self._root)
            self._root = None

    def __enter__(self) -> Root:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def locate(self, path: str) -> str:
        """Resolve all links in a path, and return the result below the root.

        The path need not exist.

        Raises:
            OutsideError: it leads out of the root.
            OSError: its links form a loop.
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
                self._status(inner_path)  # raises if there is a link on the way or at its end
                return inner_path
        full_path = os.path.join(self._real, path)
        try:
            real = os.path.realpath(full_path, strict=True)
        except ValueError:  # a NUL
            raise self._outside(path) from None
        except OSError as error:
            if error.errno == errno.ELOOP:  # without `strict`, it would ignore the loop
                raise
            real = os.path.realpath(full_path)
        prefix = self._real.rstrip(os.sep) + os.sep
        if real == self._real:
            return ""
        if not real.startswith(prefix):
            raise self._outside(path)
        return real[len(prefix) :].replace(os.sep, "/")

    def stat(self, path: str = "") -> os.stat_result:
        """Return the status of the file that a path leads to.

        Raises:
            OutsideError: it leads out of the root.
            OSError: there is no such file, or there is a link and links are not allowed.
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
            OSError: there is no such file, it is not regular (EINVAL), or it cannot be opened.
        """
        return os.fdopen(self._look_up(path, self._file), "rb")

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a regular file.

        Args:
            path: the file.
            max_bytes: maximum size of the file in bytes.

        Raises:
            OutsideError: the path leads out of the root.
            OSError: see :meth:`open`; or the file is larger (EFBIG).
        """
        descriptor = self._look_up(path, self._file)
        try:
            # For files of the kernel, such as in /proc, this is not their size.
            size = os.fstat(descriptor).st_size
            chunks, missing = [], 0 if size > max_bytes else max_bytes + 1
            while missing > 0 and (chunk := os.read(descriptor, min(missing, max(size, 0) + 1))):
                chunks.append(chunk)
                missing -= len(chunk)
                # The file may have grown, so read until its end.
                size = max(size - len(chunk), _CHUNK)
        finally:
            os.close(descriptor)
        if missing <= 0:
            raise OSError(errno.EFBIG, f"has more than {max_bytes:,} bytes", path)
        return b"".join(chunks)

    def items(self, path: str = "") -> list[Item]:
        """Return the items in a folder, sorted.

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
        """Yield all items below a folder, sorted, parents first; links are not followed.

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
        """Return the target of a symbolic link. Links on the way to it are followed as usual.

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
        """Resolve a path, and return the result of ``use`` for the path below the root.

        It is called with a path in the normal form, and must fail with ELOOP if it meets a link.
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

    # Each use opens its own descriptor, because the position in a folder's list of names belongs
    # to the descriptor.

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
            # Opening a device may have side effects, so check the kind first.
            _check_file(self._plain_status(folder, name or ".", path), path)
            descriptor = self._folders.open_file(folder, name)
        finally:
            self._folders.close(folder)
        try:
            # Check again, because another file may have replaced it since then.
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
