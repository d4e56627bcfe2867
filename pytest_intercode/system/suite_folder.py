"""Access to the files that a suite names, restricted to the suite's folder.

A :class:`SuitePath` looks like a :class:`~pathlib.Path`, but opens files outside of the suite's
folder only if the user allows it. :meth:`SuitePath.place` returns a path that a task may keep.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import posixpath
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal, TypeVar

from pytest_intercode.core.permissions import Permissions
from pytest_intercode.core.text import one_line
from pytest_intercode.errors import MissingFile, SuiteError
from pytest_intercode.system.beneath import OutsideError, Root

__all__ = ["OutsideSuite", "SuiteFolder", "SuitePath"]

_MAX_BYTES = 2 * 1024**3  # bytes of a file that is read into memory
_MAX_TEXT = 64 * 1024**2  # bytes of a text that is read into memory
_T = TypeVar("_T")


class OutsideSuite(SuiteError):
    """A path of a suite leads to a place that the suite may not read."""


class SuiteFolder:
    """A folder whose suite can only read files below it, also through links that stay below it.

    It is a context manager. After its end, results may be kept, but no files can be opened.

    Args:
        folder: the folder, which the user named.
        permissions: the permissions to read other folders.

    Raises:
        MissingFile: it, or a folder that the user allows, cannot be opened.
    """

    def __init__(self, folder: Path, permissions: Permissions) -> None:
        self.permissions = permissions
        self._root = _open_root(folder, "the folder of the suite")
        self._allowed: list[Root] | None = None
        # Caches, because thousands of tasks may name the same file.
        self.places: dict[str, Path] = {}
        self.contents: dict[str, bytes] = {}
        self.top = SuitePath(self, str(folder), "")

    def __enter__(self) -> SuitePath:
        return self.top

    def __exit__(self, *_: object) -> None:
        for root in (self._root, *(self._allowed or ())):
            root.close()

    def use(self, path: SuitePath, work: Callable[[Root, str], _T]) -> _T:
        """Call ``work`` with a root and a path that does not lead out of it; return the result.

        Raises:
            OutsideSuite: the path leads to a place that the suite may not read.
        """
        try:
            return work(self._root, path.below)
        except OutsideError:
            pass
        if self._allowed is None:
            remedy = self.permissions.remedy("allow-path", "")
            self._allowed = [_open_root(path, remedy) for path in self.permissions.paths]
        real = _resolve(posixpath.join(self._root.path, path.below))
        for root in self._allowed if real else ():
            try:
                return work(root, real)
            except OutsideError:
                continue
        parent = posixpath.dirname(real) or "DIR"
        remedy = self.permissions.remedy("allow-path", parent)
        raise OutsideSuite(
            one_line(
                f"{path}: leads out of {self._root.path}, and a suite reads what is in its own "
                f"folder; if it may read this: {remedy}"
            )
        )


class SuitePath:
    """A path that a suite names, with safe variants of methods of :class:`~pathlib.Path`.

    Errors are those of ``Path``, and :class:`OutsideSuite` if it leads to a place that the suite
    may not read. It is not an ``os.PathLike``, so that other code cannot open it by mistake.

    Attributes:
        below: the path below the suite's folder, as it is written.
    """

    __slots__ = ("_folder", "_top", "below")

    def __init__(self, folder: SuiteFolder, top: str, below: str) -> None:
        self._folder = folder
        self._top = top
        self.below = below

    def __truediv__(self, path: str) -> SuitePath:
        return SuitePath(self._folder, self._top, posixpath.join(self.below, path))

    @property
    def permissions(self) -> Permissions:
        """The permissions that the user gives to the suite."""
        return self._folder.permissions

    @property
    def written(self) -> Path:
        """The path as it is written, for messages; do not open it."""
        return Path(self._top, self.below)

    def __str__(self) -> str:
        return str(self.written)

    @property
    def name(self) -> str:
        """Its last component; for the suite's folder, the folder's name."""
        return posixpath.basename(self.below) or self.written.name

    @property
    def suffix(self) -> str:
        """The suffix of its name."""
        return self.written.suffix

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of its name."""
        return self.written.suffixes

    @property
    def parent(self) -> SuitePath:
        """The folder that it is in, as it is written."""
        return SuitePath(self._folder, self._top, posixpath.dirname(self.below.rstrip("/")))

    def place(self) -> Path:
        """Return the path that it leads to, with links resolved, for a task to keep.

        The path need not exist.
        """
        place = self._folder.places.get(self.below)
        if place is None:
            place = self._folder.use(self, lambda root, path: root.path / root.locate(path))
            self._folder.places[self.below] = place
        return place

    def stat(self) -> os.stat_result:
        """Return the status of the file that it leads to."""
        return self._folder.use(self, Root.stat)

    def is_file(self) -> bool:
        """Whether it leads to a regular file."""
        return self._folder.use(self, Root.is_file)

    def is_dir(self) -> bool:
        """Whether it leads to a folder."""
        return self._folder.use(self, Root.is_folder)

    def exists(self) -> bool:
        """Whether it leads to an existing file or folder."""
        try:
            self.stat()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return False
        return True

    def open(self, mode: Literal["rb"] = "rb") -> BinaryIO:
        """Open a regular file to read it."""
        return self._folder.use(self, Root.open)

    def read_bytes(self, max_bytes: int = _MAX_BYTES) -> bytes:
        """Return the content of a regular file; raise OSError if it is larger."""
        return self._folder.use(self, lambda root, path: root.read(path, max_bytes))

    def read_beginning(self, max_bytes: int) -> bytes:
        """Return at most so many bytes from the beginning of a regular file."""
        with self.open() as file:
            return file.read(max_bytes)

    def read_shared(self) -> bytes:
        """Return the content of a regular file, as one object for all tasks that name it."""
        contents = self._folder.contents
        if self.below not in contents:
            contents[self.below] = self.read_bytes()
        return contents[self.below]

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the text of a regular file, with universal line ends converted."""
        text = self.read_bytes(_MAX_TEXT).decode(encoding)
        return text.replace("\r\n", "\n").replace("\r", "\n")

    def iterdir(self) -> Iterator[SuitePath]:
        """Yield the paths in a folder, sorted."""
        for name in self._folder.use(self, Root.names):
            yield self / name

    def glob(self, pattern: str) -> Iterator[SuitePath]:
        """Yield the paths in a folder whose names match a pattern, sorted."""
        return (path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, pattern))

    def files(self) -> Iterator[tuple[str, SuitePath]]:
        """Yield the regular files below a folder, including links to files, sorted.

        Yields:
            The path below the folder, and the path.
        """
        items = self._folder.use(self, lambda root, path: (root.locate(path), [*root.walk(path)]))
        start = len(items[0]) + 1 if items[0] else 0
        for item in items[1]:
            path = self / item.path[start:]
            if stat.S_ISREG(item.status.st_mode) or (
                stat.S_ISLNK(item.status.st_mode) and path.is_file()
            ):
                yield item.path[start:], path


def _open_root(folder: Path, label: str) -> Root:
    try:
        return Root(folder)
    except OSError as error:
        raise MissingFile(f"{folder}: {label} cannot be opened: {error.strerror}") from None


def _resolve(path: str) -> str:
    try:
        return os.path.realpath(path)
    except ValueError:  # a NUL
        return ""
